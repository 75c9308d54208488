"""The append rules, pure: waiting requests + the tails of their feeds -> frames to write, and an outcome for each.

Order of checks on append: incarnation, if given -> fenced? -> quarantined? -> already appended? -> expected place. A
refusal is an outcome like any other: it is answered only once the group that it was judged in is durable, because it may
rest on a frame of that very group.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from headrace.entries.feed import key_prefix
from headrace.entries.hlc import HybridClock
from headrace.entries.lsn import lsn_of
from headrace.errors import (
    ClockLead,
    DuplicateEntry,
    FeedNotFound,
    FeedOwned,
    FeedRecreated,
    Fenced,
    HeadraceError,
    InvalidRequest,
    NotRegistered,
    OffsetMismatch,
    Quarantined,
    SequenceGap,
    TooLarge,
)
from headrace.log.contract import Begin, Group
from headrace.log.control import Control, ControlKind
from headrace.log.requests import NEXT, Append, Appended, Outcome, Register, Release, Request, check_append
from headrace.log.tail import FeedTail, ProducerPlace, Quarantine
from headrace.wire import entry as wal_entry
from headrace.wire.frame import (
    FRAME_BYTES_MAX,
    HEADER_SIZE,
    Area,
    FrameHeader,
    FrameKind,
    encode_area,
    encode_frame,
)

NO_DIGEST = bytes(16)


class StoredEntry(NamedTuple):
    """An entry as a retry is compared with it: who sent it, what was sent, and its append's timestamp and place."""

    producer: str
    half: bytes
    frame: FrameHeader


History = Callable[[FeedTail, int, int], Sequence[StoredEntry]]
"""``history(tail, first, last)`` returns the stored entries of that range, oldest first."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What judging needs besides the requests: the wall clock now, and the server's settings."""

    wall_ms: int
    region: str = "local"
    clock_lead_ms_max: int = 3_600_000


@dataclass(slots=True)
class Verdict:
    """The group to put, and one outcome for each request, in order: an answer, or the refusal to raise."""

    group: Group
    outcomes: list[Outcome | HeadraceError] = field(default_factory=list)


def judge(requests: Sequence[Request], begin: Begin, terms: Terms, history: History) -> Verdict:
    """Judge ``requests`` in order, each against what the ones before it will have done."""
    court = _Judge(begin, terms, history)
    for request in requests:
        try:
            court.verdict.outcomes.append(court.hear(request))
        except HeadraceError as refusal:
            court.verdict.outcomes.append(refusal)
    court.verdict.group.global_ts = court.clock.last
    court.verdict.group.next_region_id = court.next_region_id
    return court.verdict


