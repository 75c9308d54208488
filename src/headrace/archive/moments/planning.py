"""What a restore would use, to which entry it would come, and what to know about that. Nothing is written.

Called by ``headrace wal plan`` and by everything that restores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from headrace.archive.files.bases import StoredBase, check_files, place_of, read_base
from headrace.archive.files.folder import Folder
from headrace.archive.files.segments import Stored
from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.chain import Gap, above, below
from headrace.archive.moments.pieces import Place
from headrace.archive.moments.points import Points, Torn
from headrace.archive.moments.ranges import between
from headrace.archive.moments.reachable import (
    Nearest,
    counted_as_ended,
    gap_document,
    gap_shown,
    moved_back,
    nearest_to,
    points_of,
    refusal,
    shown_time,
)
from headrace.archive.moments.target import Asked, find
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import BaseCorrupt, SegmentGap, TargetInsideAppend, TargetUnreachable
from headrace.wire.kwal_manifest import FeedRange

LAG_MAX_MS: Final = 5_000
"""A publisher that was further behind its source at the target is worth a warning."""


@dataclass(frozen=True, slots=True)
class KeptFeed:
    """One history of a feed at the target: entries ``first_sequence_id`` … ``last_sequence_id``, the last at ``lsn``.

    ``current``: it is the feed's newest history there. Feeds that a base alone has are among them.
    """

    feed: str
    region_id: int
    incarnation: str
    first_sequence_id: int
    last_sequence_id: int
    lsn: Lsn
    current: bool


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What a restore uses. All entries up to ``target_lsn``, inclusive, are kept, and none behind it.

    ``moved_from``: the entry that was asked for, if the target had to move back from it to a whole append or transaction,
    and ``moved_why``. ``source_time_ms``: of the last entry kept that has one, as far as the last segment tells.
    ``segments``: in order, those with entries above the base's LSN up to the target. ``base_url``: address of the base's
    folder, which need not be in the archive; empty without one. ``gaps``: accepted ones that the restore goes over.
    ``nearest_before`` and ``nearest_after``: the whole points next to the target, None if there is none. Times are UTC
    milliseconds. ``gaps_beyond``: accepted ones between the last entry kept and the moment asked for, which may have had
    later entries up to that moment.
    """

    asked: Asked
    target_lsn: Lsn
    log_time_ms: int
    source_time_ms: int | None
    moved_from: Lsn | None
    moved_why: str
    base: StoredBase | None
    base_url: str
    segments: tuple[Stored, ...]
    feeds: tuple[KeptFeed, ...]
    gaps: tuple[Gap, ...]
    warnings: tuple[str, ...]
    nearest_before: Lsn | None
    nearest_after: Lsn | None
    gaps_beyond: tuple[Gap, ...] = ()

    @property
    def after_lsn(self) -> Lsn:
        """Entries of the segments count above this LSN: the base's, ZERO without one."""
        return self.base.lsn if self.base is not None else ZERO

    def document(self) -> dict[str, Any]:
        """Return the plan as one JSON document, with members in kebab-case; LSNs are texts, times RFC 3339."""
        source_time = None if self.source_time_ms is None else shown_time(self.source_time_ms)
        return {
            "asked": self.asked.document(),
            "target-lsn": str(self.target_lsn),
            "log-time": shown_time(self.log_time_ms),
            "source-time": source_time,
            "moved-from": None if self.moved_from is None else str(self.moved_from),
            "moved-why": self.moved_why or None,
            "base": None
            if self.base is None
            else {"lsn": str(self.base.lsn), "path": self.base_url, "rows": self.base.manifest.rows},
            "segments": [one.file for one in self.segments],
            "bytes": sum(one.size for one in self.segments),
            "feeds": [
                {
                    "feed": one.feed,
                    "region-id": one.region_id,
                    "incarnation": one.incarnation,
                    "first-sequence-id": one.first_sequence_id,
                    "last-sequence-id": one.last_sequence_id,
                    "lsn": str(one.lsn),
                    "current": one.current,
                }
                for one in self.feeds
            ],
            "gaps": [gap_document(one) for one in (*_gaps_of(self.base), *self.gaps, *self.gaps_beyond)],
            "warnings": list(self.warnings),
            "nearest-before": None if self.nearest_before is None else str(self.nearest_before),
            "nearest-after": None if self.nearest_after is None else str(self.nearest_after),
        }


