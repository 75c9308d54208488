"""Where a batch ends and how it is split: whole transactions, within a limit of entries. Called by the source's readers.

A batch ends at the last entry of a source transaction, or of an append where there is no transaction, if there is such an
end within the limit; else at the first one beyond, up to :data:`GROW_MAX` times the limit; a transaction larger than that
is cut. At the head of a feed, a transaction whose rest has not been appended yet waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from headrace.errors import BeyondHead, FeedRecreated, JournalCorrupt
from headrace.pipeline.source.offset import FeedOffset, FeedStart, Place
from headrace.wire.columns import arrow_flags, record_batch
from headrace.wire.documents import FeedView

if TYPE_CHECKING:
    from headrace.client.http import FramesRange

ENTRIES_MAX: Final = 1_000_000
"""Default limit of entries in a batch."""
BYTES_MAX: Final = 512 << 20
"""Default limit of stored bytes in a batch; met by the mean size of the entries looked at last."""
PARTITION_ENTRIES: Final = 250_000
"""Entries of one partition: a task costs some 15 ms whatever it does, and 64 MB at 256 bytes an entry."""
GROW_MAX: Final = 8
"""A transaction that exceeds a batch's limit may make the batch this many times as large."""
_WINDOWS: Final = (1, 64, 1_024, 8_192)
"""How many entries to look back over at once, for an end: the head of a feed nearly always is one."""
_ENDS: Final = ("sequence_id", "lsn", "source_tx", "tx_last", "append_end")


class Feeds(Protocol):
    """What planning asks of a server."""

    def feed(self, name: str) -> FeedView:
        """Return the feed's bounds."""

    def frames(
        self, feed: str, first: int, last: int, *, incarnation: str | None = None, lsn: str | None = None
    ) -> FramesRange:
        """Return the stored frames that overlap a range, as many as one answer holds."""


class Range(NamedTuple):
    """One partition: the entries ``first`` … ``last`` of one history.

    ``lsn_before`` is that of the entry before the first, ``lsn_last`` that of the last one; empty where not known.
    """

    feed: str
    incarnation: str
    first: int
    last: int
    lsn_before: str = ""
    lsn_last: str = ""


