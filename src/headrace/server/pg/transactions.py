"""Source transactions along the journal: which are open at a place, and which end in a frame. Pure.

A transaction is a name that entries of a feed carry, up to its last entry, whoever writes between. One without a last entry
ends where the journal, by its own time, has nothing more of it for :data:`PAUSE_MAX_MS`. Entries without a name are of one
transaction with their neighbours in the frame, as a frame is one append.

No entry waits for its transaction without end: once it is :data:`AGE_MAX_MS` old, or its feed has had
:data:`PARTS_MAX` further parts of open transactions, it ends as a transaction of its own with those that are as old.

In which frame an entry ends follows from what the journal holds from that entry on: of its own feed, and the time of
every other frame. Not from where the reading began, nor from what a stream may see or wants. So a stream that begins
anew, even with other rights and filters, ends at or below its start only what the one before it had ended there too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, NamedTuple

import google_crc32c

from headrace.entries.hlc import to_ms
from headrace.entries.lsn import Lsn
from headrace.wire import varint
from headrace.wire.entry import message_of
from headrace.wire.frame import Frame, FrameKind

PAUSE_MAX_MS: Final = 600_000
"""As restores have it: see ``archive/moments``."""
AGE_MAX_MS: Final = 3_600_000
"""An hour of the journal's time: what a name without a last entry can hold of it, whoever writes on under that name."""
PARTS_MAX: Final = 10_000
"""Of a feed: bounds what is remembered of it to a few megabytes. That is ten million rows in appends of 1,000.

Where a filter takes single entries of an append, each that it leaves costs four bytes more.
"""
_SOURCE_TX: Final = varint.tag(101, 2)


class Run(NamedTuple):
    """Entries of a frame that stand side by side and are of one transaction: ``first`` … ``last``.

    ``tx``: its name, empty for none. ``ends``: the last of them is the transaction's last one.
    """

    first: int
    last: int
    tx: bytes
    ends: bool


class Part(NamedTuple):
    """Entries of a transaction in the frame at ``position``. ``wanted``: the indices that pass the filters; None: all."""

    position: int
    first: int
    last: int
    wanted: Sequence[int] | None


class Transaction(NamedTuple):
    """A transaction that has ended: its parts in the order of the journal, the last one in the frame that ends it.

    One that ends by silence has no part in that frame.
    """

    region_id: int
    xid: int
    parts: Sequence[Part]


_Key = tuple[int, bytes]
"""A feed's region id, and a transaction's name in it."""
_Place = tuple[int, int]
"""A part's frame, by its position, and its first entry there."""


class _Waiting(NamedTuple):
    """A part whose transaction is open. ``number``: how many such parts its feed had up to it; ``ms``: its frame's time.

    ``below``: the last LSN before its frame.
    """

    key: _Key
    part: Part
    number: int
    ms: int
    below: Lsn


@dataclass(slots=True)
class _Open:
    """What waits of a transaction, oldest first. ``ms``: log time of the newest frame with an entry of it, wanted or not."""

    ms: int
    waiting: deque[_Waiting] = field(default_factory=deque)


@dataclass(slots=True)
class _Feed:
    """``parts``: how many of open transactions were met; ``waiting``: those that wait, oldest first."""

    parts: int = 0
    waiting: OrderedDict[_Place, _Waiting] = field(default_factory=OrderedDict)


def runs_of(frame: Frame) -> list[Run]:
    """Return the runs of a frame's entries, in order."""
    count = frame.header.count
    if frame.header.kind != FrameKind.ENTRIES or not count:
        return []
    if not _names_transactions(frame):  # nothing is to be looked at one by one
        return [Run(0, count - 1, b"", True)]
    found: list[Run] = []
    for index, stored in enumerate(frame.entries()):
        entry = message_of(stored)
        name, last = entry.source_tx, bool(entry.source_tx and entry.tx_last)
        before = found[-1] if found else None
        if before is not None and before.tx == name and (not before.ends or not name):
            found[-1] = Run(before.first, index, name, last or not name)
        else:
            found.append(Run(index, index, name, last or not name))
    return found


def _names_transactions(frame: Frame) -> bool:
    """Tell whether an entry of a frame names its transaction.

    Checksums and values may hold the tag's bytes by chance, so an entry that holds them is looked at. One byte is
    looked for: that is several times as fast as two.
    """
    body, at = bytes(frame.body), 0
    first, following = _SOURCE_TX
    starts: list[int] = []
    while (at := body.find(first, at)) >= 0:
        at += 1
        if at < len(body) and body[at] == following:
            starts = starts or list(accumulate(frame.lengths, initial=0))
            entry = bisect_right(starts, at) - 1
            if message_of(frame.body[starts[entry] : starts[entry + 1]]).source_tx:
                return True
            at = starts[entry + 1]
    return False


def xid_of(region_id: int, name: bytes, position: int) -> int:
    """Return a transaction's number (u32, not 0): of its name in its feed, or of where it begins where it has none.

    ``position``: its frame's, and as many more as entries of the frame come before it.
    """
    data = region_id.to_bytes(4, "big") + (name or position.to_bytes(8, "big"))
    return int(google_crc32c.value(data)) or 1