def plan(archive: Archive, asked: Asked, snapshot: str = "auto", *, oldest: bool = False) -> RestorePlan:
    """Return how to restore what was asked for. ``snapshot``: ``auto``, or the address of a base's folder. With
    ``auto``, a base that can't be used is passed over with a warning, and the next older one serves. ``oldest``: with
    ``auto``, begin as far back as the archive is whole, for who wants the entries themselves; else at the newest base.

    TargetUnreachable, naming the reachable windows, if the archive can't rebuild it; SegmentGap if entries may be missing
    below it; TargetInsideAppend; BaseCorrupt; SegmentCorrupt; IdentityNeeded; ArchiveUnavailable; InvalidRequest.
    """
    named = None
    if snapshot != "auto":
        named = _named_base(archive, snapshot)
        archive = archive.with_base(named[0])
    found = find(archive, asked)
    cut = _cut(archive, asked, found.lsn)
    base, base_url = _base_for(archive, cut.lsn, named, oldest=oldest)
    start = base.lsn if base is not None else ZERO
    points = points_of(archive, start)
    place = points.last_at(cut.lsn)
    gaps = tuple(archive.chain.holes(start, cut.lsn))
    beyond = _gaps_beyond(archive, asked, start, found.lsn, len(gaps))
    nearest = nearest_to(archive, cut.lsn, itself=False)
    timed = points.timed(place) if place is not None else None
    return RestorePlan(
        asked=asked,
        target_lsn=cut.lsn,
        log_time_ms=cut.lsn.committed_at_ms,
        source_time_ms=timed[1] if timed is not None else None,
        moved_from=cut.asked if cut.asked != cut.lsn else None,
        moved_why=str(cut.why) if cut.why is not None and cut.asked != cut.lsn else "",
        base=base,
        base_url=base_url,
        segments=tuple(
            one
            for one in archive.segments
            if one.file in archive.manifests and one.name.last > start < cut.lsn and one.name.first <= cut.lsn
        ),
        feeds=_feeds(archive, points, place, base, cut.lsn),
        gaps=gaps,
        warnings=(
            *found.notes,
            *_untold(nearest),
            *(moved_back(cut.asked, cut.lsn, str(cut.why)) if cut.why is not None else ()),
            *(counted_as_ended(points, place) if place is not None else ()),
            *_warnings(archive, cut, timed, (*_gaps_of(base), *gaps), beyond),
        ),
        nearest_before=nearest.before,
        nearest_after=nearest.after,
        gaps_beyond=beyond,
    )


@dataclass(frozen=True, slots=True)
class _Cut:
    """The last entry that is kept, the last one that is not behind the moment asked for, and why they differ."""

    lsn: Lsn
    asked: Lsn
    why: Torn | None


def _cut(archive: Archive, asked: Asked, wanted: Lsn) -> _Cut:
    """Return the whole point at or below ``wanted``; TargetInsideAppend; TargetUnreachable if there is none.

    A base that was made while a transaction paused is none for the moments until that goes on: an older start serves.
    """
    chosen = archive.chain.start_for(wanted)
    if chosen is None:
        raise refusal(archive, wanted, f"lsn={wanted}")
    start, base = chosen
    points = points_of(archive, start)
    place = points.last_at(wanted)
    entry = points.lsn(place) if place is not None else start
    if asked.to_lsn is not None and not asked.exact_entry and place is not None:
        _check_append(points, place, entry, start)
    whole, why = points.whole_at(place)
    if asked.exact_entry:
        return _Cut(entry, entry, why)
    if whole is not None:
        return _Cut(points.lsn(whole), entry, why)
    if base is not None and points.torn_at_start() and archive.chain.start_for(below(start)) is not None:
        anything = Asked(
            to_time_ms=below(start).committed_at_ms
        )  # nobody named that LSN: an append may be there
        return _Cut(_cut(archive, anything, below(start)).lsn, entry, why)
    if base is None or points.torn_at_start():
        raise TargetUnreachable(
            f"{archive.folder.shown} can't rebuild lsn={entry}: that is {why}, and nothing whole stands before it",
            nearest_after=_text(nearest_to(archive, entry).after),
        )
    return _Cut(start, entry, why)


