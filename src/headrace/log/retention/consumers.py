"""Who has a place in the journal, and where: rows of the metadata database -> consumers with journal positions.

``PROVIDERS`` lists the kinds; slots, hydrations and stopped tables are one more each. Everything here blocks: call it from a
worker thread. A place that can't be found exactly is taken to be further back, so that too much is held, never too little.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from headrace.entries.hlc import to_ms
from headrace.entries.lsn import Lsn
from headrace.errors import JournalCorrupt, SequenceLost, SequenceNotAvailable
from headrace.log.contract import Store
from headrace.log.metadata.contract import ListenerRow, Metadata, SubscriberRow
from headrace.log.retention.plan import Consumer, ConsumerKind, Terms
from headrace.log.tail import FeedTail
from headrace.wire.frame import FrameKind

WALK_BYTES: Final = 1 << 16
"""Read at a time to find where a subscriber's next frame begins."""
SIZED_FRAMES_MAX: Final = 256
"""Frames counted exactly for a lag in bytes; beyond them it is reckoned from these."""

Provider = Callable[[Store, Metadata, Terms], Iterator[Consumer]]


def find_consumers(store: Store, metadata: Metadata, terms: Terms) -> list[Consumer]:
    """Return everyone who has, or asks for, a place in the journal.

    What is appended meanwhile changes nothing: who has everything stands at the end as it was *before* the first look.
    """
    return [consumer for provider in PROVIDERS for consumer in provider(store, metadata, terms)]


def _listeners(store: Store, metadata: Metadata, terms: Terms) -> Iterator[Consumer]:
    end = store.end()
    for tail in store.tails():
        for row in metadata.listeners(tail.name):
            yield listener_consumer(store, tail, row, end, terms)


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
    )


def reported_place(row: ListenerRow, tail: FeedTail) -> int | None:
    """Return the sequence id that a listener last reported of this history of the feed, or None."""
    return row.sequence_id if row.incarnation == tail.incarnation else None


def _is_lost(sequence_id: int, tail: FeedTail) -> bool:
    """Who stands at the newest dropped entry, or above it, has lost nothing."""
    return sequence_id < tail.dropped_sequence_id


def position_after(store: Store, tail: FeedTail, sequence_id: int, end: int) -> int:
    """Return the position of the frame with the entry after ``sequence_id``; ``end`` if there is no such entry yet.

    The oldest position where that frame is damaged or was dropped meanwhile: damage must not stop the byte cap.
    """
    first = max(sequence_id + 1, tail.oldest)
    if first > tail.head:
        return end
    with contextlib.suppress(JournalCorrupt):
        places = store.places(tail.region_id, first, tail.head, frames_max=1)
        if places and places[0].first_sequence_id <= first:
            return places[0].position
    return store.oldest_position()


def _subscribers(store: Store, metadata: Metadata, terms: Terms) -> Iterator[Consumer]:
    for row in metadata.subscribers():
        yield subscriber_consumer(store, row, terms)


def subscriber_consumer(store: Store, row: SubscriberRow, terms: Terms) -> Consumer:
    """Return a subscriber as a consumer: it holds until it has not been seen for ``subscriber-expiry``."""
    place = Lsn.parse(row.lsn)
    position = position_past(store, place)
    return Consumer(
        kind=ConsumerKind.SUBSCRIBER,
        name=f"{row.subject}/{row.subscriber_id}" if row.subscriber_id else row.subject,
        feed="",
        place=f"LSN {place}",
        position=position,
        seen_at_ms=row.seen_at_ms,
        hold_until_ms=terms.expires_at(row.seen_at_ms),
        lost=place < store.dropped_lsn(),
    )


def position_past(store: Store, place: Lsn) -> int:
    """Return the position of the first retained frame with an entry above ``place``; the end if there is none."""
    end, position = store.end(), store.oldest_position()
    try:
        position = store.seek(place.global_ts)
        while position < end:
            for frame in store.walk(position, bytes_max=WALK_BYTES):
                header = frame.header
                if header.kind == FrameKind.ENTRIES and header.lsn(header.count - 1) > place:
                    return header.position
                position = header.end
    except (JournalCorrupt, SequenceLost, SequenceNotAvailable):
        pass  # what is damaged is held; what was dropped meanwhile can't be
    return position


PROVIDERS: Final[tuple[Provider, ...]] = (_listeners, _subscribers)


def first_sequence_at(store: Store, tail: FeedTail, position: int) -> int:
    """Return the first sequence id of the feed's first frame at ``position`` or above; the next one if there is none.

    By bisection over sequence ids: frames of a feed stand in the order of their ids.
    """
    low, high = tail.oldest, tail.next_sequence_id
    while low < high:
        middle = (low + high) // 2
        places = store.places(tail.region_id, middle, tail.head, frames_max=1)
        if not places:
            high = middle
        elif places[0].position < position:
            low = max(middle, places[0].first_sequence_id + places[0].count - 1) + 1
        else:
            high = min(middle, max(low, places[0].first_sequence_id))
    return low


def bytes_behind(store: Store, tail: FeedTail, sequence_id: int) -> int:
    """Return how many stored bytes the feed has after ``sequence_id``: exact for a few hundred frames, then reckoned."""
    first = max(sequence_id + 1, tail.oldest)
    if first > tail.head:
        return 0
    places = store.places(tail.region_id, first, tail.head, frames_max=SIZED_FRAMES_MAX)
    size = sum(place.size for place in places)
    counted = places[-1].first_sequence_id + places[-1].count - first if places else 0
    entries = tail.next_sequence_id - first
    return size * entries // counted if 0 < counted < entries else size


def written_at_ms(store: Store, position: int) -> int | None:
    """Return when the frame at ``position`` was written; None if there is none, or if it can't be read."""
    try:
        frames = store.walk(position, bytes_max=1)
    except (JournalCorrupt, SequenceLost, SequenceNotAvailable):
        return None
    return to_ms(frames[0].header.global_ts) if frames else None
