"""Where the log may be cut, as the drill finds it: a walk over entries, one by one. Nothing of it serves a plan.

A cut is whole if no append and no transaction has entries on both its sides. A transaction is a name that entries of one
history carry, up to its last entry, however long it pauses. Where that is missing it ends with the last entry that there is,
or where the feed goes on under another history; but until the log went on for ten minutes nobody knows what follows.

Manifests tell in which segments such a name goes on. The names of those that do not are looked for in what is behind them,
no farther than a plan looks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from headrace.archive.files.segments import Stored
from headrace.archive.moments.catalogue import Archive
from headrace.entries.lsn import Lsn
from headrace.pipeline.drill.reading import entries_of
from headrace.wire.kwal_manifest import FeedRange

PAUSE_MS: Final = 600_000
LOOK_SEGMENTS: Final = 16
"""How far behind a segment that does not tell its names the rest of them is looked for,"""
LOOK_MS: Final = 86_400_000
"""and for how much of the log's time: both as :mod:`headrace.archive.moments.links` has it."""
_BACK: Final = 4
"""How many times further back each look goes than the one before."""
_History = tuple[int, str]
_Name = tuple[_History, bytes]


class Entry(NamedTuple):
    """What says where the log may be cut. ``history``: region and incarnation. ``tx``: empty for none.

    ``append_end``: the last one of its append, or of its history. ``anew``: its transaction is another one than that of the
    same name before it.
    """

    lsn: Lsn
    history: _History
    append_end: bool
    tx: bytes
    tx_last: bool
    anew: bool = False


def last_whole(archive: Archive, start: Lsn, asked: Lsn) -> Lsn:
    """Return the last LSN at or below ``asked`` behind which the log is whole; ``start``, which is whole, if there is none.

    Reads what is twenty minutes before ``asked``, where its transactions begin and go on, and further back only where no
    whole cut is there. SegmentCorrupt, IdentityNeeded, ArchiveUnavailable.
    """
    reach = archive.chain.reach(start)
    segments = [
        one
        for one in archive.segments
        if one.file in archive.manifests and one.name.last > start and one.name.first <= reach
    ]
    if not segments:
        return start
    told = _Told(archive, segments, [one for one in archive.segments if one.name.first > reach])
    over = _ends_of_histories(archive, segments)
    end = max((at for at, one in enumerate(segments) if one.name.first <= asked), default=0)
    begin, back = end, 2 * PAUSE_MS
    while True:
        from_ms = asked.committed_at_ms - back
        while begin and segments[begin].name.first.committed_at_ms > from_ms:
            begin -= 1
        entries = _entries(archive, told, told.around(begin, end), start, over)
        end_ms = segments[-1].name.last.committed_at_ms
        found = whole_below(entries, asked, over, told.beyond, end_ms=end_ms)
        if found is not None and found >= segments[begin].name.first:
            return found
        if not begin:
            return start
        back *= _BACK


def own_target(earlier: Archive, later: Archive, start: Lsn, asked: Lsn, found: Lsn) -> Lsn:
    """Return the last whole LSN at or below ``asked``, by a walk of the archive as it is ``later``.

    That is ``found``, too, if the archive grew since it was read ``earlier`` and ``found`` is right for what it was in
    between: entries that came tell how what was open at its end went on. Raises as :func:`last_whole` does.
    """
    whole = last_whole(later, start, asked)
    if whole != found and last_whole(earlier, start, asked) <= found <= whole:
        return found
    return whole


def whole_below(
    entries: Iterable[Entry],
    asked: Lsn,
    over: Iterable[_History] = (),
    beyond: Collection[_Name] = (),
    *,
    end_ms: int,
) -> Lsn | None:
    """Return the last LSN of the entries, at or below ``asked``, behind which they may be cut; None if there is none.

    ``over``: histories after which their feed goes on with another one. ``beyond``: names that the archive has more of,
    behind the entries. ``end_ms``: log time of the log's last entry. No more of the entries is read than must be.
    """
    waiting: dict[int, tuple[_Name, int]] = {}  # by number, the newest last: whose it is, and its log time
    newest: dict[_Name, int] = {}
    cuts: list[tuple[int, Lsn]] = []
    last = 0
    for number, one in enumerate(entries, 1):
        name = one.history, one.tx
        if one.tx and (before := newest.pop(name, None)) is not None and not one.anew:
            del waiting[before]
            _tear(cuts, before)
        if one.lsn <= asked:
            last = number
        elif not waiting or next(iter(waiting)) > last:
            break
        if one.tx and not one.tx_last:
            waiting[number], newest[name] = (name, one.lsn.committed_at_ms), number
        if one.lsn <= asked and one.append_end:
            # Whatever tears this one tears the one before it, too, unless it began between them.
            if cuts and (not waiting or cuts[-1][0] >= next(reversed(waiting))):
                cuts.pop()
            cuts.append((number, one.lsn))
    ended = set(over)
    for first, (name, ms) in waiting.items():
        goes_on = name in beyond and newest.get(name) == first
        if goes_on or (name[0] not in ended and end_ms - ms <= PAUSE_MS):
            _tear(cuts, first)
    return cuts[-1][1] if cuts else None