class _Judge:
    """One group's judging: the tails as they will be, and the frames planned so far."""

    def __init__(self, begin: Begin, terms: Terms, history: History) -> None:
        self.terms = terms
        self.history = history
        self.clock = HybridClock(begin.global_ts)
        self.end = begin.end
        self.next_region_id = begin.next_region_id
        self.tails = dict(begin.tails)
        self.verdict = Verdict(Group())
        self.pending: dict[str, list[StoredEntry]] = {}

    def hear(self, request: Request) -> Outcome:
        if self.clock.lead_ms(self.terms.wall_ms) > self.terms.clock_lead_ms_max:
            raise ClockLead(
                f"the log's clock leads the wall clock by {self.clock.lead_ms(self.terms.wall_ms)} ms; "
                f"the most that is taken is {self.terms.clock_lead_ms_max} ms"
            )
        if isinstance(request, Append):
            return self._append(request)
        if isinstance(request, Register):
            return self._register(request)
        return self._release(request)

    # -- registrations ------------------------------------------------------------------------------------------------

    def _register(self, ask: Register) -> FeedTail:
        tail = self.tails.get(ask.feed)
        if tail is None:
            made = FeedTail(
                name=ask.feed,
                region_id=self.next_region_id,
                tenant=ask.tenant or "default",
                incarnation=ask.new_incarnation,
                owner=ask.agent_id,
                instance=ask.instance,
                epoch=1,
                agents={ask.agent_id: 1},
            )
            self.next_region_id += 1
            return self._control(ControlKind.FEED_MADE, made)
        if ask.tenant and ask.tenant != tail.tenant:
            raise InvalidRequest(
                f"tenant-id: the feed {ask.feed} belongs to the tenant {tail.tenant!r}, not to {ask.tenant!r}",
                hint="Leave tenant-id out, or use another feed.",
                member="tenant-id",
            )
        if tail.owner != ask.agent_id and not ask.takeover:
            raise FeedOwned(f"the feed {ask.feed} is owned by the agent {tail.owner}", owner=tail.owner)
        if tail.owner == ask.agent_id and tail.instance == ask.instance:
            return tail
        kind = ControlKind.REGISTERED if tail.owner == ask.agent_id else ControlKind.TAKEN_OVER
        claimed = msgspec.structs.replace(
            tail,
            owner=ask.agent_id,
            instance=ask.instance,
            epoch=tail.epoch + 1,
            agents=tail.agents | {ask.agent_id: tail.epoch + 1},
        )
        return self._control(kind, claimed)

    def _release(self, ask: Release) -> FeedTail:
        tail = self._known(ask.feed)
        if ask.agent_id not in tail.quarantines:
            return tail
        left = {name: mark for name, mark in tail.quarantines.items() if name != ask.agent_id}
        return self._control(ControlKind.RELEASED, msgspec.structs.replace(tail, quarantines=left))

    def _control(self, kind: ControlKind, tail: FeedTail) -> FeedTail:
        header = FrameHeader(
            FrameKind.CONTROL, self.end, tail.next_sequence_id, self.clock.tick(self.terms.wall_ms), tail.epoch,
            NO_DIGEST, tail.region_id, 0, 0, 0, 0,
        )  # fmt: skip
        self._plan(header, b"", Control(kind, tail).encode(), b"", tail)
        return tail

    # -- appends ------------------------------------------------------------------------------------------------------

    def _append(self, ask: Append) -> Appended:
        check_append(ask)
        tail = self._known(ask.feed)
        self._admit(ask, tail)
        tail = self._begin_where_named(ask, tail)
        self._check_sequence_ids(ask, tail)
        repeated = self._check_offsets(ask, tail)
        return repeated if repeated is not None else self._write(ask, tail)

    def _known(self, feed: str) -> FeedTail:
        tail = self.tails.get(feed)
        if tail is None:
            raise FeedNotFound(f"there is no feed {feed}", change_feed_id=feed)
        return tail

    def _admit(self, ask: Append, tail: FeedTail) -> None:
        """Incarnation -> fenced? -> quarantined?"""
        if ask.incarnation is not None and ask.incarnation != tail.incarnation:
            raise FeedRecreated(
                f"the feed {tail.name} has the incarnation {tail.incarnation}, not {ask.incarnation}",
                incarnation=tail.incarnation,
            )
        if ask.producer not in tail.agents:
            raise NotRegistered(f"the publisher {ask.producer} has not registered with the feed {tail.name}")
        epoch = tail.agents[ask.producer] if ask.epoch is None else ask.epoch
        if epoch > tail.epoch:
            raise NotRegistered(
                f"the feed {tail.name} is at epoch {tail.epoch}; it never gave the epoch {epoch}",
                epoch=tail.epoch,
            )
        if ask.producer != tail.owner or epoch < tail.epoch:
            raise Fenced(
                f"the feed {tail.name} is owned by {tail.owner} at epoch {tail.epoch}; "
                f"this append is of {ask.producer} at epoch {epoch}",
                owner=tail.owner,
                epoch=tail.epoch,
            )
        quarantine = tail.quarantines.get(ask.producer)
        if quarantine is not None:
            raise Quarantined(
                f"the publisher {ask.producer} is quarantined since it posted sequence id "
                f"{quarantine.sequence_id} of {tail.name} a second time",
                sequence_id=quarantine.sequence_id,
            )

    def _begin_where_named(self, ask: Append, tail: FeedTail) -> FeedTail:
        """A feed's first sequence id is 1, unless its first entry names another by ``sequence-id``."""
        if tail.first_sequence_id or not ask.sequence_ids or ask.sequence_ids[0] == NEXT:
            return tail
        return msgspec.structs.replace(tail, next_sequence_id=ask.sequence_ids[0])

    def _check_sequence_ids(self, ask: Append, tail: FeedTail) -> None:
        for index, number in enumerate(ask.sequence_ids):
            expected = tail.next_sequence_id + index
            if number in (NEXT, expected):
                continue
            if number < tail.next_sequence_id and tail.first_sequence_id:
                self._quarantine(ask, tail, number)
                raise DuplicateEntry(
                    f"sequence-id {number} is already in the feed {tail.name}; the publisher {ask.producer} is quarantined",
                    index=index,
                    expected=expected,
                    received=number,
                )
            raise SequenceGap(
                f"the feed {tail.name} expects sequence-id {expected}, entry {index} of this post names {number}",
                index=index,
                expected=expected,
                received=number,
            )

    def _quarantine(self, ask: Append, tail: FeedTail, number: int) -> None:
        mark = Quarantine(agent_id=ask.producer, sequence_id=number, at_ms=self.terms.wall_ms)
        quarantines = tail.quarantines | {ask.producer: mark}
        self._control(ControlKind.QUARANTINED, msgspec.structs.replace(tail, quarantines=quarantines))

    def _check_offsets(self, ask: Append, tail: FeedTail) -> Appended | None:
        """Return None if the append may go to the tail, the original places if it is a repeat; else raise."""
        wrong = next(
            (
                index
                for index, offset in enumerate(ask.expected_offsets)
                if offset not in (NEXT, tail.next_sequence_id + index)
            ),
            None,
        )
        if wrong is None:
            return None
        starts = {offset - index for index, offset in enumerate(ask.expected_offsets) if offset != NEXT}
        start = starts.pop()
        if not starts and start < tail.next_sequence_id:
            place = tail.producers.get(ask.producer)
            if place is not None and _same_frame(place, start, ask):
                return _places(tail, place)
            if start >= tail.oldest and start + len(ask.halves) <= tail.next_sequence_id:
                repeated = self._repeated(ask, tail, start)
                if repeated is not None:
                    return repeated
        dropped = not starts and 0 < tail.first_sequence_id <= start <= tail.dropped_sequence_id
        raise OffsetMismatch(
            f"the feed {tail.name} is at {tail.next_sequence_id}; entry {wrong} of this append expects "
            f"{ask.expected_offsets[wrong]}",
            index=wrong,
            expected=ask.expected_offsets[wrong],
            actual_next=tail.next_sequence_id,
            # Entries before it may still come (a pipeline whose first append failed); what stands there never changes.
            retryable=not starts and start > tail.next_sequence_id,
            side_effects="possible" if dropped else "none",
        )

    def _repeated(self, ask: Append, tail: FeedTail, start: int) -> Appended | None:
        """The named range is stored: is it this producer's, equal entry by entry, whatever the frame boundaries?"""
        last = start + len(ask.halves) - 1
        waiting = self.pending.get(tail.name, [])
        planned_from = tail.next_sequence_id - len(waiting)
        stored: list[StoredEntry] = []
        if start < planned_from:
            stored.extend(self.history(tail, start, min(last, planned_from - 1)))
        if last >= planned_from:
            stored.extend(waiting[max(0, start - planned_from) : last - planned_from + 1])
        equal = len(stored) == len(ask.halves) and all(
            entry.producer == ask.producer and entry.half == half
            for entry, half in zip(stored, ask.halves, strict=True)
        )
        if not equal:
            return None
        first_frame, last_frame = stored[0].frame, stored[-1].frame
        return Appended(
            incarnation=tail.incarnation,
            first_sequence_id=start,
            last_sequence_id=last,
            first_lsn=first_frame.lsn(start - first_frame.first_sequence_id),
            last_lsn=last_frame.lsn(last - last_frame.first_sequence_id),
            duplicate=True,
        )

    def _write(self, ask: Append, tail: FeedTail) -> Appended:
        first, count = tail.next_sequence_id, len(ask.halves)
        wraps = (first & 0xFFFFFFFF) + count - 1 >> 32
        global_ts = self.clock.tick(self.terms.wall_ms, 1 + wraps)
        body, lengths = wal_entry.stamp(
            ask.halves,
            global_ts=global_ts,
            region_id=tail.region_id,
            first_sequence_id=first,
            tenant=tail.tenant,
            key_prefix=key_prefix(self.terms.region, tail.tenant, tail.name),
        )
        area = {**ask.area, Area.PRODUCER: ask.producer.encode()}
        if ask.transaction_ends:
            area[Area.TRANSACTION_ENDS] = struct.pack(f"<{len(ask.transaction_ends)}I", *ask.transaction_ends)
        header = FrameHeader(
            FrameKind.ENTRIES,
            self.end,
            first,
            global_ts,
            tail.epoch,
            ask.digest,
            tail.region_id,
            count,
            0,
            0,
            0,
        )
        source = base64.b64encode(ask.area.get(Area.SOURCE_POSITION, b"")).decode()
        frame = self._plan(header, encode_area(area), body, lengths, tail.after(header, ask.producer, source))
        self.pending.setdefault(tail.name, []).extend(
            StoredEntry(ask.producer, half, frame) for half in ask.halves
        )
        return Appended(
            incarnation=tail.incarnation,
            first_sequence_id=first,
            last_sequence_id=first + count - 1,
            first_lsn=header.lsn(0),
            last_lsn=header.lsn(count - 1),
        )

    def _plan(
        self, header: FrameHeader, area: bytes, body: bytes, lengths: bytes, tail: FeedTail
    ) -> FrameHeader:
        size = 2 * HEADER_SIZE + len(area) + len(body) + len(lengths)
        if size > FRAME_BYTES_MAX:
            raise TooLarge(f"this append makes a frame of {size} bytes; the most is {FRAME_BYTES_MAX}")
        header = header._replace(area_size=len(area), body_size=len(body))
        self.verdict.group.frames.append((header, encode_frame(header, area, body, lengths)))
        self.verdict.group.tails[tail.name] = self.tails[tail.name] = tail
        self.end += size
        return header


def _same_frame(place: ProducerPlace, start: int, ask: Append) -> bool:
    """Is this append the producer's last frame, sent again as it was? Answers even where retention dropped the frame."""
    same_range = place.first_sequence_id == start and place.count == len(ask.halves)
    return same_range and place.digest == ask.digest.hex()


def _places(tail: FeedTail, place: ProducerPlace) -> Appended:
    first = place.first_sequence_id
    return Appended(
        incarnation=tail.incarnation,
        first_sequence_id=first,
        last_sequence_id=first + place.count - 1,
        first_lsn=lsn_of(place.global_ts, tail.region_id, first, 0),
        last_lsn=lsn_of(place.global_ts, tail.region_id, first, place.count - 1),
        duplicate=True,
    )
