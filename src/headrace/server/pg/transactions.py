"""Source transactions along the journal: which are open at a place, and which end in a frame. Pure.

A transaction is a name that entries of a feed carry, up to its last entry, whoever writes between. One without a last entry
ends where the journal, by its own time, has nothing more of it for :data:`PAUSE_MAX_MS`. Entries without a name are of one
transaction with their neighbours in the frame, as a frame is one append. What ends in a frame follows from the journal
alone, so it is the same after each replay.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
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
OPEN_MAX: Final = 10_000
"""Transactions that are remembered as open; then the one that was silent for longest counts as ended."""
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


@dataclass(slots=True)
class _Open:
    """``ms``: log time of its newest frame."""

    xid: int
    ms: int = 0
    parts: list[Part] = field(default_factory=list)


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
    """Return a transaction's number (u32, not 0): of its name in its feed, or of its frame where it has none."""
    data = region_id.to_bytes(4, "big") + (name or position.to_bytes(8, "big"))
    return int(google_crc32c.value(data)) or 1


class Transactions:
    """Those that are open at a place of the journal; :meth:`follow` moves it on by a frame."""

    def __init__(self, walked: Lsn) -> None:
        """``walked``: the last LSN before the first frame that will be followed."""
        self._open: OrderedDict[tuple[int, bytes], _Open] = OrderedDict()
        """Those of which something came latest stand last."""
        self._below: OrderedDict[tuple[int, bytes], Lsn] = OrderedDict()
        """The last LSN before each, in the order in which they began."""
        self._walked = walked

    @property
    def walked(self) -> Lsn:
        """The last LSN that was passed."""
        return self._walked

    @property
    def hold(self) -> Lsn:
        """The last LSN of which nothing is needed any more: whoever begins behind it meets each open transaction whole."""
        return next(iter(self._below.values()), self._walked)

    def pass_by(self, frame: Frame) -> None:
        """Move past a frame of which nothing is wanted."""
        header = frame.header
        if header.kind == FrameKind.ENTRIES and header.count:
            self._walked = header.lsn(header.count - 1)

    def follow(self, frame: Frame, wanted: Sequence[int] | None = None) -> list[Transaction]:
        """Move past a frame; return the transactions that end in it, in that order.

        ``wanted``: the indices of its entries that pass the filters, ascending; None: all.
        """
        header = frame.header
        now_ms = to_ms(header.global_ts)
        ended = list(self._silent(now_ms))
        for run in runs_of(frame):
            part = Part(header.position, run.first, run.last, _within(wanted, run))
            key = (header.region_id, run.tx)
            if not run.tx:
                ended.append(
                    Transaction(header.region_id, xid_of(header.region_id, b"", header.position), [part])
                )
                continue
            one = self._open.get(key) or self._begin(key)
            one.parts.append(part)
            one.ms = now_ms
            if run.ends:
                ended.append(self._end(key))
            else:
                self._open.move_to_end(key)
        while len(self._open) > OPEN_MAX:
            ended.append(self._end(next(iter(self._open))))
        self.pass_by(frame)
        return [one for one in ended if any(part.wanted is None or part.wanted for part in one.parts)]

    def _silent(self, now_ms: int) -> Iterator[Transaction]:
        """Those that nothing was heard of for too long; the one that was silent for longest stands first."""
        while self._open:
            key, one = next(iter(self._open.items()))
            if now_ms - one.ms <= PAUSE_MAX_MS:
                return
            yield self._end(key)

    def _begin(self, key: tuple[int, bytes]) -> _Open:
        one = self._open[key] = _Open(xid_of(*key, 0))
        self._below[key] = self._walked
        return one

    def _end(self, key: tuple[int, bytes]) -> Transaction:
        one = self._open.pop(key)
        del self._below[key]
        return Transaction(key[0], one.xid, one.parts)


def _within(wanted: Sequence[int] | None, run: Run) -> Sequence[int] | None:
    if wanted is None:
        return None
    return wanted[bisect_left(wanted, run.first) : bisect_right(wanted, run.last)]
