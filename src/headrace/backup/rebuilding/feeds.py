"""Which feeds a rebuilt journal has, which history of each, and where each begins and ends. Pure.

An archive may hold several histories of a feed: the server was rebuilt before, repaired, or begun anew with an empty folder,
where numbers of feeds are given a second time. A journal has one history of a feed. So the newest one at the target goes in,
with those before it that it goes on from: where it began, by the server's own word, in them. Where entries are missing, the
journal begins behind that: also where only the server's word says that there were any. What is left out is named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from headrace.backup.rebuilding.ends import LostEnd, Said, lost_end, said_of
from headrace.backup.rebuilding.parts import (
    Hole,
    Part,
    beginnings,
    breaks_of,
    holes_of,
    joined_from,
    line_of,
    parts_of,
    registries,
)
from headrace.entries.lsn import ZERO, Lsn
from headrace.wire.base_manifest import BaseManifest
from headrace.wire.kwal_manifest import Manifest, RegisteredFeed
from headrace.wire.lost_lsns import LostLsns

_U32_MAX = (1 << 32) - 1
_Key = tuple[str, int, str]
"""Feed, region id, incarnation."""


class Why(StrEnum):
    """Why archived entries up to the target are not in the journal."""

    BASE = "below-the-base"
    GAP = "before-a-gap"
    OLDER = "older-history"
    REPLACED = "another-feed-has-its-name-or-number"


class LeftOut(NamedTuple):
    """Entries of one history of a feed that are not in the journal: sequence ids, inclusive. They stay in the archive."""

    feed: str
    incarnation: str
    first_sequence_id: int
    last_sequence_id: int
    why: Why


class Place(NamedTuple):
    """An entry of a feed."""

    sequence_id: int
    lsn: Lsn


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFeed:
    """A feed of the journal. ``incarnation``: the newest archived one at the target, empty if it has no entries;
    ``histories``: that one and those that it goes on from.

    ``first``: its first entry that is in the journal, 0 if there is none. ``below``: its newest entry that is not, None if
    there never was one; ``began``: where it began, if there was. ``registered``: what the server knew of it, None if the
    archive does not say. ``epoch``: the newest that the archive knows. ``archived_last``: its newest archived entry, at the
    target or behind, 0 for none; ``known_next``: what the server said its next entry would be, 0 if it never did. ``holes``:
    entries between where it began (1 if nobody says) and the target that the archive does not have.
    """

    feed: str
    region_id: int
    incarnation: str = ""
    histories: frozenset[str] = frozenset()
    first: int = 0
    below: Place | None = None
    began: int = 0
    registered: RegisteredFeed | None = None
    epoch: int = 0
    archived_last: int = 0
    known_next: int = 0
    holes: tuple[Hole, ...] = ()


@dataclass(slots=True)
class Selection:
    """What a journal is made of: entries above ``after`` of the segments from the ``since``-th on, of ``feeds``, by region.

    ``next_region_id``: a number above all that were given. ``archive_end``: the archive's last LSN. ``lost``: what the
    server said that rebuilds before had lost.
    """

    after: Lsn
    since: int
    feeds: dict[int, JournalFeed]
    next_region_id: int
    archive_end: Lsn
    left_out: list[LeftOut] = field(default_factory=list)
    lost: tuple[LostLsns, ...] = ()


def select(
    manifests: Sequence[Manifest], archived: Sequence[Manifest], base: BaseManifest | None, target: Lsn
) -> Selection:
    """Return what a journal that ends at ``target`` is made of.

    ``manifests``: those of the plan's segments, in order; ``archived``: those of the whole archive. RestoreInexact where the
    manifests contradict each other.
    """
    after = Lsn.parse(base.lsn) if base is not None else ZERO
    parts = [part for part in parts_of(manifests, base) if part.first <= target]
    kept = _newest(parts)
    begun = beginnings(manifests, base)
    mine = {
        region: line_of([part for part in parts if (part.region_id, part.feed) == (region, feed)], begun)
        for region, (feed, _) in kept.items()
    }
    taken = {part for row in mine.values() for part in row}
    others = {(part.feed, part.region_id) for part in parts if part not in taken}
    alone = {region for region, row in mine.items() if (row[0].feed, region) not in others}
    breaks, listed = breaks_of(manifests, base), _newest_list(manifests, base)
    since, holes = _joined(mine, begun, breaks, alone)
    ends = _lost_ends(mine, _empty(mine, listed), said_of(manifests, base), breaks, archived)
    since = max([since, *(end.since for end in ends.values())])
    if since:
        after = max(after, Lsn.parse(manifests[since - 1].last_lsn))
    registry = _registry(manifests, base)
    known = _Known([one for registry in registries(archived, base) for one in registry])
    floor = _floor(mine.values(), since)
    archived_ends = _archived_ends(archived)
    feeds: dict[int, JournalFeed] = {}
    for region, row in mine.items():
        feed, incarnation = kept[region]
        registered = registry.get((feed, region))
        began = _began(row, begun)
        first = _first(row, since)
        is_cut = any(hole.last_id < first for hole in holes[region])
        end = ends.get(region)
        below = _below(row, since, first, floor if is_cut else None)
        feeds[region] = JournalFeed(
            feed=feed,
            region_id=region,
            incarnation=incarnation,
            histories=frozenset(part.incarnation for part in row),
            first=first,
            below=_behind(end.hole, below.lsn) if end is not None and below is not None else below,
            began=began,
            holes=(*holes[region], *([end.hole] if end is not None else [])),
            registered=registered,
            epoch=known.epoch(feed, region),
            archived_last=archived_ends.get((feed, region, incarnation), row[-1].last_id),
            known_next=known.next_id(feed, region, incarnation),
        )
    for one in _empty(mine, listed):
        feeds[one.region_id] = _without_entries(one, known, ends.get(one.region_id), floor)
    return Selection(
        after,
        since,
        feeds,
        1 + max([0, *(part.region_id for part in parts_of(archived, base)), *known.regions()]),
        Lsn.parse(archived[-1].last_lsn) if archived else after,
        list(_left_out(parts, taken, kept, since)),
        tuple(_lost(registries(archived, base), [part.last for part in parts])),
    )


def _lost(said: Sequence[Sequence[RegisteredFeed]], archived: Sequence[Lsn]) -> Iterator[LostLsns]:
    """Yield what rebuilds before had lost, by the server's word.

    An agent may have held entries, and have written them after the rebuild: what is in the archive after all is not lost.
    """
    for one in {lost for registry in said for feed in registry for lost in feed.lost_lsns}:
        after, before = Lsn.parse(one.after), Lsn.parse(one.before)
        yield LostLsns(str(max([after, *(lsn for lsn in archived if lsn < before)])), one.before)


def _newest(parts: Sequence[Part]) -> dict[int, tuple[str, str]]:
    """Return the newest history of each region's feed; of two regions with feeds of one name the newer one's."""
    found: dict[int, tuple[str, str]] = {}
    places: dict[str, int] = {}
    for part in parts:
        found[part.region_id] = part.history
        places[part.feed] = part.region_id
    return {region: history for region, history in found.items() if places[history[0]] == region}


def _joined(
    mine: Mapping[int, Sequence[Part]],
    begun: Mapping[tuple[str, int, str], int],
    breaks: Sequence[int],
    alone: Collection[int],
) -> tuple[int, dict[int, tuple[Hole, ...]]]:
    """Return the number of the first segment from which on nothing of any feed is missing, and what is, by region.

    Of a feed's first entries nothing tells where in the log they were. Entries of other feeds between them and what follows
    must not be read as if they had not been there, so the last break before the feed counts.
    """
    torn = max((joined_from(row) for row in mine.values()), default=0)
    breaks = sorted({*breaks, *([torn] if torn else [])})
    since, holes = torn, {}
    for region, row in mine.items():
        first, before = row[0], [number for number in breaks if number <= row[0].segment]
        unsure = bool(before) or region not in alone
        due = _began(row, begun) or (1 if unsure else first.first_id)
        holes[region] = holes_of(row, due)
        if first.segment >= 0 and due < first.first_id:
            since = max([since, *before])
    return since, holes


def _first(row: Sequence[Part], since: int) -> int:
    """Return the sequence id of the first entry in the journal; 0 for none."""
    used = next((part for part in row if part.segment >= since), None)
    if used is None:
        return 0
    based = [part for part in row if part.segment < 0 and not since]
    first = max(based[-1].last_id + 1, used.first_id) if based else used.first_id
    return first if row[-1].last_id >= first else 0


def _floor(rows: Iterable[Sequence[Part]], since: int) -> int:
    """Return a ``global_ts`` below that of all entries of the journal."""
    return min((part.first.global_ts for row in rows for part in row if part.segment >= since), default=1) - 1


def _below(row: Sequence[Part], since: int, first: int, floor: int | None) -> Place | None:
    """Return the newest entry that is not in the journal; None if there is none.

    ``floor``: None if ``row`` has all there ever were. Else the entry below is not in the archive, and its LSN is put there:
    below the journal's first entry, so that nothing in the journal is taken for dropped.
    """
    gone = [part for part in row if part.segment < since]
    if gone:
        last = gone[-1]
        if not first or last.last_id + 1 == first:
            return Place(last.last_id, last.last)
        return Place(first - 1, Lsn(last.last.global_ts, last.region_id, (first - 1) & _U32_MAX))
    if first <= 1 or floor is None:
        return None
    return Place(first - 1, Lsn(floor, row[0].region_id, (first - 1) & _U32_MAX))


def _began(row: Sequence[Part], begun: Mapping[tuple[str, int, str], int]) -> int:
    """Return where the feed began, 0 if nobody says."""
    first, newest = row[0], row[-1]
    told = begun.get((newest.feed, newest.region_id, newest.incarnation), 0)
    return first.first_id if first.segment < 0 else told


def _registry(
    manifests: Sequence[Manifest], base: BaseManifest | None
) -> dict[tuple[str, int], RegisteredFeed]:
    """Return the newest that the server said of each feed."""
    said = [one for registry in registries(manifests, base) for one in registry]
    return {(one.feed, one.region_id): one for one in said}


def _newest_list(manifests: Sequence[Manifest], base: BaseManifest | None) -> Sequence[RegisteredFeed]:
    """Return the newest list of the server's feeds that there is."""
    return next((registry for registry in reversed(registries(manifests, base)) if registry), ())


