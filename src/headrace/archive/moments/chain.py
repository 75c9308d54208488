"""Which moments an archive can rebuild: its windows, and the gaps between them. Pure.

A window begins at a base snapshot, or where the log itself begins, and goes on as far as segments join without a gap: a
segment's stream ran unbroken since the last LSN of the one before, which is the very file that it names, and each history of
a feed goes on with the next sequence id (``docs/formats/kwal.md``). In doubt it is a gap.

A gap that somebody has accepted (:mod:`headrace.archive.files.gaps`) is a hole in a window: restores may go over it, none
may end in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from headrace.archive.files.bases import StoredBase
from headrace.archive.files.gaps import AcceptedGap, counting
from headrace.archive.files.segments import Stored
from headrace.archive.moments.fitting import misfit
from headrace.archive.moments.ranges import Ranges
from headrace.entries.lsn import ZERO, Lsn
from headrace.wire.kwal import SegmentName
from headrace.wire.kwal_manifest import FeedRange, Manifest

Span = tuple[int, int]
"""LSNs as integers, inclusive."""


class Gap(NamedTuple):
    """Entries above ``after`` and below ``before`` are missing, or nobody can tell that none are; ``why`` says it.

    ``accepted``: the records that accept it, empty as long as a part of it is not accepted. ``reasons``: why it was, if a
    base snapshot is all that still tells of it.
    """

    after: Lsn
    before: Lsn
    why: str
    accepted: tuple[AcceptedGap, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def told(self) -> tuple[str, ...]:
        """Who accepted it, and why."""
        return (*self.reasons, *(f"{one.by}: {one.reason}" for one in self.accepted))

    @property
    def span(self) -> Span:
        """The LSNs that are in it."""
        return int(self.after) + 1, int(self.before) - 1


class Window(NamedTuple):
    """A stretch whose moments can be rebuilt: from ``first`` to ``last``, both LSNs of entries, inclusive.

    ``base``: the base that it begins at, None if that is the beginning of the log. ``holes``: accepted gaps inside; no
    moment within one can be rebuilt.
    """

    first: Lsn
    last: Lsn
    base: StoredBase | None
    holes: tuple[Gap, ...] = ()


class Chain:
    """The segments of an archive, joined."""

    def __init__(
        self,
        segments: Sequence[Stored],
        manifests: Mapping[str, Manifest],
        bases: Sequence[StoredBase] = (),
        accepted: Sequence[AcceptedGap] = (),
    ) -> None:
        """``segments`` in LSN order; ``manifests`` by the segment's file; ``bases`` and ``accepted`` in LSN order."""
        self._last = segments[-1].name.last if segments else ZERO
        self._first = segments[0].name.first if segments else ZERO
        known = [one for one in segments if one.file in manifests]
        ranges = Ranges([one.name for one in known], [manifests[one.file] for one in known])
        self._breaks = _breaks(segments, manifests, ranges)
        missing = [(one.after, one.before) for one in self._breaks]
        self._accepted = counting(accepted, missing)
        judged = [(one, misfit(one, ranges, missing)) for one in bases]
        self._bases = [one for one, why in judged if not why]
        self._why_not = {one.path: why for one, why in judged if why}
        self.misfits = [one for one, why in judged if why]
        """Bases of another log or another history than the segments: nothing can be rebuilt from those."""

    def reach(self, start: Lsn) -> Lsn:
        """Return the last LSN up to which nothing is missing behind ``start`` (ZERO: the beginning of the log)."""
        for one in self._breaks:
            cut = one._replace(after=max(one.after, start))
            # Of a gap that is accepted in part nothing can be had: the rest of it is behind no entry that is there.
            if cut.span[0] <= cut.span[1] and any(True for _ in _without(cut.span, self._accepted)):
                return cut.after
        return max(self._last, start)

    def why_not(self, base: StoredBase) -> str:
        """Return why a base is a misfit, in words; empty if it is none."""
        return self._why_not.get(base.path, "")

    def windows(self) -> list[Window]:
        """Return all windows, in LSN order; none overlaps another."""
        found: list[Window] = []
        for start, base in self.starts():
            if found and start <= found[-1].last:
                continue
            last = self.reach(start)
            first = self._first if base is None else start
            if base is not None or last >= first:
                found.append(Window(first, last, base, tuple(self.holes(start, last))))
        return found

    def starts(self) -> list[tuple[Lsn, StoredBase | None]]:
        """Return where a window may begin: each base that can be used, and, if there are segments, the log's beginning."""
        beginning: list[tuple[Lsn, StoredBase | None]] = [(ZERO, None)] if self._last > ZERO else []
        return [*beginning, *((one.lsn, one) for one in self._bases)]

    def start_for(self, target: Lsn) -> tuple[Lsn, StoredBase | None] | None:
        """Return the newest start at or below ``target`` behind which nothing is missing up to it; None if there is none."""
        for start, base in reversed(self.starts()):
            if (
                start <= target
                and self.reach(start) >= target
                and (base is not None or target >= self._first)
            ):
                return start, base
        return None

    def oldest_for(self, target: Lsn) -> tuple[Lsn, StoredBase | None] | None:
        """Return the oldest start behind which nothing is missing up to ``target``, nothing that was accepted either.

        Where each has accepted gaps in between, the newest one, as :meth:`start_for`; None if there is none.
        """
        for start, base in self.starts():
            if (
                start <= target
                and self.reach(start) >= target
                and (base is not None or target >= self._first)
                and not self.holes(start, target)
            ):
                return start, base
        return self.start_for(target)

    def gaps(self) -> list[Gap]:
        """Return all gaps in LSN order, accepted ones among them.

        What is missing before the first base, or before the first segment if there is no base, is no gap: nothing was there
        that it could be joined to. Behind each base that stands before the first segment is one, up to the next base.
        """
        found = []
        for one in self._breaks:
            if one.after != ZERO:
                found.append(one)
                continue
            below = [base.lsn for base in self._bases if base.lsn < one.before]
            ends = [*below[1:], one.before]
            found += [one._replace(after=after, before=end) for after, end in zip(below, ends, strict=False)]
        return [self._judged(one) for one in found if one.span[0] <= one.span[1]]

    def holes(self, start: Lsn, last: Lsn) -> list[Gap]:
        """Return the accepted gaps that a restore from ``start`` to ``last`` goes over, cut at ``start``."""
        found = []
        for one in self._breaks:
            cut = one._replace(after=max(one.after, start))
            if start != ZERO and cut.after >= cut.before:
                continue
            judged = self._judged(cut)
            if judged.accepted and judged.span[0] <= int(last) and judged.span[0] <= judged.span[1]:
                found.append(judged)
        return found

    def hole_at(self, start: Lsn, target: Lsn) -> Gap | None:
        """Return the accepted gap that ``target`` is inside of, if it is."""
        inside = (one for one in self.holes(start, target) if one.span[0] <= int(target) <= one.span[1])
        return next(inside, None)

    def gap_at(self, target: Lsn) -> Gap | None:
        """Return the gap, accepted or not, that ``target`` is inside of, if it is."""
        return next((one for one in self.gaps() if one.span[0] <= int(target) <= one.span[1]), None)

    def _judged(self, gap: Gap) -> Gap:
        if any(True for _ in _without(gap.span, self._accepted)):
            return gap
        first, last = gap.span
        touching = (one for one in self._accepted if _span(one)[0] <= last and _span(one)[1] >= first)
        return gap._replace(accepted=tuple(touching))