def _check_append(points: Points, place: Place, entry: Lsn, start: Lsn) -> None:
    append = points.append_around(place)
    if append is None:
        return
    first, last = points.lsn(append[0]), None if append[1] is None else points.lsn(append[1])
    earlier = points.before(append[0])
    before = points.lsn(earlier) if earlier is not None else start if start != ZERO else None
    without = f"lsn={before} leaves it out" if before is not None else "nothing stands before it"
    keeps = f", lsn={last} keeps all of it" if last is not None else ""
    end = f"lsn={last}" if last is not None else "behind the archive's end"
    raise TargetInsideAppend(
        f"lsn={entry} is inside the append from lsn={first} to {end}: {without}{keeps}",
        first_lsn=str(first),
        last_lsn=_text(last),
        before_lsn=_text(before),
    )


def _named_base(archive: Archive, address: str) -> tuple[StoredBase, str]:
    """Read the base at an address: one of the archive's own, or any other folder. BaseCorrupt; ArchiveUnavailable."""
    own = next((one for one in archive.bases if one.path == address.rstrip("/")), None)
    if own is not None:
        return own, archive.folder.where(own.path)
    if unsound := next((one for one in archive.unsound_bases if one.path == address.rstrip("/")), None):
        raise BaseCorrupt(unsound.problem)
    parent, name = place_of(address)
    folder = Folder(parent)
    base = read_base(folder, name)
    check_files(folder, base)
    return base, folder.where(name)


def _base_for(
    archive: Archive, target: Lsn, named: tuple[StoredBase, str] | None, *, oldest: bool
) -> tuple[StoredBase | None, str]:
    if named is None:
        chosen = archive.chain.oldest_for(target) if oldest else archive.chain.start_for(target)
        if chosen is None:
            raise refusal(archive, target, f"lsn={target}")
        base = chosen[1]
        return base, archive.folder.where(base.path) if base is not None else ""
    base, address = named
    if base in archive.chain.misfits:
        raise BaseCorrupt(
            f"the segments do not go on from the base {address}: {archive.chain.why_not(base)}. It is of another log, or of "
            "another history"
        )
    if base.lsn > target:
        raise TargetUnreachable(f"the base {address} is of lsn={base.lsn}, behind the target, lsn={target}")
    if (reach := archive.chain.reach(base.lsn)) < target:
        gaps = [
            one
            for one in archive.chain.gaps()
            if not one.accepted and one.before > base.lsn and one.after < target
        ]
        raise SegmentGap(
            f"from the base {address} (lsn={base.lsn}) the segments go on to lsn={reach} only, and the target is "
            f"lsn={target}" + "".join(f"; entries may be missing {gap_shown(one)}" for one in gaps)
        )
    return base, address


# -- what is to know ---------------------------------------------------------------------------------------------------


def _feeds(
    archive: Archive, points: Points, place: Place | None, base: StoredBase | None, target: Lsn
) -> tuple[KeptFeed, ...]:
    found: dict[tuple[int, str], KeptFeed] = {}
    for one in base.manifest.feeds if base is not None else ():
        found[one.region_id, one.incarnation] = KeptFeed(
            one.feed,
            one.region_id,
            one.incarnation,
            one.first_sequence_id,
            one.sequence_id,
            Lsn.parse(one.lsn),
            False,
        )
    parts: dict[tuple[int, str], list[FeedRange]] = {}
    for part in _ranges(archive, base.lsn if base is not None else ZERO, target):
        parts.setdefault((part.region_id, part.incarnation), []).append(part)
    for history, row in parts.items():
        ended = ((part, _end(points, place, part, target)) for part in reversed(row))
        part, lsn = next((one for one in ended if one[1] is not None), (row[0], None))
        if lsn is None:
            continue
        last = part.first_sequence_id + (lsn.raft_index - part.first_sequence_id & 0xFFFFFFFF)
        known = found.get(history)
        first = row[0].first_sequence_id if known is None else known.first_sequence_id
        found[history] = KeptFeed(part.feed, part.region_id, part.incarnation, first, last, lsn, False)
    newest: dict[str, Lsn] = {}
    for kept in found.values():
        newest[kept.feed] = max(newest.get(kept.feed, ZERO), kept.lsn)
    ordered = sorted(found.values(), key=lambda kept: (kept.feed, kept.lsn))
    return tuple(
        KeptFeed(
            kept.feed,
            kept.region_id,
            kept.incarnation,
            kept.first_sequence_id,
            kept.last_sequence_id,
            kept.lsn,
            kept.lsn == newest[kept.feed],
        )
        for kept in ordered
    )


