"""A journal on the bench: requests judged and put as the writer does it, in one thread, with a clock set by hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from headrace.entries.entry import Change
from headrace.entries.lsn import Lsn
from headrace.errors import HeadraceError
from headrace.log.contract import Store
from headrace.log.history import entries_in_steps, frames_of_range
from headrace.log.requests import Append, Appended, Outcome, Register, Release, Request
from headrace.log.rules import StoredEntry, Terms, judge
from headrace.log.tail import FeedTail
from headrace.testing.clock import ManualClock
from headrace.wire.entry import decode_entry, digest, encode_half, half_of
from headrace.wire.frame import FIRST_POSITION, Area, FrameKind

AGENT = "agent-1"
INCARNATION = "0b8e9d3c-5d0f-4a55-8a6e-0f2f6f6f0001"


def half(value: bytes | str, **fields: Any) -> bytes:
    """Return the producer's half of a put of ``value``."""
    data = value.encode() if isinstance(value, str) else value
    return encode_half(Change(data, **({"key": b"k"} | fields)))


def append(
    feed: str, *values: bytes | str, producer: str = AGENT, source: bytes = b"", **places: Any
) -> Append:
    """Return an append of puts; ``places`` are fields of :class:`Append`."""
    halves = [half(value) for value in values]
    area = {Area.SOURCE_POSITION: source} if source else {}
    return Append(feed, producer, halves, digest(halves), area=area, **places)


def expecting(feed: str, first: int, *values: bytes | str, **fields: Any) -> Append:
    """Return an append that names the place of its first entry by expected offset, as the agent does."""
    offsets = [first, *[-1] * (len(values) - 1)]
    return append(feed, *values, expected_offsets=offsets, **fields)


def register(feed: str, agent_id: str = AGENT, instance: str = "", **fields: Any) -> Register:
    """Return a registration; the instance is the agent's id unless given."""
    given = {"tenant": "", "new_incarnation": INCARNATION} | fields
    return Register(feed, agent_id, instance or agent_id, **given)


def stored_entries(store: Store, tail: FeedTail, first: int, last: int) -> list[StoredEntry]:
    """Return the entries of a range, read back as a retry is compared with them."""
    return [entry for entry in entries_in_steps(store, tail, first, last) if entry is not None]


class Bench:
    """One store and the rules before it. ``clock`` is the wall clock of the next judging."""

    def __init__(self, store: Store, clock: ManualClock | None = None) -> None:
        self.store = store
        self.clock = clock if clock is not None else ManualClock()

    def ask(self, *requests: Request) -> list[Outcome | HeadraceError]:
        """Judge the requests as one group, put it, and return an outcome or a refusal for each."""
        begin = self.store.begin({request.feed for request in requests})
        verdict = judge(requests, begin, Terms(self.clock.wall_ms()), partial(entries_in_steps, self.store))
        self.store.put(begin, verdict.group)
        return verdict.outcomes

    def one(self, request: Request) -> Outcome:
        """Judge one request alone; raises its refusal."""
        outcome = self.ask(request)[0]
        if isinstance(outcome, HeadraceError):
            raise outcome
        return outcome

    def append(self, feed: str, *values: bytes | str, **fields: Any) -> Appended:
        """Append puts; raises the refusal."""
        return self.send(append(feed, *values, **fields))

    def send(self, request: Append) -> Appended:
        """Send an append; raises the refusal."""
        outcome = self.one(request)
        assert isinstance(outcome, Appended)
        return outcome

    def register(self, feed: str, agent_id: str = AGENT, instance: str = "", **fields: Any) -> FeedTail:
        """Register an agent with a feed; raises the refusal."""
        outcome = self.one(register(feed, agent_id, instance, **fields))
        assert isinstance(outcome, FeedTail)
        return outcome

    def release(self, feed: str, agent_id: str = AGENT) -> FeedTail:
        """Release an agent in a feed."""
        outcome = self.one(Release(feed, agent_id))
        assert isinstance(outcome, FeedTail)
        return outcome

    def tail(self, feed: str) -> FeedTail:
        """Return the durable tail of a feed that exists."""
        tail = self.store.tail(feed)
        assert tail is not None
        return tail

    def values(self, feed: str, first: int | None = None, last: int | None = None) -> dict[int, bytes]:
        """Read a feed's range (default: all that is retained): sequence id -> value, checked to be dense."""
        tail = self.tail(feed)
        at, end = first if first is not None else tail.oldest, last if last is not None else tail.head
        found: dict[int, bytes] = {}
        while at <= end:
            frames = frames_of_range(self.store, tail, at, end, entries_max=1000, bytes_max=1 << 20)
            for frame in frames:
                for index, stored in enumerate(frame.entries(), frame.header.first_sequence_id):
                    if at <= index <= end:
                        found[index] = decode_entry(stored, index).change.value
            at = frames[-1].header.last_sequence_id + 1
        assert sorted(found) == list(range(first if first is not None else tail.oldest, end + 1))
        return found

    def halves(self, feed: str) -> list[bytes]:
        """Return the producer's halves of everything that the feed retains."""
        tail = self.tail(feed)
        return [entry.half for entry in stored_entries(self.store, tail, tail.oldest, tail.head)]

    def walked(self, *, bytes_max: int = 1 << 20) -> list[tuple[Lsn, int]]:
        """Walk the whole journal: (LSN, sequence id) of each entry in journal order, checked against the stored text."""
        found: list[tuple[Lsn, int]] = []
        position = max(FIRST_POSITION, self.store.oldest_position())
        while position < self.store.end():
            frames = self.store.walk(position, bytes_max=bytes_max)
            for frame in frames:
                assert frame.header.position == position
                position = frame.header.end
                if frame.header.kind == FrameKind.ENTRIES:
                    found += _places(frame.header.first_sequence_id, list(frame.entries()))
        assert position == self.store.end()
        return found


def _places(first: int, entries: Sequence[memoryview]) -> list[tuple[Lsn, int]]:
    for stored in entries:
        half_of(stored)
    return [(decode_entry(stored, first + at).lsn, first + at) for at, stored in enumerate(entries)]