def _span(gap: AcceptedGap) -> Span:
    after, before = gap.span
    return int(after) + 1, int(before) - 1


def _without(span: Span, accepted: Iterable[AcceptedGap]) -> Iterator[Span]:
    """Yield what is left of ``span`` when the accepted gaps, in order, are taken out."""
    first, last = span
    for one in accepted:
        taken_first, taken_last = _span(one)
        if taken_last < first:
            continue
        if taken_first > last:
            break
        if taken_first > first:
            yield first, taken_first - 1
        first = taken_last + 1
    if first <= last:
        yield first, last


# -- where something may be missing ------------------------------------------------------------------------------------


def _breaks(segments: Sequence[Stored], manifests: Mapping[str, Manifest], ranges: Ranges) -> list[Gap]:
    """Return what may be missing, in LSN order; none overlaps another, nor touches it."""
    joints = list(_bad_joints(segments, manifests, ranges))
    # Entries that one of those lacks are missed by the feed's next entries, too.
    torn = [
        one
        for one in _torn_histories(ranges)
        if not any(joint.span[0] <= one.span[1] and joint.span[1] >= one.span[0] for joint in joints)
    ]
    found: list[Gap] = []
    for one in sorted([*joints, *torn], key=lambda gap: gap.span):
        if found and one.span[0] <= found[-1].span[1] + 1:
            before = found.pop()
            one = Gap(before.after, max(before.before, one.before), f"{before.why}; {one.why}")
        found.append(one)
    return found