class _Known:
    """What all that is archived says of epochs, numbers and next sequence ids, whatever the target is."""

    def __init__(self, said: Sequence[RegisteredFeed]) -> None:
        """``said``: what all registries say, oldest first."""
        self._said = said

    def regions(self) -> Iterator[int]:
        return (one.region_id for one in self._said)

    def epoch(self, feed: str, region: int) -> int:
        """The newest epoch of whatever had this name or this number."""
        return max(
            (one.epoch for one in self._said if one.feed == feed or one.region_id == region), default=0
        )

    def next_id(self, feed: str, region: int, incarnation: str) -> int:
        said = (one for one in reversed(self._said) if (one.feed, one.region_id) == (feed, region))
        found = next((one for one in said if one.incarnation in {"", incarnation}), None)
        return found.next_sequence_id if found is not None else 0


def _empty(mine: Mapping[int, Sequence[Part]], listed: Sequence[RegisteredFeed]) -> list[RegisteredFeed]:
    """Return the feeds that the server knew and of which nothing is in the archive up to the target."""
    taken, found = {row[0].feed for row in mine.values()}, dict[str, RegisteredFeed]()
    regions = set(mine)
    for one in listed:
        if one.region_id not in regions and one.feed not in taken:
            found.setdefault(one.feed, one)
            regions.add(one.region_id)
    return list(found.values())


