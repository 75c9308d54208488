"""Parallel listeners, each with one part of the keys, killed at any moment: together they get all, each key in order."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.listener import EntryFilter, Shard, events
from headrace.listener.buffer import Buffer
from headrace.listener.events import State
from headrace.listener.machine import Machine
from headrace.wire.documents import EntryOut
from headrace.wire.generated import wal_pb2
from tests import transcripts
from tests.scale import scaled, sized

PARTS = 8
LIVES_MAX = 4
MEMBERS = ["nics", "alias", "ram"]

entries = st.lists(
    st.builds(
        wal_pb2.WalEntry,
        key=st.sampled_from([f"vm-{number}".encode() for number in range(12)]),
        op_type=st.sampled_from([wal_pb2.OP_PUT, wal_pb2.OP_PUT, wal_pb2.OP_DELETE]),
        changed=st.lists(st.sampled_from(MEMBERS), min_size=1, max_size=2),
        control=st.sampled_from([""] * 9 + ["schema"]),
    ),
    max_size=60,
)


@dataclass
class Consumer:
    """One listener over all its lives: what it was given, and the bookmark that a kill leaves."""

    feed: list[wal_pb2.WalEntry]
    wanted: EntryFilter
    rng: random.Random
    head: int
    stored: Bookmark | None = None
    given: int = 0

    def __post_init__(self) -> None:
        self.lives: list[list[int]] = []

    def live(self, *, killed: bool) -> None:
        """Run until all of the feed was looked at, or until it is killed in the middle of something."""
        machine = Machine("oldest", self.stored, filtered=True, buffer=Buffer(self.rng.randint(1, 8)))
        self.given = self.stored.sequence_id if self.stored is not None else 0
        self.lives.append([])
        waiting = self.done(machine.begin())
        while not (machine.state is State.POLLING and self.head == len(self.feed) == self.place):
            if killed and self.rng.random() < 0.1:
                return
            self.head = min(len(self.feed), self.head + self.rng.randint(0, 4))
            waiting += self.done(machine.take(self.answered(waiting.pop(self.rng.randrange(len(waiting))))))

    def done(self, actions: list[events.Action]) -> list[events.Action]:
        """Do what is not a call, as the listener does it; the bookmark never moves past what was not done."""
        calls: list[events.Action] = []
        for action in actions:
            match action:
                case events.Pin(place):
                    self.stored, self.place = place, place.sequence_id
                case events.Deliver(_, delivered, place):
                    self.lives[-1] += [entry.sequence_id for entry in delivered]
                    self.given, self.place = delivered[-1].sequence_id, place.sequence_id
                    if self.rng.random() < 0.6:
                        self.stored = place
                case events.Pass(place):
                    self.place = place.sequence_id
                    if self.rng.random() < 0.6 and self.stored and self.stored.sequence_id >= self.given:
                        self.stored = place
                case events.Stop(error):
                    raise error
                case _:
                    calls.append(action)
        return calls

    def answered(self, call: events.Action) -> events.Event:
        match call:
            case events.Register():
                return events.Registered("a", 1, self.head)
            case events.Read(first, _):
                return events.Received("a", 1, self.head, *self.looked(first))
            case events.Poll(after, _):
                return events.Polled("a", 1, self.head, *self.looked(after + 1))
        return events.Waited()

    def looked(self, first: int) -> tuple[list[EntryOut], int, Lsn | None]:
        last = min(self.head, first + self.rng.randint(0, 9))
        passed = [n for n in range(first, last + 1) if self.wanted.passes(self.feed[n - 1])]
        lsn = Lsn(last, 1, last) if last >= first else None
        return [transcripts.entry(str(number)) for number in passed], max(first - 1, last), lsn


@settings(max_examples=sized(scaled(30), soak=scaled(60)), deadline=None)
@given(
    entries,
    st.sets(st.sampled_from(MEMBERS)),
    st.one_of(st.none(), st.just(b"vm-3")),
    st.randoms(use_true_random=False),
)
def test_all_parts_together_get_everything_each_key_in_order_whenever_they_are_killed(
    feed: list[wal_pb2.WalEntry], changed: set[str], key: bytes | None, rng: random.Random
) -> None:
    together: dict[int, int] = {}
    for number in range(1, PARTS + 1):
        wanted = EntryFilter(frozenset(changed), key, Shard(number, PARTS))
        consumer = Consumer(feed, wanted, rng, rng.randint(0, len(feed)))
        for life in range(LIVES_MAX):
            consumer.live(killed=life < LIVES_MAX - 1)
        for delivered in consumer.lives:
            assert delivered == sorted(set(delivered)), "in order, each once in one life"
        seen = {entry for delivered in consumer.lives for entry in delivered}
        assert seen == {n for n, entry in enumerate(feed, 1) if wanted.passes(entry)}
        for entry in seen:
            together[entry] = together.get(entry, 0) + 1
    everything = EntryFilter(frozenset(changed), key)
    assert set(together) == {n for n, entry in enumerate(feed, 1) if everything.passes(entry)}
    for entry, times in together.items():
        assert times == (PARTS if feed[entry - 1].control else 1), "control entries concern everybody"