def _bad_joints(
    segments: Sequence[Stored], manifests: Mapping[str, Manifest], ranges: Ranges
) -> Iterator[Gap]:
    before: Stored | None = None
    for one in segments:
        manifest = manifests.get(one.file)
        found = (
            _untold(before, one)
            if manifest is None
            else _beginning(manifest, ranges)
            if before is None
            else _joint(before, one, manifests.get(before.file), manifest)
        )
        if found is not None and found.span[0] <= found.span[1]:
            yield found
        before = one


def _untold(before: Stored | None, segment: Stored) -> Gap:
    damaged = " that can be used" if segment.told else ""
    return Gap(
        before.name.last if before is not None else ZERO,
        above(segment.name.last),
        f"{segment.file} has no manifest{damaged}: nobody can tell which entries of which feeds it lacks",
    )


def _beginning(manifest: Manifest, ranges: Ranges) -> Gap | None:
    walked = Lsn.parse(manifest.walked_from)
    # One that names a predecessor is never the beginning: a registry says nothing of feeds that are gone by then.
    if walked == ZERO or (manifest.predecessor is None and _has_all_feeds_whole(manifest, ranges)):
        return None
    return Gap(ZERO, above(walked), f"{manifest.segment} is the first one there")


def _has_all_feeds_whole(first: Manifest, ranges: Ranges) -> bool:
    """Tell whether every feed that had entries by then is there from the sequence id 1 on."""
    begins: dict[int, int] = {}
    for (region, _), row in ranges.rows.items():
        begins.setdefault(region, row.parts[0].first_sequence_id)
    firsts = {one.region_id: one.first_sequence_id or 1 for one in first.registry}
    used = {one.region_id for one in first.registry if one.next_sequence_id > firsts[one.region_id]}
    return bool(firsts) and all(begins.get(region) == firsts.get(region, 1) for region in used | set(begins))


def _joint(before: Stored, after: Stored, earlier: Manifest | None, later: Manifest) -> Gap | None:
    known, walked = later.predecessor, Lsn.parse(later.walked_from)
    if walked > before.name.last:
        return Gap(
            before.name.last,
            above(walked),
            f"the stream that wrote {after.file} began at lsn={walked}",
        )
    if known is None or SegmentName.parse(known.name) != before.name or walked < before.name.last:
        named = known.name if known is not None else f"lsn={later.walked_from}"
        return Gap(
            before.name.last, after.name.first, f"{after.file} does not follow {before.file}, but {named}"
        )
    if earlier is not None and earlier.crc != known.crc:
        return Gap(
            Lsn.from_int(int(before.name.first) - 1),
            after.name.first,
            f"{before.file} is not the file that {after.file} was written behind",
        )
    return None


def _torn_histories(ranges: Ranges) -> Iterator[Gap]:
    for row in ranges.rows.values():
        for known, one in pairwise(row.parts):
            if one.first_sequence_id != known.last_sequence_id + 1:
                yield _torn(one, known.last_sequence_id, Lsn.parse(known.last_lsn))


def _torn(found: FeedRange, last_id: int, last_lsn: Lsn) -> Gap:
    return Gap(
        last_lsn,
        Lsn.parse(found.first_lsn),
        f"{found.feed} (incarnation {found.incarnation}) has its entry {last_id}, and then {found.first_sequence_id}",
    )


def above(lsn: Lsn) -> Lsn:
    """Return the LSN right above another."""
    return Lsn.from_int(int(lsn) + 1)


def below(lsn: Lsn) -> Lsn:
    """Return the LSN right below another; ZERO for ZERO."""
    return Lsn.from_int(max(0, int(lsn) - 1))
