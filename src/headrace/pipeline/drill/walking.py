"""Where the log may be cut, as the drill finds it: a walk over entries, one by one. Nothing of it serves a plan.

A cut is whole if no append and no transaction has entries on both its sides. A transaction is a name that entries of one
history carry, up to its last entry. Where that is missing it ends once nothing more of it comes for ten minutes of the
log's time, or where the feed goes on under another history; up to there nobody knows what follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from headrace.archive.files.segments import Stored
from headrace.archive.moments.catalogue import Archive
from headrace.entries.lsn import Lsn
from headrace.pipeline.drill.reading import entries_of

PAUSE_MS: Final = 600_000
_BACK: Final = 4
"""How many times further back each look goes than the one before."""
_History = tuple[int, str]


class Entry(NamedTuple):
    """What says where the log may be cut. ``history``: region and incarnation. ``tx``: empty for none.

    ``append_end``: the last one of its append, or of its history.
    """

    lsn: Lsn
    history: _History
    append_end: bool
    tx: bytes
    tx_last: bool


def last_whole(archive: Archive, start: Lsn, asked: Lsn) -> Lsn:
    """Return the last LSN at or below ``asked`` behind which the log is whole; ``start``, which is whole, if there is none.

    Reads what is ten minutes around ``asked``, and further back only where no whole cut is there. SegmentCorrupt,
    IdentityNeeded, ArchiveUnavailable.
    """
    reach = archive.chain.reach(start)
    segments = [
        one
        for one in archive.segments
        if one.file in archive.manifests and one.name.last > start and one.name.first <= reach
    ]
    over = _ends_of_histories(archive, segments)
    begin = max((at for at, one in enumerate(segments) if one.name.first <= asked), default=0)
    back = 2 * PAUSE_MS
    while True:
        from_ms = asked.committed_at_ms - back
        while begin and segments[begin].name.first.committed_at_ms > from_ms:
            begin -= 1
        found = whole_below(_entries(archive, segments[begin:], start, over), asked, over)
        if not begin:
            return found if found is not None else start
        # Of what is open there, an entry is in the ten minutes before.
        if (
            found is not None
            and found.committed_at_ms - PAUSE_MS > segments[begin].name.first.committed_at_ms
        ):
            return found
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


def whole_below(entries: Iterable[Entry], asked: Lsn, over: Iterable[_History] = ()) -> Lsn | None:
    """Return the last LSN of the entries, at or below ``asked``, behind which they may be cut; None if there is none.

    ``over``: histories after which their feed goes on with another one. No more of the entries is read than must be.
    """
    waiting: dict[tuple[_History, bytes], tuple[int, int]] = {}  # the newest last: its number and log time
    cuts: list[tuple[int, Lsn]] = []
    torn: list[tuple[int, int]] = []
    number = last = now = 0
    for number, one in enumerate(entries, 1):
        now = one.lsn.committed_at_ms
        if one.tx and (before := waiting.pop((one.history, one.tx), None)) and now - before[1] <= PAUSE_MS:
            torn.append((before[0], number))
        while waiting and now - next(iter(waiting.values()))[1] > PAUSE_MS:
            del waiting[next(iter(waiting))]
        if one.lsn > asked:
            if not waiting or next(iter(waiting.values()))[0] > last:
                break
        else:
            last = number
        if one.tx and not one.tx_last:
            waiting[one.history, one.tx] = number, now
        if one.lsn <= asked and one.append_end:
            if not waiting:
                cuts, torn = [], []
            cuts.append((number, one.lsn))
    ended = set(over)
    torn += [(first, number + 1) for (history, _), (first, _) in waiting.items() if history not in ended]
    for at, lsn in reversed(cuts):
        if not any(first <= at < end for first, end in torn):
            return lsn
    return None


def _entries(
    archive: Archive, segments: Iterable[Stored], start: Lsn, over: dict[_History, Lsn]
) -> Iterator[Entry]:
    for stored in segments:
        for lsn, part, message in entries_of(archive, stored):
            if lsn > start:
                history = part.region_id, part.incarnation
                ends = message.append_end or over.get(history) == lsn
                yield Entry(lsn, history, ends, message.source_tx, message.tx_last)


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
