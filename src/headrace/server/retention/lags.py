"""How far behind consumers are: lag in entries, bytes and seconds, and time to loss, for ``GET /feeds`` and for metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.entries.lsn import Lsn
from headrace.log.contract import Store
from headrace.log.history import bytes_behind, first_sequence_at, lsn_at
from headrace.log.metadata.contract import HydrationRow, ListenerRow, Metadata, SubscriberRow
from headrace.log.retention.consumers import listener_consumer, reported_place, subscriber_consumer
from headrace.log.retention.loss import Loss
from headrace.log.retention.plan import Consumer
from headrace.log.tail import FeedTail
from headrace.server.retention.rates import RateWindow
from headrace.server.retention.survey import Moment, loss_document
from headrace.wire import documents as doc


class ListenerLag(NamedTuple):
    """A listener of a feed and how far behind it is; None where that is not known."""

    row: ListenerRow
    entries: int | None
    bytes: int | None
    seconds: float | None
    loss: Loss

    def view(self) -> doc.ListenerView:
        """Return it as ``GET /feeds`` shows it."""
        return doc.ListenerView(
            listener_id=self.row.listener_id,
            sequence_id=self.row.sequence_id,
            lag_entries=self.entries,
            seen_at=doc.rfc3339(self.row.seen_at_ms),
            lag_seconds=self.seconds,
            lag_bytes=self.bytes,
            hold=self.row.hold,
            time_to_loss=loss_document(self.loss),
        )


class SubscriberLag(NamedTuple):
    """A subscriber and how far behind it is in one feed."""

    row: SubscriberRow
    name: str
    entries: int
    bytes: int
    seconds: float
    loss: Loss

    def view(self) -> doc.SubscriberView:
        """Return it as ``GET /feeds`` shows it."""
        return doc.SubscriberView(
            subject=self.row.subject,
            subscriber_id=self.row.subscriber_id,
            lsn=self.row.lsn,
            lag_entries=self.entries,
            lag_bytes=self.bytes,
            lag_seconds=self.seconds,
            seen_at=doc.rfc3339(self.row.seen_at_ms),
            time_to_loss=loss_document(self.loss),
        )


class FeedLags(NamedTuple):
    """One feed's consumers."""

    tail: FeedTail
    listeners: list[ListenerLag]
    subscribers: list[SubscriberLag]
    hydrations: list[HydrationRow]


def hydration_view(row: HydrationRow) -> doc.HydrationView:
    """Return a lease as ``GET /feeds`` shows it."""
    return doc.HydrationView(
        listener_id=row.listener_id,
        holds_from_sequence_id=row.holds_from,
        snapshot_id=row.snapshot_id,
        sequence_id=row.sequence_id,
        expires_at=doc.rfc3339(row.expires_at_ms),
    )


class _Subscriber(NamedTuple):
    row: SubscriberRow
    consumer: Consumer
    loss: Loss


def find_lags(
    store: Store, metadata: Metadata, tails: Sequence[FeedTail], moment: Moment, window: RateWindow
) -> list[FeedLags]:
    """Return how far behind everyone is in each of ``tails``, which were read before ``moment``. Blocks.

    Raises StoreUnavailable, JournalCorrupt.
    """
    subscribers: list[_Subscriber] = []
    for row in metadata.subscribers():
        consumer = subscriber_consumer(store, row, moment.terms)
        subscribers.append(_Subscriber(row, consumer, moment.loss_of(consumer, store, window)))
    return [
        FeedLags(
            tail,
            [_listener_lag(store, tail, row, moment, window) for row in metadata.listeners(tail.name)],
            [_subscriber_lag(store, tail, one) for one in subscribers],
            [
                row
                for row in metadata.hydrations(tail.name)
                if row.incarnation == tail.incarnation and row.expires_at_ms > moment.terms.now_ms
            ],
        )
        for tail in tails
    ]


def _listener_lag(
    store: Store, tail: FeedTail, row: ListenerRow, moment: Moment, window: RateWindow
) -> ListenerLag:
    loss = moment.loss_of(listener_consumer(store, tail, row, moment.end, moment.terms), store, window)
    known = reported_place(row, tail)
    if known is None:
        return ListenerLag(row, None, None, None, loss)
    entries, seconds = tail.head - known, None
    if not entries:
        seconds = 0.0
    elif row.lsn is not None:
        seconds = (tail.newest.committed_at_ms - Lsn.parse(row.lsn).committed_at_ms) / 1000
    return ListenerLag(row, entries, bytes_behind(store, tail, known), seconds, loss)


def _subscriber_lag(store: Store, tail: FeedTail, one: _Subscriber) -> SubscriberLag:
    """Entries and bytes are those that the feed retains; a frame of which a part is acked counts as many bytes as it has."""
    place = Lsn.parse(one.row.lsn)
    position = one.consumer.position or 0
    first = first_sequence_at(store, tail, position)
    needed = lsn_at(store, tail, first) if first <= tail.head else None
    if needed is None:
        return SubscriberLag(one.row, one.consumer.name, 0, 0, 0.0, one.loss)
    if needed <= place and (needed.global_ts, needed.region_id) == (place.global_ts, place.region_id):
        first += place.raft_index - needed.raft_index + 1
    since_ms = place.committed_at_ms or needed.committed_at_ms
    return SubscriberLag(
        one.row,
        one.consumer.name,
        max(0, tail.next_sequence_id - first),
        bytes_behind(store, tail, first - 1),
        max(0, tail.newest.committed_at_ms - since_ms) / 1000,
        one.loss,
    )
