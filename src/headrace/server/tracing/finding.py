"""Finds an entry, or says why it is not there; and what its frame tells of it. Everything here blocks."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.entries.hlc import to_ms
from headrace.entries.lsn import Lsn
from headrace.errors import JournalCorrupt, SequenceLost, SequenceNotAvailable
from headrace.log.contract import Store
from headrace.log.files.segment import file_name
from headrace.log.history import frames_of_range, lsn_at
from headrace.log.tail import FeedTail
from headrace.wire import varint
from headrace.wire.documents import TIME_MS_MAX, rfc3339
from headrace.wire.entry import message_of
from headrace.wire.frame import HEADER_SIZE, Area, Frame, decode_area
from headrace.wire.generated import wal_pb2
from headrace.wire.trace_documents import TracePlace, TraceProducer, TraceStep

SCAN_BYTES_MAX: Final = 256 << 20
"""Stored bytes looked at for a key."""
SCAN_ENTRIES: Final = 10_000
"""Sequence ids looked at in one step of it, newest first."""
SAME_KEY_MAX: Final = 20
"""Entries of one key that are told."""
_KEY_FIELD: Final = varint.tag(6, 2)
"""What stands before the size of a stored entry's key."""


class Found(NamedTuple):
    """An entry as it is stored. ``at``: which of its frame's, from 0. ``at_position``: the journal's of its first byte."""

    frame: Frame
    at: int
    message: wal_pb2.WalEntry
    at_position: int
    size: int

    @property
    def lsn(self) -> Lsn:
        """Its LSN."""
        return self.frame.header.lsn(self.at)


class Missing(NamedTuple):
    """Why an entry is not there, and its LSN where that is known all the same."""

    state: str
    detail: str
    lsn: Lsn | None = None


@dataclass
class Scan:
    """The newest entries with a key. ``scanned_from``: the oldest sequence id that was looked at."""

    sequence_ids: list[int] = field(default_factory=list)
    scanned_from: int = 0


def find_entry(store: Store, tail: FeedTail, sequence_id: int) -> Found | Missing:
    """Return the entry, or why it is not there. StoreUnavailable."""
    if sequence_id > tail.head:
        what = f"the newest entry of {tail.name} is {tail.head}; nothing was appended as {sequence_id} yet"
        return Missing("beyond-head", what)
    if tail.first_sequence_id and sequence_id < tail.first_sequence_id:
        return Missing("dropped", f"{tail.name} began with {tail.first_sequence_id}")
    try:
        (frame, *_) = frames_of_range(store, tail, sequence_id, sequence_id, entries_max=1, bytes_max=1)
    except SequenceNotAvailable as error:
        what = f"{error.detail}; an archive may have it: --pitr-dir"
        if tail.lost_by_rebuilds:
            what += ". The log was rebuilt from a backup that lacked entries, perhaps this one"
        return Missing("dropped", what, lsn_at(store, tail, sequence_id))
    except SequenceLost as error:
        return Missing("lost", error.detail)
    except JournalCorrupt as error:
        return Missing("damaged", error.detail)
    return _in_frame(frame, sequence_id - frame.header.first_sequence_id)


def _in_frame(frame: Frame, index: int) -> Found:
    lengths = frame.lengths
    begin = sum(lengths[:index])
    stored = frame.body[begin : begin + lengths[index]]
    at = frame.header.position + HEADER_SIZE + frame.header.area_size + begin
    return Found(frame, index, message_of(stored), at, lengths[index])


def scan_key(store: Store, tail: FeedTail, key: bytes, is_ending: Callable[[], bool]) -> Scan:
    """Look for the newest entries of a feed that have this key: so many at most, within the bound of bytes.

    A frame whose bytes do not hold the key as a field is passed over by one search. Once ``is_ending`` it goes no further.
    """
    field_bytes = _KEY_FIELD + varint.encode(len(key)) + key
    scan, read, last = Scan(scanned_from=tail.head + 1), 0, tail.head
    while last >= tail.oldest and read < SCAN_BYTES_MAX and len(scan.sequence_ids) < SAME_KEY_MAX:
        if is_ending():
            break
        places = store.places(
            tail.region_id, max(tail.oldest, last - SCAN_ENTRIES + 1), last, frames_max=SCAN_ENTRIES
        )
        places = [place for place in places if place.first_sequence_id <= last]
        if not places:
            break
        for place in reversed(places):
            read += place.size
            try:
                found = _with_key(store.read([place])[0], field_bytes, last)
            except (JournalCorrupt, SequenceLost, SequenceNotAvailable):
                found = []
            scan.sequence_ids += found
            scan.scanned_from = max(tail.oldest, place.first_sequence_id)
            if read >= SCAN_BYTES_MAX or len(scan.sequence_ids) >= SAME_KEY_MAX or is_ending():
                break
        last = scan.scanned_from - 1
    del scan.sequence_ids[SAME_KEY_MAX:]
    return scan


def _with_key(frame: Frame, field_bytes: bytes, last: int) -> list[int]:
    """The sequence ids of its entries up to ``last`` with the key of this field, newest first."""
    if field_bytes not in bytes(frame.body):
        return []
    key = field_bytes[varint.decode(field_bytes, len(_KEY_FIELD))[1] :]
    first = frame.header.first_sequence_id
    return [
        first + index
        for index, stored in reversed(list(enumerate(frame.entries())))
        if first + index <= last and field_bytes in bytes(stored) and message_of(stored).key == key
    ]


def place_of(store: Store, found: Found) -> TracePlace:
    """Return where it stands."""
    header = found.frame.header
    first = max(
        (one.first_position for one in store.segments() if one.first_position <= header.position), default=0
    )
    return TracePlace(
        segment=file_name(first),
        segment_first_position=first,
        frame_position=header.position,
        frame_bytes=header.size,
        entry_position=found.at_position,
        entry_bytes=found.size,
        index_in_append=found.at,
        entries_in_append=header.count,
    )


def producer_of(tail: FeedTail, found: Found) -> TraceProducer:
    """Return who appended it."""
    values = decode_area(found.frame.area)
    return TraceProducer(
        producer=values.get(Area.PRODUCER, b"").decode(errors="replace"),
        epoch=found.frame.header.epoch,
        owner_now=tail.owner,
        epoch_now=tail.epoch,
        traceparent=values.get(Area.TRACEPARENT, b"").decode(errors="replace"),
        source_position=base64.b64encode(values.get(Area.SOURCE_POSITION, b"")).decode(),
    )


def steps_of(found: Found) -> list[TraceStep]:
    """Return what the frame itself tells: when it was committed, marked, posted and appended."""
    values = decode_area(found.frame.area)
    commit = _time(found.message.source_time_ms) if found.message.source_time_ms else None
    steps = [TraceStep(step="committed", after=commit, by=commit, detail="by the source's clock")]
    for step, tag, clock in (
        ("marked", Area.MARKED_AT_MS, "by the agent's clock"),
        ("posted", Area.POSTED_AT_MS, "when the server took the request"),
    ):
        data = values.get(tag)
        at = _time(int.from_bytes(data, "little")) if data else None
        steps.append(TraceStep(step=step, after=at, by=at, detail=clock))
    appended = rfc3339(to_ms(found.frame.header.global_ts))
    steps.append(TraceStep(step="appended", after=appended, by=appended, detail="the time in its LSN"))
    return [step for step in steps if step.by is not None]


def _time(ms: int) -> str:
    """A foreign producer may give any number; what RFC 3339 can't say goes out as ms."""
    return rfc3339(ms) if ms <= TIME_MS_MAX else str(ms)