def _without_entries(
    registered: RegisteredFeed, known: _Known, end: LostEnd | None, floor: int
) -> JournalFeed:
    feed, region = registered.feed, registered.region_id
    return JournalFeed(
        feed=feed,
        region_id=region,
        below=_behind(end.hole, Lsn(floor, region, 0)) if end is not None else None,
        began=end.hole.first_id if end is not None else 0,
        registered=registered,
        epoch=known.epoch(feed, region),
        known_next=known.next_id(feed, region, registered.incarnation),
        holes=(end.hole,) if end is not None else (),
    )


def _lost_ends(
    mine: Mapping[int, Sequence[Part]],
    empty: Sequence[RegisteredFeed],
    said: Sequence[Said],
    breaks: Sequence[int],
    archived: Sequence[Manifest],
) -> dict[int, LostEnd]:
    """Return what gaps took of the ends of feeds, by region."""
    told, runs = defaultdict[_Key, list[Said]](list), defaultdict[_Key, list[int]](list)
    for one in said:
        told[one.feed.feed, one.feed.region_id, one.feed.incarnation].append(one)
    for run in (run for manifest in archived for run in manifest.feeds):
        runs[run.feed, run.region_id, run.incarnation].append(run.first_sequence_id)
    keys = [(row[-1].feed, region, row[-1].incarnation) for region, row in mine.items()]
    keys += [(one.feed, one.region_id, one.incarnation) for one in empty]
    found = {}
    for feed, region, incarnation in keys:
        row = mine.get(region)
        heard = (one for history in {"", incarnation} for one in told[feed, region, history])
        end = lost_end(
            row[-1] if row is not None else None,
            sorted(heard, key=lambda one: one.segment),
            breaks,
            runs[feed, region, incarnation],
        )
        if end is not None:
            found[region] = end
    return found


def _behind(hole: Hole, lsn: Lsn) -> Place:
    """Return the last entry of a hole, put at the time of ``lsn``."""
    return Place(hole.last_id, Lsn(lsn.global_ts, lsn.region_id, hole.last_id & _U32_MAX))


def _archived_ends(archived: Sequence[Manifest]) -> dict[tuple[str, int, str], int]:
    """Return the newest archived sequence id of each history."""
    found: dict[tuple[str, int, str], int] = {}
    for run in (run for manifest in archived for run in manifest.feeds):
        key = run.feed, run.region_id, run.incarnation
        found[key] = max(found.get(key, 0), run.last_sequence_id)
    return found


def _left_out(
    parts: Sequence[Part], taken: Collection[Part], kept: dict[int, tuple[str, str]], since: int
) -> Iterator[LeftOut]:
    names = {feed for feed, _ in kept.values()}
    rows: dict[tuple[str, str, Why], list[Part]] = {}
    for part in parts:
        if part in taken:
            if part.segment >= since:
                continue
            why = Why.BASE if part.segment < 0 else Why.GAP
        else:
            is_same = kept.get(part.region_id, ("", ""))[0] == part.feed
            why = Why.OLDER if is_same or part.feed in names else Why.REPLACED
        rows.setdefault((*part.history, why), []).append(part)
    for (feed, incarnation, why), row in rows.items():
        yield LeftOut(feed, incarnation, row[0].first_id, row[-1].last_id, why)
