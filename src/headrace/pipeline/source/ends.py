"""Where a batch of one feed may end: whole transactions, within limits of entries and bytes. Called by the planner.

A batch ends at the last entry of a source transaction, or of an append where there is no transaction, if there is such an
end within the limit; else at the first one beyond, up to :data:`GROW_MAX` times the limit; a transaction larger than that
is cut. At the head of a feed, a transaction whose rest has not been appended yet waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from headrace.entries.lsn import Lsn
from headrace.errors import JournalCorrupt, SequenceLost, SequenceNotAvailable
from headrace.pipeline.source.skipped import skipped
from headrace.wire.arrays import arrow_flags, numpy_flags, numpy_ints
from headrace.wire.columns import record_batch
from headrace.wire.documents import FeedView

if TYPE_CHECKING:
    from headrace.client.http import FramesRange
    from headrace.pipeline.source.archive import Archive

GROW_MAX: Final = 8
"""A transaction that exceeds a batch's limit may make the batch this many times as large."""
_WINDOWS: Final = (1, 64, 1_024, 8_192)
"""How many entries to look back over at once, for an end: the head of a feed nearly always is one."""
_ENDS: Final = ("sequence_id", "lsn", "source_tx", "tx_last", "append_end")


class Limits(NamedTuple):
    """What one batch may hold; None: no bound. Bytes are those stored, met by the entries' mean size."""

    entries: int | None
    bytes: int | None

    def share(self, parts: int) -> Limits:
        """Return an equal share of what is left, rounded up."""
        return Limits(*(None if most is None else -(-most // parts) for most in self))

    def less(self, entries: int) -> Limits:
        """Return what is left after ``entries``; at least one entry, so that every feed moves on."""
        if self.entries is None:
            return self
        left = max(1, self.entries - entries)
        return Limits(left, None if self.bytes is None else max(1, self.bytes * left // self.entries))


class Feeds(Protocol):
    """What planning asks of a server."""

    def feed(self, name: str) -> FeedView:
        """Return the feed's bounds."""

    def frames(
        self, feed: str, first: int, last: int, *, incarnation: str | None = None, lsn: str | None = None
    ) -> FramesRange:
        """Return the stored frames that overlap a range, as many as one answer holds."""

    def first_since(self, feed: str, ms: int) -> int:
        """Return the first entry committed at ``ms`` or later, head + 1 if there is none; SequenceNotAvailable."""


class Ends:
    """Finds the ends of batches of one feed, and remembers where none can be."""

    def __init__(self, feeds: Feeds, feed: str, archive: Archive | None = None) -> None:
        """``archive``: where to look for what the server no longer retains."""
        self._feeds = feeds
        self._feed = feed
        self._archive = archive
        self._entry_bytes = 0.0
        # No batch can end in the entries after the first place up to the second: they are not looked at again while a
        # transaction's rest is waited for, because the query asks again with every entry that comes.
        self._endless = (-1, -1)

    def whole_end(self, done: int, head: int, incarnation: str, limits: Limits) -> tuple[int, str] | None:
        """Return (sequence id, LSN) of the last entry of the batch after ``done``; None if it waits for a transaction."""
        if self._endless[0] != done:
            self._endless = (done, done)
        if head <= self._endless[1]:
            return None
        count = self._count(limits, head - done)
        found = self._search(done, head, incarnation, count)
        fewer = self._count(limits, head - done)  # what was looked at last says more of these entries
        if found is not None and fewer < count // 2 and found[0] - done > fewer:
            found = self._search(done, head, incarnation, fewer)
        return found

    def lsn_of(self, sequence_id: int, incarnation: str) -> str:
        """Return the LSN of one entry."""
        ids, lsns, _ = next(self._looks(sequence_id, sequence_id, incarnation))
        return lsns[int(np.searchsorted(ids, sequence_id))]

    def first_from_lsn(self, feed: str, lsn: Lsn) -> int:
        """Return the first entry whose LSN is ``lsn`` or greater, head + 1 if there is none; SequenceNotAvailable."""
        first, wanted = self._feeds.first_since(feed, lsn.committed_at_ms), str(lsn)
        view = self._feeds.feed(feed)
        # All that were committed within this millisecond follow: they are looked through one after the other.
        for begin in range(first, view.head_sequence_id + 1, _WINDOWS[-1]):
            last = min(view.head_sequence_id, begin + _WINDOWS[-1] - 1)
            for ids, lsns, _ in self._looks(begin, last, view.incarnation):
                if lsns[-1] >= wanted:
                    return int(ids[next(at for at, one in enumerate(lsns) if one >= wanted)])
        return view.head_sequence_id + 1

    def first_since(self, feed: str, ms: int) -> int:
        """Return what :class:`Feeds` says."""
        return self._feeds.first_since(feed, ms)

    def _count(self, limits: Limits, most: int) -> int:
        count = most if limits.entries is None else limits.entries
        if limits.bytes is not None and self._entry_bytes:
            count = min(count, int(limits.bytes / self._entry_bytes))
        return max(1, count)

    def _search(self, done: int, head: int, incarnation: str, count: int) -> tuple[int, str] | None:
        wanted, looked = min(head, done + count), self._endless[1]
        last = wanted
        for window in (*_WINDOWS, *[_WINDOWS[-1]] * (wanted // _WINDOWS[-1] + 1)):
            first = max(looked + 1, last - window + 1)
            if first > last:
                break
            if found := self._end_within(first, last, incarnation):
                return found
            last = first - 1
        most = min(head, done + count * GROW_MAX)
        for first in range(max(wanted, looked) + 1, most + 1, _WINDOWS[-1]):
            for ids, lsns, whole in self._looks(first, min(most, first + _WINDOWS[-1] - 1), incarnation):
                if whole.any():
                    at = int(np.argmax(whole))
                    return int(ids[at]), lsns[at]
        if most == head:
            self._endless = (done, head)
            return None
        return wanted, self.lsn_of(wanted, incarnation)

    def _end_within(self, first: int, last: int, incarnation: str) -> tuple[int, str] | None:
        found = None
        for ids, lsns, whole in self._looks(first, last, incarnation):
            if whole.any():
                at = int(np.flatnonzero(whole)[-1])
                found = int(ids[at]), lsns[at]
        return found

    def _looks(
        self, first: int, last: int, incarnation: str
    ) -> Iterator[tuple[np.ndarray, list[str], np.ndarray]]:
        """Yield (sequence ids, LSNs, whether a batch may end here) of the entries ``first`` … ``last``."""
        while first <= last:
            for batch in self._read(first, last, incarnation):
                alone = numpy_flags(batch.column("source_tx").is_null())
                tx_last = numpy_flags(batch.column("tx_last"))
                append_end = numpy_flags(batch.column("append_end"))
                ids = numpy_ints(batch.column("sequence_id"))
                yield ids, batch.column("lsn").to_pylist(), tx_last | (alone & append_end)
                first = int(ids[-1]) + 1

    def _read(self, first: int, last: int, incarnation: str) -> Iterator[Any]:
        """Yield one answer of the server, or all batches of the archive up to what the server has."""
        try:
            answer = self._feeds.frames(self._feed, first, last, incarnation=incarnation)
        except SequenceNotAvailable:
            if self._archive is None:
                raise
            last = min(last, self._feeds.feed(self._feed).oldest_sequence_id - 1)
            if last < first:
                raise
            yield from self._archive.batches(self._feed, incarnation, first, last, _ENDS)
            return
        except SequenceLost as lost:
            yield from skipped(
                self._feeds, self._archive, lost, feed=self._feed, first=first, last=last, names=_ENDS
            )
            return
        batch = record_batch(answer.data, feed=self._feed, names=_ENDS)
        if batch.num_rows:
            self._entry_bytes = len(answer.data) / batch.num_rows
        ids = numpy_ints(batch.column("sequence_id"))
        batch = batch.filter(arrow_flags((ids >= first) & (ids <= last)))
        if not batch.num_rows:
            raise JournalCorrupt(f"the server answered no entry of {self._feed} from {first} on")
        yield batch