def _gaps_of(base: StoredBase | None) -> Iterator[Gap]:
    if base is None:
        return
    for one in base.manifest.gaps:
        why = f"{base.path} was made without it"
        yield Gap(Lsn.parse(one.after_lsn), Lsn.parse(one.before_lsn), why, reasons=one.reasons)


def _gaps_beyond(archive: Archive, asked: Asked, start: Lsn, moment: Lsn, before: int) -> tuple[Gap, ...]:
    """Return the accepted gaps up to the moment asked for, but for the first ``before`` ones.

    Where the moment is one of the source, the gap right in front of the first later entry may have held earlier ones.
    """
    by_log = asked.to_lsn is not None or asked.to_time_ms is not None
    return tuple(archive.chain.holes(start, moment if by_log else above(moment))[before:])


def _ranges(archive: Archive, start: Lsn, target: Lsn) -> Iterator[FeedRange]:
    """Yield what the segments hold between the two, that of one feed in LSN order."""
    for one in archive.segments:
        if one.file in archive.manifests and one.name.last > start and one.name.first <= target:
            yield from between(archive.manifests[one.file].feeds, one.name, start, target)


def _end(points: Points, place: Place | None, part: FeedRange, target: Lsn) -> Lsn | None:
    """Return the LSN of the last entry of a range that is kept; None if there is none above the base."""
    lsn = Lsn.parse(part.last_lsn)
    if lsn <= target:
        return lsn
    last = points.last_of(part.region_id, place) if place is not None else None
    return points.lsn(last) if last is not None else None


def _untold(nearest: Nearest) -> Iterator[str]:
    if nearest.problem:
        yield f"which points are next to the target is not known: {nearest.problem}"


def _warnings(
    archive: Archive,
    cut: _Cut,
    timed: tuple[Lsn, int] | None,
    gaps: tuple[Gap, ...],
    beyond: tuple[Gap, ...],
) -> Iterator[str]:
    for gap in gaps:
        yield f"entries may be missing {gap_shown(gap)}; that was accepted: {'; '.join(gap.told)}"
    for gap in beyond:
        yield (
            f"lsn={cut.lsn} is the last entry kept because what came behind it, up to the moment asked for, is lost: "
            f"entries may be missing {gap_shown(gap)}; that was accepted: {'; '.join(gap.told)}"
        )
    if cut.why is not None and cut.asked == cut.lsn:
        yield f"lsn={cut.lsn} is {cut.why}: what is restored is not what the source ever had"
    if timed is not None and (lag := timed[0].committed_at_ms - timed[1]) > LAG_MAX_MS:
        yield (
            f"the publisher was {lag / 1000:.1f} s behind: the last entry with a source time, lsn={timed[0]}, is of "
            f"{shown_time(timed[1])} at the source"
        )
    for problem in archive.damaged:
        yield f"{problem}: it is left out, and what it tells of counts as missing"
    for unsound in archive.unsound_bases:
        yield f"a base snapshot can't be used: {unsound.problem}"
    for misfit in archive.chain.misfits:
        yield f"the base {misfit.path} is not used: {archive.chain.why_not(misfit)}"


def _text(lsn: Lsn | None) -> str | None:
    return None if lsn is None else str(lsn)
