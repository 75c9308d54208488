"""Who has a place in the journal, and where: rows of the metadata database -> consumers with journal positions.

``PROVIDERS`` lists the kinds; slots, hydrations and stopped tables are one more each. Everything here blocks: call it from a
worker thread. A place that can't be found exactly is taken to be further back, so that too much is held, never too little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from headrace.entries.lsn import Lsn
from headrace.log.contract import Store
from headrace.log.history import position_after, position_past
from headrace.log.metadata.contract import ListenerRow, Metadata, SubscriberRow
from headrace.log.metadata.rows import LISTENER, SUBSCRIBER
from headrace.log.retention.plan import Consumer, ConsumerKey, ConsumerKind, Terms
from headrace.log.tail import FeedTail

Known = Mapping[ConsumerKey, Consumer]
"""Those that an earlier look has found. Who has moved forward since is taken to be where it was: that is no work."""

Provider = Callable[[Store, Metadata, Terms, Known], Iterator[Consumer]]


def find_consumers(
    store: Store, metadata: Metadata, terms: Terms, *, known: Iterable[Consumer] = ()
) -> list[Consumer]:
    """Return everyone who has, or asks for, a place in the journal.

    What is appended meanwhile changes nothing: who has everything stands at the end as it was *before* the first look.
    ``known``: the consumers of an earlier look at these terms; only newcomers, and who moved back, are looked up then.
    """
    known_by_key = {one.key: one for one in known}
    return [consumer for provider in PROVIDERS for consumer in provider(store, metadata, terms, known_by_key)]


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


def _unreadable(store: Store, metadata: Metadata, terms: Terms, _known: Known) -> Iterator[Consumer]:
    """Rows that fail their checksum: nobody can say where they are, so they hold all there is until they are mended."""
    kinds = {LISTENER.name: ConsumerKind.LISTENER, SUBSCRIBER.name: ConsumerKind.SUBSCRIBER}
    for damage in metadata.check():
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


PROVIDERS: Final[tuple[Provider, ...]] = (_listeners, _subscribers, _unreadable)
