"""One group's judging: each request against what the ones before it will have done, and the frames that follow from it."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.entries.feed import key_prefix
from headrace.entries.hlc import HybridClock
from headrace.errors import (
    ClockLead,
    DuplicateEntry,
    FeedNotFound,
    FeedRecreated,
    Fenced,
    HeadraceError,
    NotRegistered,
    Quarantined,
    StreamFailed,
    TooLarge,
    complete_refusal,
)
from headrace.log.contract import Begin, Group
from headrace.log.control import Control
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

NO_DIGEST = bytes(16)


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
    """Judge ``requests`` in order, each against what the ones before it will have done.

    An append's refusal always has the members ``retryable``, ``side-effects`` and, if there is such a feed,
    ``actual-next``: see :func:`headrace.errors.refusal_of`.
    """
    court = _Judge(begin, terms, history)
    for request in requests:
        try:
            court.verdict.outcomes.append(court.hear(request))
        except HeadraceError as refusal:
            court.tell(refusal, request)
            court.verdict.outcomes.append(refusal)
    court.verdict.group.global_ts = court.clock.last
    court.verdict.group.next_region_id = court.next_region_id
    return court.verdict


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
            not_let_in = isinstance(
                refusal, FeedRecreated | NotRegistered | Fenced | Quarantined | StreamFailed
            )
            if not_let_in and may_stand(request, tail):
                refusal.members.setdefault("side-effects", "possible")
        complete_refusal(refusal)

    # -- changes of a feed's state ------------------------------------------------------------------------------------

    def _register(self, ask: Register) -> FeedTail:
        admission.check_terms(ask)
        tail = self.tails.get(ask.feed)
        if tail is not None:
            return self._control(admission.register(ask, tail)) or tail
        made = admission.make_feed(ask, self.next_region_id)
        self.next_region_id += 1
        self._control(made)
        return made.tail

    def _control(self, change: admission.Change | None) -> FeedTail | None:
        """Plan the control frame that says what changed; None, and no frame, where nothing did."""
        if change is None:
            return None
        tail = change.tail
        header = FrameHeader(
            FrameKind.CONTROL, self.end, tail.next_sequence_id, self.clock.tick(self.terms.wall_ms), tail.epoch,
            NO_DIGEST, tail.region_id, 0, 0, 0, 0,
        )  # fmt: skip
        self._plan(header, b"", Control(change.kind, tail).encode(), b"", tail)
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

    def _stored(self, tail: FeedTail, first: int, last: int) -> Sequence[StoredEntry]:
        """The entries of a range below next: those of the store, then those that this group will have written."""
        waiting = self.pending.get(tail.name, [])
        planned_from = waiting[0].frame.first_sequence_id if waiting else tail.next_sequence_id
        stored: list[StoredEntry] = []
        if first < planned_from:
            stored.extend(self.history(tail, first, min(last, planned_from - 1)))
        for planned in waiting:
            begins = planned.frame.first_sequence_id
            halves = planned.halves[max(0, first - begins) : max(0, last - begins + 1)]
            stored.extend(StoredEntry(planned.producer, half, planned.frame) for half in halves)
        return stored

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
        area = {**ask.area, Area.PRODUCER: ask.producer.encode()}
        if ask.transaction_ends:
            area[Area.TRANSACTION_ENDS] = struct.pack(f"<{len(ask.transaction_ends)}I", *ask.transaction_ends)
        header = FrameHeader(
            FrameKind.ENTRIES, self.end, first, global_ts, epoch, ask.digest, tail.region_id, count, 0, 0, 0,
        )  # fmt: skip
        source = base64.b64encode(ask.area.get(Area.SOURCE_POSITION, b"")).decode()
        frame = self._plan(header, encode_area(area), body, lengths, tail.after(header, ask.producer, source))
        self.pending.setdefault(tail.name, []).append(_Planned(ask.producer, ask.halves, frame))
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
