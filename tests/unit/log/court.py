"""The rules without a store: what judging plans is taken over at once, and replayed to see that it comes to the same."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import msgspec

from headrace.errors import HeadraceError
from headrace.log.contract import Begin
from headrace.log.replay import Replay
from headrace.log.requests import Append, Appended, Outcome, Request
from headrace.log.rules import StoredEntry, Terms, judge
from headrace.log.tail import FeedTail, JournalState
from headrace.wire.entry import half_of
from headrace.wire.frame import FIRST_POSITION, Area, Frame, FrameKind, decode_area
from tests.bench import AGENT, append, register

FEED = "vmapi::vm"
WALL_MS = 1_760_000_000_000


class Court:
    """Feeds as judged so far. ``wall_ms`` is the wall clock, ``frames`` everything that was planned, ``raw`` its bytes."""

    def __init__(self, *, global_ts: int = 0) -> None:
        self.end, self.global_ts, self.next_region_id = FIRST_POSITION, global_ts, 1
        self.tails: dict[str, FeedTail] = {}
        self.frames: list[Frame] = []
        self.raw: list[bytes] = []
        self.wall_ms = WALL_MS
        self.lead_ms_max = 3_600_000

    def ask(self, *requests: Request) -> list[Outcome | HeadraceError]:
        """Judge the requests as one group."""
        names = {request.feed for request in requests}
        before = copy.deepcopy(self.tails)
        asked = {name: tail for name, tail in self.tails.items() if name in names}
        begin = Begin(self.end, self.global_ts, self.next_region_id, asked)
        terms = Terms(self.wall_ms, "eu", self.lead_ms_max)
        verdict = judge(requests, begin, terms, self.history)
        assert self.tails == before, "judging changes no value that it was given"
        replay = Replay(JournalState(self.global_ts, self.next_region_id, feeds=dict(self.tails)))
        for header, data in verdict.group.frames:
            frame = Frame(data)
            assert frame.header._replace(payload_crc=0) == header._replace(payload_crc=0)
            assert header.position == self.end
            self.end = header.end
            self.frames.append(frame)
            self.raw.append(data)
            replay.apply(frame)
        self.tails |= verdict.group.tails
        assert replay.state.feeds == self.tails
        assert self.global_ts <= replay.state.global_ts <= verdict.group.global_ts
        assert replay.state.next_region_id == verdict.group.next_region_id
        self.global_ts, self.next_region_id = verdict.group.global_ts, verdict.group.next_region_id
        return verdict.outcomes

    def one(self, request: Request) -> Outcome:
        """Judge one request; raises its refusal."""
        outcome = self.ask(request)[0]
        if isinstance(outcome, HeadraceError):
            raise outcome
        return outcome

    def send(self, request: Append) -> Appended:
        """Judge one append; raises its refusal."""
        outcome = self.one(request)
        assert isinstance(outcome, Appended)
        return outcome

    def append(self, *values: str, feed: str = FEED, **fields: Any) -> Appended:
        """Judge one append of puts; raises its refusal."""
        return self.send(append(feed, *values, **fields))

    def register(
        self, agent_id: str = AGENT, instance: str = "", feed: str = FEED, **fields: Any
    ) -> FeedTail:
        """Judge one registration; raises its refusal."""
        outcome = self.one(register(feed, agent_id, instance, **fields))
        assert isinstance(outcome, FeedTail)
        return outcome

    def tail(self, feed: str = FEED) -> FeedTail:
        """The feed's tail."""
        return self.tails[feed]

    def drop(self, through: int, feed: str = FEED) -> None:
        """Let retention drop the feed's whole frames up to the sequence id ``through``."""
        region_id, lsn = self.tail(feed).region_id, ""
        for frame in list(self.frames):
            header = frame.header
            if (
                header.region_id == region_id
                and header.kind == FrameKind.ENTRIES
                and header.last_sequence_id <= through
            ):
                self.frames.remove(frame)
                lsn = str(header.lsn(header.count - 1))
        self.tails[feed] = msgspec.structs.replace(
            self.tail(feed), dropped_sequence_id=through, dropped_lsn=lsn
        )

    def history(
        self, tail: FeedTail, first: int, last: int, _wanted: Sequence[bytes] = ()
    ) -> list[StoredEntry]:
        """What a store would read back."""
        assert tail.oldest <= first <= last
        found = []
        for frame in self.frames:
            if frame.header.region_id == tail.region_id and frame.header.kind == FrameKind.ENTRIES:
                producer = decode_area(frame.area)[Area.PRODUCER].decode()
                for sequence_id, stored in enumerate(frame.entries(), frame.header.first_sequence_id):
                    if first <= sequence_id <= last:
                        found.append(StoredEntry(producer, bytes(half_of(stored)), frame.header))
        assert len(found) == last - first + 1, "a store is asked only for what it has"
        return found
