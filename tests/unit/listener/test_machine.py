"""The state machine plays every transcript, and keeps its promises under any answers in any order."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import errors
from headrace.client.http_problem import problem_of
from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.listener import events
from headrace.listener.buffer import Buffer
from headrace.listener.events import State
from headrace.listener.machine import Machine
from headrace.wire.documents import EntryOut
from tests import transcripts
from tests.scale import scaled, sized

SCENARIOS = Path(__file__).parents[2] / "scenarios" / "listener"
ERRORS = ["server-unreachable", "not-registered", "store-unavailable"]
SNAPSHOT_ERRORS = ["server-unreachable", "snapshot-gone", "snapshot-broken", "snapshot-unavailable"]


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.txt")), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    did, told = transcripts.play(path)
    assert did == told


class World:
    """A server and a publisher that answer what is open, in any order, rightly or not, while the feed grows and shrinks."""

    def __init__(self, data: st.DataObject, *, hydrates: bool, honest: bool, filtered: bool = False) -> None:
        self.draw = data.draw
        self.honest = honest
        self.filtered = filtered
        self.every = self.draw(st.integers(2, 4)) if filtered else 1
        self.oldest, self.head = 1, self.draw(st.integers(0, 8))
        self.snapshots = 0
        self.taken: dict[str, int] = {}
        starts: list[events.Start] = ["oldest", "head", "snapshot"]
        start = self.draw(st.sampled_from(starts if hydrates else starts[:2]))
        buffer = Buffer(self.draw(st.integers(1, 6)))
        self.machine = Machine(start, None, hydrates=hydrates, filtered=filtered, buffer=buffer)
        self.open: list[events.Action] = []
        self.place: int | None = None
        self.delivered: list[int] = []
        self.leased = False
        self.ended: errors.HeadraceError | None = None
        self.do(self.machine.begin())

    def do(self, actions: list[events.Action]) -> None:
        for action in actions:
            match action:
                case events.Deliver(_, entries, place):
                    self.move(place, [entry.sequence_id for entry in entries])
                case events.Pass(place):
                    self.move(place, [])
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

    def move(self, place: Bookmark, given: list[int]) -> None:
        """``given`` is delivered, and the listener stands at ``place`` then."""
        assert self.place is not None
        if self.honest or not self.filtered:
            assert given == self.wanted(self.place + 1, place.sequence_id), (
                "neither skipped, nor again, nor out of order"
            )
        assert self.place < place.sequence_id
        assert given == sorted({number for number in given if self.place < number <= place.sequence_id})
        self.place = place.sequence_id
        self.delivered += given

    def wanted(self, first: int, last: int) -> list[int]:
        """What of the range the filter lets through: every second, third or fourth entry."""
        return [number for number in range(first, last + 1) if number % self.every == 0]

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
                return events.Polled("a", self.oldest, self.head, *self.looked(after + 1))
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
                return events.Received("a", self.oldest, self.head, *self.looked(first))
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

    def looked(self, first: int) -> tuple[list[EntryOut], int, Lsn | None]:
        last = min(self.head, first + self.draw(st.integers(0, 5)))
        return answered(self.entries(first, last), first, last)

    def entries(self, first: int, last: int) -> list[EntryOut]:
        numbers = self.wanted(first, last)
        if not self.honest:
            numbers = (
                self.draw(st.lists(st.integers(1, self.head + 2), max_size=6))
                if self.draw(st.booleans())
                else numbers
            )
        return [transcripts.entry(str(number)) for number in numbers]


def answered(entries: list[EntryOut], first: int, last: int) -> tuple[list[EntryOut], int, Lsn | None]:
    """What an answer says of a look at ``first`` … ``last``: nothing if that is empty."""
    return entries, max(first - 1, last), Lsn(last, 1, last) if last >= first else None


@settings(max_examples=scaled(sized(120, soak=240)), deadline=None)
@given(st.data(), st.booleans(), st.booleans(), st.booleans())
def test_in_whatever_order_calls_are_answered_entries_come_once_and_in_order(
    data: st.DataObject, hydrates: bool, honest: bool, filtered: bool
) -> None:
    world = World(data, hydrates=hydrates, honest=honest, filtered=filtered)
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
                return events.Polled("a", self.oldest, self.head, *self.following(after + 1))
            case events.Read(first, _) if first >= self.oldest:
                return events.Received("a", self.oldest, self.head, *self.following(first))
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

    def following(self, first: int) -> tuple[list[EntryOut], int, Lsn | None]:
        last = min(self.head, first + 2)
        entries = [transcripts.entry(str(number)) for number in self.wanted(first, last)]
        return answered(entries, first, last)


@settings(max_examples=scaled(sized(80, soak=160)), deadline=None)
@given(st.data(), st.booleans())
def test_when_all_is_well_again_everything_arrives(data: st.DataObject, filtered: bool) -> None:
    world = QuietWorld(data, hydrates=True, honest=True, filtered=filtered)
    for _ in range(data.draw(st.integers(0, 40))):
        world.step()
    world.settle()
    assert not world.leased or (world.place or 0) > world.head, "the lease is given back at the head"


def of_token_file() -> errors.HeadraceError:
    """What a client whose token is in a file makes of a 403."""
    error = errors.Forbidden()
    error.recovery = errors.Recovery.ATTEND
    return error


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (errors.Unauthenticated(), True),
        (errors.Forbidden(), False),
        (of_token_file(), True),
        (problem_of(404, b"default backend - 404"), True),
        (problem_of(408, b""), True),
        (problem_of(429, b"<html>"), True),
        (errors.FeedNotFound(), False),
        (errors.ListenerTaken(), False),
        (errors.InvalidRequest(), False),
    ],
    ids=lambda value: value.detail[:35] if isinstance(value, errors.HeadraceError) else str(value),
)
def test_what_is_waited_out_and_what_ends_a_listener(error: errors.HeadraceError, waits: bool) -> None:
    machine = Machine("oldest", None)
    machine.begin()
    for number in range(1, 9):
        actions = machine.take(events.Failed(error))
        if not waits:
            assert actions == [events.Stop(error)]
            return
        assert actions == [events.Wait(number, error)]
        assert machine.take(events.Waited()) == [events.Register()]


def test_a_drain_gives_a_refused_token_up() -> None:
    machine = Machine("oldest", None, drain=True, failures_max=2)
    machine.begin()
    error = errors.Unauthenticated()
    for _ in range(2):
        machine.take(events.Failed(error))
        machine.take(events.Waited())
    assert machine.take(events.Failed(error)) == [events.Stop(error)]
