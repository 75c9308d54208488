"""What an archive holds of each history of a feed, as runs of entries, and where something is missing between them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import RestoreInexact
from headrace.wire.base_manifest import BaseManifest
from headrace.wire.kwal import SegmentName
from headrace.wire.kwal_manifest import FeedRange, Manifest, RegisteredFeed


class Part(NamedTuple):
    """A run of entries of one history of a feed. ``segment``: the number of its segment, -1 for what a base stands for."""

    segment: int
    feed: str
    region_id: int
    incarnation: str
    first_id: int
    last_id: int
    first: Lsn
    last: Lsn

    @property
    def history(self) -> tuple[str, str]:
        """Which history of which feed."""
        return self.feed, self.incarnation


class Hole(NamedTuple):
    """Entries of a feed that are not in the archive: sequence ids, inclusive."""

    first_id: int
    last_id: int


def parts_of(manifests: Iterable[Manifest], base: BaseManifest | None) -> list[Part]:
    """All runs, in LSN order; what a base stands for comes first. Runs that a base covers are left out."""
    after = Lsn.parse(base.lsn) if base is not None else ZERO
    found = [
        Part(
            -1,
            one.feed,
            one.region_id,
            one.incarnation,
            one.first_sequence_id,
            one.sequence_id,
            ZERO,
            Lsn.parse(one.lsn),
        )
        for one in (base.feeds if base is not None else ())
    ]
    found.sort(key=lambda part: part.last)
    runs = [_part(number, run) for number, manifest in enumerate(manifests) for run in manifest.feeds]
    return [*found, *sorted((part for part in runs if part.last > after), key=lambda part: part.first)]


def _part(number: int, run: FeedRange) -> Part:
    ends = Lsn.parse(run.first_lsn), Lsn.parse(run.last_lsn)
    return Part(
        number, run.feed, run.region_id, run.incarnation, run.first_sequence_id, run.last_sequence_id, *ends
    )


def beginnings(manifests: Sequence[Manifest], base: BaseManifest | None) -> dict[tuple[str, int, str], int]:
    """Return where each history began, of those of which it is known."""
    said = [one for registry in registries(manifests, base) for one in registry]
    return {
        (one.feed, one.region_id, one.incarnation): one.first_sequence_id
        for one in said
        if one.incarnation and one.first_sequence_id
    }


def line_of(parts: Sequence[Part], begun: Mapping[tuple[str, int, str], int]) -> list[Part]:
    """Return the parts of a feed's newest history and of those that it goes on from, in order.

    Entries may be missing between two of them, as within one: then nothing of the older one is in the journal, but what a
    base keeps of it, such as schemas, is the feed's.
    """
    at = len(parts) - 1
    while at:
        before, part = parts[at - 1], parts[at]
        if before.incarnation != part.incarnation:
            began = begun.get((part.feed, part.region_id, part.incarnation), 0)
            goes_on = 0 < began <= before.first_id or part.segment < 0
            if not goes_on or before.last_id >= part.first_id:
                break
        at -= 1
    newest = parts[-1].incarnation
    return [part for number, part in enumerate(parts) if number >= at or part.incarnation == newest]


def joined_from(row: Sequence[Part]) -> int:
    """Return the number of the first segment from which on nothing of the feed is missing.

    RestoreInexact if an entry stands there twice.
    """
    since, before = 0, row[0]
    for part in row[1:]:
        due = before.last_id + 1
        covered = before.segment < 0 and part.first_id <= due <= part.last_id + 1
        if part.first_id < due and not covered:
            raise RestoreInexact(
                f"the sequence ids {part.first_id} to {min(before.last_id, part.last_id)} of {part.feed} stand in the "
                f"archive twice, at lsn={before.last} and again at lsn={part.first}"
            )
        if part.first_id > due:
            since = part.segment if before.segment < part.segment else part.segment + 1
        before = part
    return since


def breaks_of(manifests: Sequence[Manifest], base: BaseManifest | None) -> list[int]:
    """Return the numbers of the segments in front of which entries of any feed may be missing, in order.

    0 is among them if entries may be missing between the base, or the beginning of the log, and the first segment, or in the
    base itself.
    """
    if not manifests:
        return []
    start = Lsn.parse(base.lsn) if base is not None else ZERO
    begins_late = Lsn.parse(manifests[0].walked_from) > start or (base is not None and bool(base.gaps))
    joints = enumerate(pairwise(manifests), 1)
    return [*([0] if begins_late else []), *(number for number, joint in joints if not _joined(*joint))]


def _joined(before: Manifest, after: Manifest) -> bool:
    known = after.predecessor
    return (
        known is not None
        and (SegmentName.parse(known.name), known.crc) == (before.name, before.crc)
        and Lsn.parse(after.walked_from) == Lsn.parse(before.last_lsn)
    )


def holes_of(row: Sequence[Part], began: int) -> tuple[Hole, ...]:
    """Return which entries of a feed, from where it ``began`` on, are missing before its last part, in order."""
    found = [Hole(began, row[0].first_id - 1)] if row[0].segment >= 0 else []
    found += [Hole(before.last_id + 1, part.first_id - 1) for before, part in pairwise(row)]
    return tuple(hole for hole in found if hole.first_id <= hole.last_id)


def registries(manifests: Sequence[Manifest], base: BaseManifest | None) -> list[tuple[RegisteredFeed, ...]]:
    """Return the registries, oldest first."""
    return [*([base.registry] if base is not None else []), *(one.registry for one in manifests)]
