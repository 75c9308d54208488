"""What a journal holds, read in every way that there is, against the world that it must be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import SequenceLost
from headrace.log.files.store import FileStore
from headrace.log.requests import Appended
from headrace.log.tail import FeedTail
from tests.append_model import Feed
from tests.bench import stored_entries
from tests.fault.simulated import World, shape_in, shape_of

Entry = tuple[Lsn, int, int]
"""LSN, region and sequence id of an entry met on a walk along the journal."""


class Contents:
    """LSNs as they were told or seen, by feed and sequence id; they never change. ``newest``: greater than all of them."""

    def __init__(self) -> None:
        self.lsns: dict[tuple[str, int], Lsn] = {}
        self.newest = ZERO

    def appended(self, feed: str, outcome: Appended) -> None:
        """Take note of an answer."""
        if not outcome.duplicate:
            assert outcome.first_lsn > self.newest, "LSNs strictly grow"
            self.newest = outcome.last_lsn
        self.see(feed, outcome.first_sequence_id, outcome.first_lsn)
        self.see(feed, outcome.last_sequence_id, outcome.last_lsn)

    def see(self, feed: str, sequence_id: int, lsn: Lsn) -> None:
        """Take note of an entry's LSN; it must be the one that was told before."""
        known = self.lsns.setdefault((feed, sequence_id), lsn)
        assert known == lsn, f"the LSN of {feed} {sequence_id} changed"

    def forget(self, feed: str, first: int) -> None:
        """A cut took away this feed's entries from ``first`` on: others may stand in their places."""
        for key in [key for key in self.lsns if key[0] == feed and key[1] >= first]:
            del self.lsns[key]

    def state_of(self, store: FileStore, states: Sequence[World]) -> World:
        """Return the one of ``states`` in which the journal is."""
        there = {tail.name: shape_in(tail) for tail in store.tails()}
        for state in states:
            if there == {name: shape_of(feed) for name, feed in state.feeds.items()}:
                return state
        last = {name: shape_of(feed) for name, feed in states[-1].feeds.items()}
        raise AssertionError(
            f"none of {len(states)} states is in the journal:\n{there}\nthe last was\n{last}"
        )

    def check(self, store: FileStore, world: World) -> None:
        """All that ``world`` retains is there, byte for byte and in order; nothing else is."""
        walked = list(walk(store))
        lsns = [lsn for lsn, _, _ in walked]
        assert all(one < other for one, other in pairwise(lsns)), "LSNs strictly grow"
        for name, feed in world.feeds.items():
            tail = store.tail(name)
            assert tail is not None
            there = [(number, lsn) for lsn, region, number in walked if region == tail.region_id]
            kept = [number for number in range(tail.oldest, feed.next) if number not in feed.lost]
            # A repair that was torn may have healed what it was to skip; it is then what it was.
            found = [number for number, _ in there if number not in feed.lost]
            assert found == kept, f"{name} is not dense"
            for number, lsn in there:
                self.see(name, number, lsn)
        self.newest = max([self.newest, *lsns[-1:]])
        self.read(store, world)

    def read(self, store: FileStore, world: World) -> None:
        """What a reader of each feed gets: what is there, whole and unchanged, and a clear word where something is not."""
        assert {tail.name for tail in store.tails()} == set(world.feeds)
        for name, feed in world.feeds.items():
            tail = store.tail(name)
            assert tail is not None
            assert tail.next_sequence_id == feed.next, f"{name} shows {tail.head}"
            for run in runs(feed, tail):
                try:
                    found = stored_entries(store, tail, run.first, run.last)
                except SequenceLost:
                    assert run.lost, f"{name}: {run} is there and can't be read"
                    continue
                wanted = feed.entries[run.first - feed.begin : run.last - feed.begin + 1]
                unchanged = [(entry.producer, entry.half) for entry in found] == wanted
                assert unchanged, f"{name}: {run} changed, or was skipped and nobody is told"


@dataclass(frozen=True)
class Run:
    """Sequence ids one behind the other, all of them there or all of them skipped by a repair."""

    first: int
    last: int
    lost: bool


def runs(feed: Feed, tail: FeedTail) -> Iterator[Run]:
    """Cut what is retained of a feed into runs."""
    first = tail.oldest
    for number in range(tail.oldest, feed.next):
        lost = number in feed.lost
        if number + 1 == feed.next or (number + 1 in feed.lost) != lost:
            yield Run(first, number, lost)
            first = number + 1


def walk(store: FileStore) -> Iterator[Entry]:
    """Yield what a stream over all feeds gets, in journal order; positions must join. It goes on behind what was skipped."""
    position = store.oldest_position()
    while position < store.end():
        try:
            frames = store.walk(position, bytes_max=1 << 20)
        except SequenceLost as lost:
            position = int(lost.members["resume-position"])
            continue
        for frame in frames:
            assert frame.header.position == position, "positions join"
            position = frame.header.end
            header = frame.header
            for at in range(header.count):
                yield header.lsn(at), header.region_id, header.first_sequence_id + at