def _tear(cuts: list[tuple[int, Lsn]], first: int) -> None:
    """Take the cuts away that are behind the entry ``first``, which something at or behind the newest cut goes on from."""
    while cuts and cuts[-1][0] >= first:
        cuts.pop()


class _Told:
    """What manifests tell of transactions: which segments hold more of what another one leaves open.

    ``untold``: (segment, history) that leave open what no manifest names, or of which one behind does not tell. ``beyond``:
    names of which the next segment with more is behind a gap that ends the ``segments``, one of ``behind``.
    """

    def __init__(self, archive: Archive, segments: Sequence[Stored], behind: Sequence[Stored]) -> None:
        self.segments = segments
        self.beyond: set[_Name] = set()
        self.untold: set[tuple[int, _History]] = set()
        self._joined: set[tuple[int, int]] = set()
        left: dict[_History, dict[str, int]] = {}
        there = [one for one in behind if one.file in archive.manifests]
        for at, stored in enumerate([*segments, *there]):
            parts = archive.manifests[stored.file].feeds
            for part in sorted(parts, key=lambda part: Lsn.parse(part.first_lsn)):
                history = part.region_id, part.incarnation
                mine = left.setdefault(history, {})
                if part.continued is None:
                    self.untold |= {(one, history) for one in mine.values()}
                    mine.clear()
                goes_on = {name: mine.pop(name) for name in part.continued or () if name in mine}
                self._joined |= {(one, at) for one in goes_on.values()}
                if at >= len(segments):
                    inside = (name for name, one in goes_on.items() if one < len(segments))
                    self.beyond |= {(history, bytes.fromhex(name)) for name in inside}
                names = () if part.ends_whole else part.left_open
                if names is None:
                    self.untold.add((at, history))
                mine |= dict.fromkeys(names or (), at)

    def around(self, begin: int, end: int) -> list[int]:
        """Return the segments ``begin`` … ``end``, and those with more of what is open in them or behind ``end``."""
        found = set(range(begin, end + 1))
        for left, at in self._joined:
            if left <= end and at >= begin:
                found |= {left, at}.intersection(range(len(self.segments)))
        for left, _ in self.untold:
            if begin - LOOK_SEGMENTS <= left <= end:
                found |= {at for at in range(left, left + LOOK_SEGMENTS + 1) if self.is_near(left, at)}
        return sorted(found)

    def is_near(self, left: int, at: int, ms: int | None = None) -> bool:
        """Tell whether ``at`` is looked at for what ``left`` leaves open, at ``ms`` (default: at its end)."""
        if at >= len(self.segments) or at - left > LOOK_SEGMENTS:
            return False
        since = self.segments[left].name.last.committed_at_ms if ms is None else ms
        return self.segments[at].name.first.committed_at_ms - since <= LOOK_MS

    def goes_on(self, part: FeedRange, name: bytes, at: int, left: int, ms: int) -> bool:
        """Tell whether a name in ``at`` is of the transaction that ``left`` leaves open with an entry of ``ms``."""
        if name.hex() in (part.continued or ()):
            return True
        looked = part.continued is None or (left, (part.region_id, part.incarnation)) in self.untold
        return looked and self.is_near(left, at, ms)


def _entries(
    archive: Archive, told: _Told, numbers: Iterable[int], start: Lsn, over: dict[_History, Lsn]
) -> Iterator[Entry]:
    left: dict[_Name, tuple[int, int]] = {}  # in which segment, and the log time there
    for at in numbers:
        for lsn, part, message in entries_of(archive, told.segments[at]):
            if lsn <= start:
                continue
            history = part.region_id, part.incarnation
            ends = message.append_end or over.get(history) == lsn
            tx, anew = message.source_tx, False
            if tx:
                before = left.pop((history, tx), (at, 0))
                anew = before[0] != at and not told.goes_on(part, tx, at, *before)
                if not message.tx_last:
                    left[history, tx] = at, lsn.committed_at_ms
            yield Entry(lsn, history, ends, tx, message.tx_last, anew)


def _ends_of_histories(archive: Archive, segments: Iterable[Stored]) -> dict[_History, Lsn]:
    """Return the last LSN of each history after which its feed goes on with another one."""
    found: dict[_History, Lsn] = {}
    newest: dict[int, tuple[str, Lsn]] = {}
    ranges = [part for stored in segments for part in archive.manifests[stored.file].feeds]
    for part in sorted(ranges, key=lambda part: Lsn.parse(part.first_lsn)):
        before = newest.get(part.region_id)
        if before is not None and before[0] != part.incarnation:
            found[part.region_id, before[0]] = before[1]
        newest[part.region_id] = part.incarnation, Lsn.parse(part.last_lsn)
    return found
