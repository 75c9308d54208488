"""Who has a place in the journal, and where: rows of the metadata database -> consumers with journal positions.

``PROVIDERS`` lists the kinds; slots and stopped tables are one more each. Everything here blocks: call it from a
worker thread. A place that can't be found exactly is taken to be further back, so that too much is held, never too little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from headrace.entries.lsn import Lsn
from headrace.log.contract import Store
from headrace.log.history import position_after, position_past
from headrace.log.metadata.contract import HydrationRow, ListenerRow, Metadata, SubscriberRow
from headrace.log.metadata.rows import HYDRATION, LISTENER, SUBSCRIBER
from headrace.log.retention.plan import Consumer, ConsumerKey, ConsumerKind, Terms
from headrace.log.tail import FeedTail

Known = Mapping[ConsumerKey, Consumer]
"""Those that an earlier look has found. Who has moved forward since is taken to be where it was: that is no work."""

Provider = Callable[[Store, Metadata, Terms, Known], Iterator[Consumer]]


def find_consumers(
    store: Store,
    metadata: Metadata,
    terms: Terms,
    *,
    known: Iterable[Consumer] = (),
    present: Iterable[SubscriberRow] = (),
) -> list[Consumer]:
    """Return everyone who has, or asks for, a place in the journal.

    What is appended meanwhile changes nothing: who has everything stands at the end as it was *before* the first look.
    ``known``: the consumers of an earlier look at these terms; only newcomers, and who moved back, are looked up then.
    ``present``: subscribers that are there at this moment. They hold what they have, whatever is stored of them.
    """
    known_by_key = {one.key: one for one in known}
    found = [
        consumer for provider in PROVIDERS for consumer in provider(store, metadata, terms, known_by_key)
    ]
    return _with_present(store, terms, found, present)


def _with_present(
    store: Store, terms: Terms, found: Sequence[Consumer], present: Iterable[SubscriberRow]
) -> list[Consumer]:
    """Of two places of one subscriber the one further back holds."""
    consumers = list(found)
    stored_at = {one.key: index for index, one in enumerate(consumers)}
    for row in present:
        at = stored_at.get((ConsumerKind.SUBSCRIBER, _name_of(row), ""))
        if at is None:
            consumers.append(subscriber_consumer(store, row, terms))
        elif consumers[at].rank > int(Lsn.parse(row.lsn)):
            consumers[at] = subscriber_consumer(store, row, terms)
        else:
            until_ms = max(consumers[at].hold_until_ms or 0, terms.expires_at(row.seen_at_ms))
            consumers[at] = consumers[at]._replace(hold_until_ms=until_ms)
    return consumers


def _as_known(known: Consumer | None, rank: int, hold_until_ms: int | None) -> Consumer | None:
    """Return who was found earlier with what its row says now; None if it has to be looked up."""
    if known is None or known.position is None or known.lost or rank < known.rank:
        return None
    return known._replace(hold_until_ms=hold_until_ms)


def _listeners(store: Store, metadata: Metadata, terms: Terms, known: Known) -> Iterator[Consumer]:
    end = store.end()
    for tail in store.tails():
        for row in metadata.listeners(tail.name):
            found = known.get((ConsumerKind.LISTENER, row.listener_id, tail.name))
            place = reported_place(row, tail)
            until = terms.expires_at(row.seen_at_ms) if row.hold else None
            same = _as_known(found, -1 if place is None else place, until)
            yield same or listener_consumer(store, tail, row, end, terms)


def listener_consumer(store: Store, tail: FeedTail, row: ListenerRow, end: int, terms: Terms) -> Consumer:
    """Return a listener as a consumer; ``end``: the journal's end from before ``tail`` was read.

    One that asks to hold but has reported no place of this history holds all that its feed retains.
    """
    known = reported_place(row, tail)
    lost = known is not None and _is_lost(known, tail)
    hold_until_ms = terms.expires_at(row.seen_at_ms) if row.hold else None
    position: int | None = None
    if known is not None:
        position = position_after(store, tail, known, end)
    elif hold_until_ms is not None and terms.now_ms < hold_until_ms:
        position = position_after(store, tail, tail.oldest - 1, end)
    return Consumer(
        kind=ConsumerKind.LISTENER,
        name=row.listener_id,
        feed=tail.name,
        place=f"sequence id {known}" if known is not None else "no reported place",
        position=position,
        seen_at_ms=row.seen_at_ms,
        hold_until_ms=hold_until_ms,
        lost=lost,
        rank=-1 if known is None else known,
    )


def reported_place(row: ListenerRow, tail: FeedTail) -> int | None:
    """Return the sequence id that a listener last reported of this history of the feed, or None."""
    return row.sequence_id if row.incarnation == tail.incarnation else None


def _is_lost(sequence_id: int, tail: FeedTail) -> bool:
    """Who stands at the newest dropped entry, or above it, has lost nothing."""
    return sequence_id < tail.dropped_sequence_id


def _subscribers(store: Store, metadata: Metadata, terms: Terms, known: Known) -> Iterator[Consumer]:
    for row in metadata.subscribers():
        found = known.get((ConsumerKind.SUBSCRIBER, _name_of(row), ""))
        same = _as_known(found, int(Lsn.parse(row.lsn)), terms.expires_at(row.seen_at_ms))
        yield same or subscriber_consumer(store, row, terms)


def _name_of(row: SubscriberRow) -> str:
    return f"{row.subject}/{row.subscriber_id}" if row.subscriber_id else row.subject


def subscriber_consumer(store: Store, row: SubscriberRow, terms: Terms) -> Consumer:
    """Return a subscriber as a consumer: it holds until it has not been seen for ``subscriber-expiry``."""
    place = Lsn.parse(row.lsn)
    position = position_past(store, place)
    return Consumer(
        kind=ConsumerKind.SUBSCRIBER,
        name=_name_of(row),
        feed="",
        place=f"LSN {place}",
        position=position,
        seen_at_ms=row.seen_at_ms,
        hold_until_ms=terms.expires_at(row.seen_at_ms),
        lost=place < store.dropped_lsn(),
        rank=int(place),
    )


def _hydrations(store: Store, metadata: Metadata, terms: Terms, known: Known) -> Iterator[Consumer]:
    end = store.end()
    for tail in store.tails():
        for row in metadata.hydrations(tail.name):
            if row.expires_at_ms > terms.now_ms and row.incarnation == tail.incarnation:
                found = known.get((ConsumerKind.HYDRATION, row.listener_id, tail.name))
                same = _as_known(found, row.holds_from, row.expires_at_ms)
                yield same or hydration_consumer(store, tail, row, end)


def hydration_consumer(store: Store, tail: FeedTail, row: HydrationRow, end: int) -> Consumer:
    """Return a lease that stands as a consumer; ``end``: the journal's end from before ``tail`` was read.

    It holds until it expires, however long its listener was not seen, and from ``holds_from`` on.
    """
    place = f"sequence id {row.holds_from - 1}"
    if row.snapshot_id is not None:
        place += f", with the snapshot {row.snapshot_id} of {row.sequence_id}"
    return Consumer(
        kind=ConsumerKind.HYDRATION,
        name=row.listener_id,
        feed=tail.name,
        place=place,
        position=position_after(store, tail, row.holds_from - 1, end),
        seen_at_ms=row.renewed_at_ms,
        hold_until_ms=row.expires_at_ms,
        lost=_is_lost(row.holds_from - 1, tail),
        rank=row.holds_from,
    )


def _unreadable(store: Store, metadata: Metadata, terms: Terms, _known: Known) -> Iterator[Consumer]:
    """Rows that fail their checksum: nobody can say where they are, so they hold all there is until they are mended."""
    kinds = {
        LISTENER.name: ConsumerKind.LISTENER,
        SUBSCRIBER.name: ConsumerKind.SUBSCRIBER,
        HYDRATION.name: ConsumerKind.HYDRATION,
    }
    for damage in metadata.check((LISTENER, SUBSCRIBER, HYDRATION)):
        if damage.table in kinds:
            yield Consumer(
                kind=kinds[damage.table],
                name=damage.who,
                feed=damage.feed,
                place="a place that can't be read",
                position=store.oldest_position(),
                seen_at_ms=terms.now_ms,
                hold_until_ms=terms.expires_at(terms.now_ms),
                lost=False,
            )


PROVIDERS: Final[tuple[Provider, ...]] = (_listeners, _subscribers, _hydrations, _unreadable)
