"""One group's judging: each request against what the ones before it will have done, and the frames that follow from it."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.entries.feed import key_prefix
from headrace.entries.hlc import HybridClock
from headrace.errors import (
    ClockLead,
    DuplicateEntry,
    FeedNotFound,
    HeadraceError,
    StreamFailed,
    TooLarge,
    WriterStopped,
    complete_refusal,
    refused_with,
)
from headrace.log.contract import Begin, Group
from headrace.log.control import Control, control_header
from headrace.log.requests import Append, Appended, Chain, Configure, Outcome, Register, Request, check_append
from headrace.log.rules import admission
from headrace.log.rules.places import (
    History,
    StoredEntry,
    begin_where_named,
    check_named,
    check_offsets,
    check_sequence_ids,
    may_stand,
)
from headrace.log.tail import FeedTail
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

GROUP_BYTES_MAX: Final = 32 << 20
"""Bytes of frames written together, and one frame more; bounds the size of one write and what a crash can tear."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What judging needs besides the requests: the wall clock now, and the server's settings.

    ``group_bytes_max``: a group is full with as many bytes of frames, so it has at most one frame more.
    """

    wall_ms: int
    region: str = "local"
    clock_lead_ms_max: int = 3_600_000
    group_bytes_max: int = GROUP_BYTES_MAX


@dataclass(slots=True)
class Verdict:
    """The group to put, and one outcome for each request that it took, in order: an answer, or the refusal to raise."""

    group: Group
    outcomes: list[Outcome | HeadraceError] = field(default_factory=list)


def judge(requests: Sequence[Request], begin: Begin, terms: Terms, history: History) -> Verdict:
    """Judge ``requests`` in order, each against what the ones before it will have done, until the group is full.

    Those behind that have no outcome: they belong to the next group. A group takes at least one request.

    An append's refusal always has the members ``retryable``, ``side-effects`` and, if there is such a feed,
    ``actual-next``: see :func:`headrace.errors.refusal_of`.
    """
    court = _Judge(begin, terms, history)
    for request in requests:
        if court.end - begin.end >= terms.group_bytes_max:
            break
        try:
            court.verdict.outcomes.append(court.hear(request))
        except HeadraceError as refusal:
            court.tell(refusal, request)
            court.verdict.outcomes.append(refusal)
    court.verdict.group.global_ts = court.clock.last
    court.verdict.group.next_region_id = court.next_region_id
    return court.verdict


def not_put(error: HeadraceError, requests: Sequence[Request], begin: Begin) -> list[HeadraceError]:
    """Return the refusal of each request of a group that the store did not put.

    The group was certainly not written unless the writer stopped or ``error`` has the member ``side-effects: possible``.
    Even then an append may be a retry of what was stored before; only one whose place was still empty has left nothing.
    """
    unclear = isinstance(error, WriterStopped) or error.members.get("side-effects") == "possible"

    def refusal(request: Request) -> HeadraceError:
        tail = begin.tails.get(request.feed)
        if not isinstance(request, Append):
            return error
        certain = not unclear and tail is not None and not may_stand(request, tail)
        return refused_with(error, "none" if certain else "possible")

    return [refusal(request) for request in requests]


class _Planned(NamedTuple):
    """An append of this group that will be written: what a retry in the same group is compared with."""

    producer: str
    halves: Sequence[bytes]
    frame: FrameHeader


class _Judge:
    """One group's judging: the tails as they will be, and the frames planned so far."""

    def __init__(self, begin: Begin, terms: Terms, history: History) -> None:
        self.terms = terms
        self.history = history
        self.clock = HybridClock(begin.global_ts)
        self.end = begin.end
        self.next_region_id = begin.next_region_id
        self.tails = dict(begin.tails)
        self.own: set[str] = set()
        """Feeds whose tail is made here and given to nobody: its producers were copied, and are now moved on in place."""
        self.verdict = Verdict(Group())
        self.pending: dict[str, list[_Planned]] = {}
        self.broken: set[Chain] = set()

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
        tail = self._known(request.feed)
        if isinstance(request, Configure):
            return self._control(admission.configure(request, tail)) or tail
        return self._control(admission.release(request, tail)) or tail

    def tell(self, refusal: HeadraceError, request: Request) -> None:
        """Say in the refusal of an append what its sender may think of it."""
        if not isinstance(request, Append):
            return
        if request.chain is not None:
            self.broken.add(request.chain)
        tail = self.tails.get(request.feed)
        if tail is not None:
            refusal.members.setdefault("actual-next", tail.next_sequence_id)
            # Whatever was not compared may be a retry of what stands there, unless its place is still empty.
            if refusal.side_effects == "possible" and not may_stand(request, tail):
                refusal.members.setdefault("side-effects", "none")
        complete_refusal(refusal)

    # -- changes of a feed's state ------------------------------------------------------------------------------------

    def _register(self, ask: Register) -> FeedTail:
        admission.check_terms(ask)
        tail = self.tails.get(ask.feed)
        if tail is not None:
            return self._control(admission.register(ask, tail)) or tail
        made = admission.make_feed(ask, self.next_region_id)
        self._control(made)
        # Last: a number that was not given to a feed would look like one whose row is gone.
        self.next_region_id += 1
        return made.tail

    def _control(self, change: admission.Change | None) -> FeedTail | None:
        """Plan the control frame that says what changed; None, and no frame, where nothing did."""
        if change is None:
            return None
        tail = change.tail
        body = Control(change.kind, tail).encode()
        header = control_header(self.end, self.clock.tick(self.terms.wall_ms), tail, len(body))
        self._plan(header, b"", body, b"")
        self._move(tail)
        self.own.discard(tail.name)
        return tail

    # -- appends ------------------------------------------------------------------------------------------------------

    def _append(self, ask: Append) -> Appended:
        if ask.chain is not None and (ask.chain.failed or ask.chain in self.broken):
            raise StreamFailed
        check_append(ask)
        tail = self._known(ask.feed)
        epoch = admission.admit(ask, tail)
        tail = begin_where_named(ask, tail)
        try:
            check_sequence_ids(ask, tail)
        except DuplicateEntry as refusal:
            number = refusal.members["received"]
            self._control(admission.quarantine(ask, tail, number, self.terms.wall_ms))
            raise
        check_named(ask, tail)
        if tail.settings.expected_offset != "ignored":
            repeated = check_offsets(ask, tail, self._stored)
            if repeated is not None:
                return repeated
        return self._write(ask, tail, epoch)

    def _known(self, feed: str) -> FeedTail:
        tail = self.tails.get(feed)
        if tail is None:
            raise FeedNotFound(f"there is no feed {feed}", change_feed_id=feed)
        return tail

    def _stored(
        self, tail: FeedTail, first: int, last: int, wanted: Sequence[bytes]
    ) -> Iterator[StoredEntry | None]:
        """The entries of a range below next: those of the store, then those that this group will have written."""
        waiting = self.pending.get(tail.name, [])
        planned_from = waiting[0].frame.first_sequence_id if waiting else tail.next_sequence_id
        if first < planned_from:
            yield from self.history(tail, first, min(last, planned_from - 1), wanted)
        for planned in waiting:
            begins = planned.frame.first_sequence_id
            halves = planned.halves[max(0, first - begins) : max(0, last - begins + 1)]
            for half in halves:
                yield StoredEntry(planned.producer, half, planned.frame)

    def _write(self, ask: Append, tail: FeedTail, epoch: int) -> Appended:
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
        values = {**ask.area, Area.PRODUCER: ask.producer.encode()}
        if ask.transaction_ends:
            values[Area.TRANSACTION_ENDS] = struct.pack(
                f"<{len(ask.transaction_ends)}I", *ask.transaction_ends
            )
        area = encode_area(values)
        header = FrameHeader(
            FrameKind.ENTRIES, self.end, first, global_ts, epoch, ask.digest, tail.region_id, count, len(area),
            len(body), 0,
        )  # fmt: skip
        source = base64.b64encode(ask.area.get(Area.SOURCE_POSITION, b"")).decode()
        self._plan(header, area, body, lengths)
        # Once it is planned: nothing may be moved on in place for an append that is refused after all.
        self._move(tail.after(header, ask.producer, source, in_place=tail.name in self.own))
        self.own.add(tail.name)
        self.pending.setdefault(tail.name, []).append(_Planned(ask.producer, ask.halves, header))
        first_lsn = header.lsn(0)
        last_lsn = first_lsn if count == 1 else header.lsn(count - 1)
        return Appended(tail.incarnation, first, first + count - 1, first_lsn, last_lsn)

    def _move(self, tail: FeedTail) -> None:
        self.verdict.group.tails[tail.name] = self.tails[tail.name] = tail

    def _plan(self, header: FrameHeader, area: bytes, body: bytes, lengths: bytes) -> None:
        size = 2 * HEADER_SIZE + len(area) + len(body) + len(lengths)
        if size > FRAME_BYTES_MAX:
            raise TooLarge(f"this append makes a frame of {size} bytes; the most is {FRAME_BYTES_MAX}")
        self.verdict.group.frames.append((header, encode_frame(header, area, body, lengths)))
        self.end += size