class Planner:
    """Plans the batches of one query over one feed. Lives in one process for the life of the query."""

    def __init__(
        self,
        feeds: Feeds,
        feed: str,
        *,
        incarnation: str = "",
        entries_max: int = ENTRIES_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        """``incarnation``: the only one to read, if given."""
        self._feeds = feeds
        self._feed = feed
        self._incarnation = incarnation
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._entry_bytes = 0.0
        self._until: int | None = None
        # No batch can end in the entries after the first place up to the second: they are not looked at again while a
        # transaction's rest is waited for, because the query asks many times a second.
        self._endless = (-1, -1)

    def stop_at_head(self) -> None:
        """Plan nothing beyond the entry that is newest now."""
        self._until = self._view(None).head_sequence_id

    def next_end(self, start: Place, entries_max: int | None = None) -> Place:
        """Return where the batch after ``start`` ends; ``start`` itself if there is nothing to do.

        Raises FeedRecreated if the feed is another one than ``start`` is of, or an old copy of it was put back;
        SequenceNotAvailable if retention has passed ``start``.
        """
        view = self._view(start if isinstance(start, FeedOffset) else None)
        done = self._resolved(start, view)
        moved = isinstance(start, FeedStart) or done != start.sequence_id
        began_after = done if moved else None
        if isinstance(start, FeedStart) and start.begin == "head":
            # Store where "head" was by a batch of nothing, so that it stays there whatever happens next.
            return _offset(view, done, view.newest_lsn, began_after)
        head = view.head_sequence_id if self._until is None else min(self._until, view.head_sequence_id)
        if head <= done:
            return start
        if self._endless[0] != done:
            self._endless = (done, done)
        if head <= self._endless[1]:
            return start
        found = self._whole_end(done, head, view.incarnation, self._limit(entries_max))
        return start if found is None else _offset(view, *found, began_after)

    def ranges(self, start: Place, end: FeedOffset, partition_entries: int) -> list[Range]:
        """Split the batch between two places into partitions of at most ``partition_entries`` entries, evenly."""
        if end.began_after is not None or isinstance(start, FeedStart):
            done, lsn = end.began_after or 0, ""
        else:
            done, lsn = start.sequence_id, start.lsn
        return split(
            Range(self._feed, end.incarnation, done + 1, end.sequence_id, lsn, end.lsn), partition_entries
        )

    def whole(self, start: Place, last: int | None, partition_entries: int) -> list[Range]:
        """Split everything from ``start`` to the entry ``last`` (None, or above the head: to the head) into partitions."""
        view = self._view(start if isinstance(start, FeedOffset) else None)
        done = self._resolved(start, view)
        head = view.head_sequence_id
        end = head if last is None else min(last, head)
        lsn = start.lsn if isinstance(start, FeedOffset) and start.sequence_id == done else ""
        newest = view.newest_lsn if end == head else ""
        return split(Range(self._feed, view.incarnation, done + 1, end, lsn, newest), partition_entries)

    def _view(self, known: FeedOffset | None) -> FeedView:
        view = self._feeds.feed(self._feed)
        wanted = (known.incarnation if known is not None else "") or self._incarnation
        if wanted and view.incarnation != wanted:
            raise FeedRecreated(
                f"the feed {self._feed} has the incarnation {view.incarnation}, the query reads {wanted}"
            )
        if known is not None and known.lsn:
            lost = view.head_sequence_id < known.sequence_id
            if lost or (view.head_sequence_id == known.sequence_id and view.newest_lsn != known.lsn):
                raise FeedRecreated(
                    f"the feed {self._feed} ends at {view.head_sequence_id} ({view.newest_lsn}), the query has read up "
                    f"to {known.sequence_id} ({known.lsn}): an old copy was put back"
                )
        elif known is not None and known.sequence_id > view.head_sequence_id:
            raise BeyondHead(
                f"the feed {self._feed} ends at {view.head_sequence_id}, the query is to begin after {known.sequence_id}"
            )
        return view

    def _resolved(self, start: Place, view: FeedView) -> int:
        """Return the sequence id after which to read."""
        if isinstance(start, FeedStart):
            if start.begin == "head":
                return view.head_sequence_id
            return max(0, view.oldest_sequence_id - 1)
        below = min(view.oldest_sequence_id - 1, view.head_sequence_id)
        if start.sequence_id < below:
            # A feed may begin above 1, and then nothing is missing below its oldest: the server knows which it is.
            self._feeds.frames(self._feed, start.sequence_id + 1, start.sequence_id + 1)
            return below
        return start.sequence_id

    def _limit(self, entries_max: int | None) -> int:
        limit = min(self._entries_max, entries_max or self._entries_max)
        if self._entry_bytes:
            limit = min(limit, int(self._bytes_max / self._entry_bytes))
        return max(1, limit)

    def _whole_end(self, done: int, head: int, incarnation: str, limit: int) -> tuple[int, str] | None:
        """Return (sequence id, LSN) of the batch's last entry; None if it has to wait for a transaction's rest."""
        wanted, looked = min(head, done + limit), self._endless[1]
        last = wanted
        for window in (*_WINDOWS, *[_WINDOWS[-1]] * (wanted // _WINDOWS[-1] + 1)):
            first = max(looked + 1, last - window + 1)
            if first > last:
                break
            if found := self._end_within(first, last, incarnation):
                return found
            last = first - 1
        most = min(head, done + limit * GROW_MAX)
        for first in range(max(wanted, looked) + 1, most + 1, _WINDOWS[-1]):
            for ids, lsns, whole in self._looks(first, min(most, first + _WINDOWS[-1] - 1), incarnation):
                if whole.any():
                    at = int(np.argmax(whole))
                    return int(ids[at]), lsns[at]
        if most == head:
            self._endless = (done, head)
            return None
        ids, lsns, _ = next(self._looks(wanted, wanted, incarnation))
        return int(ids[-1]), lsns[-1]

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
            answer = self._feeds.frames(self._feed, first, last, incarnation=incarnation)
            batch = record_batch(answer.data, feed=self._feed, names=_ENDS)
            if batch.num_rows:
                self._entry_bytes = len(answer.data) / batch.num_rows
            all_ids = batch.column("sequence_id").to_numpy()
            batch = batch.filter(arrow_flags((all_ids >= first) & (all_ids <= last)))
            if not batch.num_rows:
                raise JournalCorrupt(f"the server answered no entry of {self._feed} from {first} on")
            alone = batch.column("source_tx").is_null().to_numpy(zero_copy_only=False)
            tx_last = batch.column("tx_last").to_numpy(zero_copy_only=False)
            append_end = batch.column("append_end").to_numpy(zero_copy_only=False)
            ids = batch.column("sequence_id").to_numpy()
            yield ids, batch.column("lsn").to_pylist(), tx_last | (alone & append_end)
            first = int(ids[-1]) + 1


def _offset(view: FeedView, sequence_id: int, lsn: str, began_after: int | None) -> FeedOffset:
    return FeedOffset(
        feed=view.change_feed_id,
        incarnation=view.incarnation,
        sequence_id=sequence_id,
        lsn=lsn if sequence_id else "",
        began_after=began_after,
    )


def split(whole: Range, entries: int) -> list[Range]:
    """Split a range into parts of nearly equal size, at most ``entries`` each; nothing for an empty range."""
    total = whole.last - whole.first + 1
    if total <= 0:
        return []
    parts = -(-total // max(1, entries))
    edges = [whole.first + total * part // parts for part in range(parts + 1)]
    return [
        whole._replace(
            first=first,
            last=after - 1,
            lsn_before=whole.lsn_before if first == whole.first else "",
            lsn_last=whole.lsn_last if after - 1 == whole.last else "",
        )
        for first, after in pairwise(edges)
    ]