class Transactions:
    """Those that are open at a place of the journal; :meth:`follow` and :meth:`pass_by` move it on by a frame."""

    def __init__(self, walked: Lsn) -> None:
        """``walked``: the last LSN before the first frame that will be followed."""
        self._open: OrderedDict[_Key, _Open] = OrderedDict()
        """Those of which something came latest stand last."""
        self._waiting: OrderedDict[_Place, _Waiting] = OrderedDict()
        """All parts that wait, oldest first."""
        self._feeds: dict[int, _Feed] = {}
        self._walked = walked

    @property
    def walked(self) -> Lsn:
        """The last LSN that was passed."""
        return self._walked

    @property
    def hold(self) -> Lsn:
        """The last LSN of which nothing is needed any more: whoever begins behind it meets all that waits."""
        return next(iter(self._waiting.values())).below if self._waiting else self._walked

    @property
    def waiting(self) -> int:
        """How many parts of open transactions are remembered."""
        return len(self._waiting)

    def pass_by(self, frame: Frame) -> list[Transaction]:
        """Move past a frame of a feed of which nothing is wanted; return the transactions that its time ends."""
        header = frame.header
        if header.kind != FrameKind.ENTRIES or not header.count:
            return []
        ended = self._overdue(to_ms(header.global_ts))
        self._walked = header.lsn(header.count - 1)
        return ended

    def skip(self, walked: Lsn) -> None:
        """Go on behind what can't be read, up to ``walked``. What is open stays open: its rest may stand behind that."""
        self._walked = max(self._walked, walked)

    def follow(self, frame: Frame, wanted: Sequence[int] | None = None) -> list[Transaction]:
        """Move past a frame; return the transactions that end in it, in that order, as far as something of them is wanted.

        ``wanted``: the indices of its entries that pass the filters, ascending; None: all.
        """
        header = frame.header
        now_ms = to_ms(header.global_ts)
        ended = self._overdue(now_ms)
        for run in runs_of(frame):
            part = Part(header.position, run.first, run.last, _within(wanted, run))
            mine = [part] if part.wanted is None or part.wanted else []
            key = (header.region_id, run.tx)
            if not run.ends:
                ended += self._keep(key, mine, now_ms)
            elif parts := [*(self._end(key) if run.tx else ()), *mine]:
                ended.append(Transaction(header.region_id, xid_of(*key, header.position + run.first), parts))
        if header.count:
            self._walked = header.lsn(header.count - 1)
        return ended

    def _keep(self, key: _Key, parts: Sequence[Part], now_ms: int) -> list[Transaction]:
        """Let a part wait, if it is wanted; return what its feed is too crowded for. Each part counts, wanted or not."""
        feed = self._feeds.setdefault(key[0], _Feed())
        feed.parts += 1
        if parts:
            one = self._open.setdefault(key, _Open(now_ms))
            for part in parts:
                waiting = _Waiting(key, part, feed.parts, now_ms, self._walked)
                one.waiting.append(waiting)
                place = (part.position, part.first)
                self._waiting[place] = feed.waiting[place] = waiting
        if key in self._open:
            self._open[key].ms = now_ms
            self._open.move_to_end(key)
        crowded: list[_Waiting] = []
        while feed.waiting:
            oldest = next(iter(feed.waiting.values()))
            if oldest.number > feed.parts - PARTS_MAX:
                break
            crowded.append(self._take_oldest(oldest.key))
        return _by_transaction(crowded)

    def _overdue(self, now_ms: int) -> list[Transaction]:
        """Those that were silent for too long, then what is too old; in each the oldest first."""
        silent: list[_Waiting] = []
        while self._open:
            key, one = next(iter(self._open.items()))
            if now_ms - one.ms <= PAUSE_MAX_MS:
                break
            silent += self._take_all(key)
        old: list[_Waiting] = []
        while self._waiting:
            oldest = next(iter(self._waiting.values()))
            if now_ms - oldest.ms <= AGE_MAX_MS:
                break
            old.append(self._take_oldest(oldest.key))
        return _by_transaction(silent) + _by_transaction(old)

    def _end(self, key: _Key) -> list[Part]:
        return [waiting.part for waiting in self._take_all(key)]

    def _take_all(self, key: _Key) -> list[_Waiting]:
        found: list[_Waiting] = []
        while key in self._open:
            found.append(self._take_oldest(key))
        return found

    def _take_oldest(self, key: _Key) -> _Waiting:
        """Take the oldest part of a transaction away. Each bound meets a transaction's parts in this order."""
        one = self._open[key]
        taken = one.waiting.popleft()
        place = (taken.part.position, taken.part.first)
        del self._waiting[place], self._feeds[key[0]].waiting[place]
        if not one.waiting:
            del self._open[key]
        return taken


def _by_transaction(taken: Sequence[_Waiting]) -> list[Transaction]:
    """Return what was taken as one transaction for each name, in the order of their oldest parts."""
    found: dict[_Key, list[Part]] = {}
    for waiting in taken:
        found.setdefault(waiting.key, []).append(waiting.part)
    return [Transaction(key[0], xid_of(*key, 0), parts) for key, parts in found.items()]


def _within(wanted: Sequence[int] | None, run: Run) -> Sequence[int] | None:
    if wanted is None:
        return None
    return wanted[bisect_left(wanted, run.first) : bisect_right(wanted, run.last)]
