"""Which segments of a folder hold a range, whether one is missing, and how they are spread over tasks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from headrace.entries.lsn import Lsn
from headrace.errors import SegmentGap, SegmentsOverlap
from headrace.wire.kwal import SegmentName
from headrace.wire.kwal_manifest import Manifest

TASK_BYTES: Final = 64 << 20
"""Bytes of segments that one task reads at least: a task costs some 15 ms whatever it does."""


class Stored(NamedTuple):
    """A segment in a folder. ``file``: its name as it is written there; ``size`` in bytes; ``told``: it has a manifest."""

    name: SegmentName
    file: str
    size: int
    told: bool


class Range(NamedTuple):
    """LSNs, inclusive; None: from the folder's first, up to its last."""

    first: Lsn | None = None
    last: Lsn | None = None


def ordered(segments: Collection[Stored]) -> list[Stored]:
    """Return the segments in LSN order; SegmentsOverlap, naming the two, if an LSN can be in two of them."""
    found = sorted(segments)
    for before, after in pairwise(found):
        if after.name.first <= before.name.last:
            raise overlapping(before, after)
    return found


def overlapping(before: Stored, after: Stored) -> SegmentsOverlap:
    """Return the error that two segments overlap; its hint names one that was never acked."""
    untold = next((one.file for one in (after, before) if not one.told), None)
    return SegmentsOverlap(
        f"{before.file} and {after.file} overlap: two agents wrote to one folder. Keep one of the two files",
        hint=f"{untold} has no manifest. If nobody took that away, nothing of it was acked: move it away."
        if untold is not None
        else None,
    )


def touched(segments: Sequence[Stored], wanted: Range) -> tuple[list[Stored], Stored | None]:
    """Return the segments that may hold entries of the range, and the next one behind them: it tells of a gap at the end."""
    first, last = wanted
    held = [
        one
        for one in segments
        if (first is None or one.name.last >= first) and (last is None or one.name.first <= last)
    ]
    behind = [one for one in segments if last is not None and one.name.first > last]
    return held, behind[0] if behind else None


def check_gaps(
    held: Sequence[Stored], behind: Stored | None, wanted: Range, manifests: Mapping[str, Manifest]
) -> None:
    """Raise SegmentGap, naming both ends, unless the segments hold all entries of the range there ever were.

    ``manifests``: by the segment's file. A segment without one can't tell what was before it, and counts as a gap. Where the
    range has no end of its own, the folder's own ends are its ends.
    """
    row = list(held)
    if behind is not None and wanted.last is not None and (not row or row[-1].name.last < wanted.last):
        row.append(behind)
    if row and wanted.first is not None and row[0].name.first > wanted.first:
        _check_start(row[0], wanted.first, manifests.get(row[0].file))
    for before, after in pairwise(row):
        _check_joint(before, after, manifests.get(before.file), manifests.get(after.file))
    if wanted.last is not None and (not row or row[-1].name.last < wanted.last):
        end = f"ends at lsn={row[-1].name.last}" if row else "has nothing of this range"
        raise SegmentGap(f"the folder {end}: nobody can tell what follows, up to lsn={wanted.last}")


def _check_start(segment: Stored, first: Lsn, manifest: Manifest | None) -> None:
    if manifest is None:
        raise _untold(segment, first)
    if (walked := Lsn.parse(manifest.walked_from)) >= first:
        raise SegmentGap(
            f"entries from lsn={first} to lsn={walked} are not in the folder: {segment.file} is the first one there"
        )


def _check_joint(before: Stored, after: Stored, earlier: Manifest | None, later: Manifest | None) -> None:
    if later is None:
        raise _untold(after, before.name.last)
    known = later.predecessor
    joined = known is not None and SegmentName.parse(known.name) == before.name
    if not joined or Lsn.parse(later.walked_from) != before.name.last:
        raise SegmentGap(
            f"entries between lsn={before.name.last} and lsn={after.name.first} may be missing: {after.file} does not "
            f"follow {before.file}, but " + (known.name if known is not None else f"lsn={later.walked_from}")
        )
    if known is not None and earlier is not None and earlier.crc != known.crc:
        raise SegmentGap(
            f"{before.file} is not the file that {after.file} was written behind: entries up to "
            f"lsn={before.name.last} may be missing, before lsn={after.name.first}"
        )


def _untold(segment: Stored, since: Lsn) -> SegmentGap:
    return SegmentGap(
        f"{segment.file} has no manifest: nobody can tell whether entries between lsn={since} and "
        f"lsn={segment.name.first} are missing"
    )


def grouped(segments: Sequence[Stored], task_bytes: int = TASK_BYTES) -> list[list[Stored]]:
    """Return the segments as one group for each task: in order, of at least ``task_bytes`` each where there are so many."""
    groups: list[list[Stored]] = []
    size = task_bytes
    for one in segments:
        if size >= task_bytes:
            groups.append([])
            size = 0
        groups[-1].append(one)
        size += one.size
    return groups
