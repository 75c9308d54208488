"""The state machine plays every transcript, and keeps its promises under any answers in any order."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import errors
from headrace.listener import events
from headrace.listener.buffer import Buffer
from headrace.listener.events import State
from headrace.listener.machine import Machine
from headrace.wire.documents import EntryOut
from tests import transcripts
from tests.scale import scaled

SCENARIOS = Path(__file__).parents[2] / "scenarios" / "listener"
ERRORS = ["server-unreachable", "not-registered", "store-unavailable"]
SNAPSHOT_ERRORS = ["server-unreachable", "snapshot-gone", "snapshot-broken", "snapshot-unavailable"]


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.txt")), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    did, told = transcripts.play(path)
    assert did == told


class World:
    """A server and a publisher that answer what is open, in any order, rightly or not, while the feed grows and shrinks."""

    def __init__(self, data: st.DataObject, *, hydrates: bool, honest: bool) -> None:
        self.draw = data.draw
        self.honest = honest
        self.oldest, self.head = 1, self.draw(st.integers(0, 8))
        self.snapshots = 0
        self.taken: dict[str, int] = {}
        starts: list[events.Start] = ["oldest", "head", "snapshot"]
        start = self.draw(st.sampled_from(starts if hydrates else starts[:2]))
        self.machine = Machine(start, None, hydrates=hydrates, buffer=Buffer(self.draw(st.integers(1, 6))))
        self.open: list[events.Action] = []
        self.place: int | None = None
        self.delivered: list[int] = []
        self.leased = False
        self.ended: errors.HeadraceError | None = None
        self.do(self.machine.begin())

    def do(self, actions: list[events.Action]) -> None:
        for action in actions:
            match action:
                case events.Deliver(_, entries):
                    for entry in entries:
                        assert self.place is not None
                        assert entry.sequence_id == self.place + 1, (
                            "neither skipped, nor again, nor out of order"
                        )
                        self.place = entry.sequence_id
                        self.delivered.append(self.place)
                case events.Pin(bookmark):
                    assert self.place is None or bookmark.sequence_id >= self.place
                    self.place = bookmark.sequence_id
                case events.EndLease():
                    assert self.leased
                    self.leased = False
                case events.Stop(error):
                    self.ended = error
                case _:
                    self.open.append(action)
        polls = [action for action in self.open if isinstance(action, events.Poll)]
        assert len(polls) <= 1
        assert len(self.open) - len(polls) <= 1
        assert self.open or self.machine.state is State.ENDED, "there is always something to wait for"

    def step(self) -> None:
        """The feed changes, then one of the open calls is answered."""
        self.head += self.draw(st.integers(0, 3))
        if not self.leased and self.draw(st.booleans()):
            self.oldest = min(self.head + 1, self.oldest + self.draw(st.integers(0, 4)))
        action = self.open.pop(self.draw(st.integers(0, len(self.open) - 1)))
        self.do(self.machine.take(self.answer(action)))

    def answer(self, action: events.Action) -> events.Event:
        fails = self.draw(st.integers(0, 5)) == 0
        match action:
            case events.Wait() | events.Pause():
                return events.Waited()
            case events.Poll(after, _):
                if fails:
                    return events.PollFailed(errors.by_code(self.draw(st.sampled_from(ERRORS)))())
                if after + 1 < self.oldest:
                    return events.PollFailed(errors.SequenceNotAvailable())
                return events.Polled("a", self.oldest, self.head, self.entries(after + 1))
            case _ if fails:
                codes = SNAPSHOT_ERRORS if isinstance(action, events.Fetch | events.Apply) else ERRORS
                codes = ERRORS[:1] if isinstance(action, events.Register) else codes
                error = errors.by_code(self.draw(st.sampled_from(codes)))()
                return events.Failed(error, self.draw(st.booleans()))
            case events.Register():
                return events.Registered("a", self.oldest, self.head)
            case events.Read(first, _):
                if first < self.oldest:
                    return events.Failed(errors.SequenceNotAvailable())
                return events.Received("a", self.oldest, self.head, self.entries(first))
            case events.Lease():
                self.leased = True
                return events.Leased("a", self.oldest, self.head)
            case events.Fetch(at_least, snapshot_id):
                return self.fetched(at_least, snapshot_id)
            case events.Apply():
                return events.Applied()
        raise AssertionError(f"nothing answers {action}")

    def fetched(self, at_least: int, snapshot_id: str | None) -> events.Event:
        if snapshot_id is None:
            if self.draw(st.booleans()):
                return events.BeingMade(1.0)
            self.snapshots += 1
            snapshot_id = f"s{self.snapshots}"
            lowest = at_least if self.honest else 0
            self.taken[snapshot_id] = self.draw(st.integers(lowest, max(lowest, self.head) + 2))
        return events.Found(snapshot_id, self.taken[snapshot_id], "a")

    def entries(self, first: int) -> list[EntryOut]:
        numbers = list(range(first, min(self.head, first + self.draw(st.integers(0, 5))) + 1))
        if not self.honest:
            numbers = (
                self.draw(st.lists(st.integers(1, self.head + 2), max_size=6))
                if self.draw(st.booleans())
                else numbers
            )
        return [transcripts.entry(str(number)) for number in numbers]


@settings(max_examples=scaled(120), deadline=None)
@given(st.data(), st.booleans(), st.booleans())
def test_in_whatever_order_calls_are_answered_entries_come_once_and_in_order(
    data: st.DataObject, hydrates: bool, honest: bool
) -> None:
    world = World(data, hydrates=hydrates, honest=honest)
    for _ in range(data.draw(st.integers(0, 60))):
        if world.machine.state is State.ENDED:
            break
        world.step()
    if hydrates and honest:
        assert world.ended is None, "an honest server and a publisher with snapshots: it always goes on"


class QuietWorld(World):
    """Once the feed rests and nothing fails any more, everything is delivered."""

    def settle(self) -> None:
        for _ in range(200):
            if self.machine.state is State.POLLING and self.place is not None and self.place >= self.head:
                return
            reads = [action for action in self.open if not isinstance(action, events.Poll)]
            action = reads[0] if reads else self.open[0]
            self.open.remove(action)
            self.do(self.machine.take(self.rightly(action)))
        raise AssertionError(f"{self.machine.state} at {self.place} of {self.head}")

    def rightly(self, action: events.Action) -> events.Event:
        match action:
            case events.Poll(after, _) if after + 1 >= self.oldest:
                return events.Polled("a", self.oldest, self.head, self.following(after + 1))
            case events.Read(first, _) if first >= self.oldest:
                return events.Received("a", self.oldest, self.head, self.following(first))
            case events.Poll():
                return events.PollFailed(errors.SequenceNotAvailable())
            case events.Fetch(at_least, None):
                self.taken["last"] = max(at_least, self.head)
                return events.Found("last", self.taken["last"], "a")
            case events.Fetch(_, str(snapshot_id)):
                return events.Found(snapshot_id, self.taken[snapshot_id], "a")
            case events.Read():
                return events.Failed(errors.SequenceNotAvailable())
            case events.Register():
                return events.Registered("a", self.oldest, self.head)
            case events.Lease():
                self.leased = True
                return events.Leased("a", self.oldest, self.head)
            case events.Apply():
                return events.Applied()
        return events.Waited()

    def following(self, first: int) -> list[EntryOut]:
        return [transcripts.entry(str(number)) for number in range(first, min(self.head, first + 2) + 1)]


@settings(max_examples=scaled(80), deadline=None)
@given(st.data())
def test_when_all_is_well_again_everything_arrives(data: st.DataObject) -> None:
    world = QuietWorld(data, hydrates=True, honest=True)
    for _ in range(data.draw(st.integers(0, 40))):
        world.step()
    world.settle()
    assert not world.leased or (world.place or 0) > world.head, "the lease is given back at the head"
