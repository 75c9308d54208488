"""The log against a plain Python model, a list for each feed: groups, retries, takeovers, drops, power failures."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.errors import (
    DuplicateEntry,
    FeedOwned,
    Fenced,
    HeadraceError,
    NotRegistered,
    OffsetMismatch,
    Quarantined,
    SequenceGap,
)
from headrace.log.files.store import FileStore
from headrace.log.requests import Append, Appended, Outcome, Release, Request
from headrace.log.tail import FeedTail
from headrace.testing.clock import ManualClock
from headrace.testing.disk import PowerLossDisk
from headrace.wire.frame import FIRST_POSITION
from tests.bench import Bench, append, expecting, register
from tests.scale import scaled, sized

SEGMENT_BYTES = 2500
FEEDS = st.sampled_from(["f1", "f2"])
AGENTS = st.sampled_from(["a1", "a2"])
SENDERS = st.sampled_from(["owner", "owner", "owner", "owner", "a1", "a2", "stranger"])
VALUES = st.lists(st.sampled_from(["", "x", "y", "z" * 200]), min_size=1, max_size=4)

Kind = type[HeadraceError]
Expected = Kind | tuple[int, int, bool] | None
"""A refusal's class, (first, last, duplicate) of an append, or None where any tail will do."""


@dataclass
class Feed:
    """What a feed should hold: ``entries`` are (producer, value) from ``begin`` on."""

    owner: str
    instance: str
    begin: int = 1
    entries: list[tuple[str, str]] = field(default_factory=list)
    agents: set[str] = field(default_factory=set)
    quarantined: set[str] = field(default_factory=set)
    last: dict[str, tuple[int, list[str]]] = field(default_factory=dict)
    dropped: int = 0

    @property
    def next(self) -> int:
        return self.begin + len(self.entries)

    def refusal(self, producer: str) -> Kind | None:
        if producer not in self.agents:
            return NotRegistered
        if producer != self.owner:
            return Fenced
        return Quarantined if producer in self.quarantined else None

    def take(self, producer: str, values: list[str]) -> tuple[int, int, bool]:
        first = self.next
        self.entries += [(producer, value) for value in values]
        self.last[producer] = (first, values)
        return first, self.next - 1, False

    def holds(self, producer: str, first: int, values: list[str]) -> bool:
        at = first - self.begin
        kept = first > self.dropped and at >= 0
        stored = kept and self.entries[at : at + len(values)] == [(producer, value) for value in values]
        return stored or self.last.get(producer) == (first, values)


class LogMachine(RuleBasedStateMachine):
    """Requests are queued with what the model says of them, then judged as one group."""

    @initialize()
    def open(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="headrace-model-"))
        self.clock = ManualClock()
        self.feeds: dict[str, Feed] = {}
        self.queue: list[tuple[Request, Expected]] = []
        self.generation = 0
        self.disk = PowerLossDisk()
        self.bench = self._opened(self.root / "0")
        for feed in ("f1", "f2"):
            self.register(feed, "a1", "i1", takeover=False)

    def _opened(self, folder: Path) -> Bench:
        self.folder = folder
        return Bench(FileStore(folder, disk=self.disk, segment_bytes=SEGMENT_BYTES), self.clock)

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.flush()
            self.bench.store.close()
            shutil.rmtree(self.root)

    # -- requests -----------------------------------------------------------------------------------------------------

    @rule(feed=FEEDS, agent=AGENTS, instance=st.sampled_from(["i1", "i2"]), takeover=st.booleans())
    def register(self, feed: str, agent: str, instance: str, takeover: bool) -> None:
        known = self.feeds.get(feed)
        expected: Expected = None
        if known is None:
            self.feeds[feed] = Feed(agent, instance, agents={agent})
        elif known.owner != agent and not takeover:
            expected = FeedOwned
        else:
            known.owner, known.instance = agent, instance
            known.agents.add(agent)
        self.queue.append((register(feed, agent, instance, takeover=takeover), expected))

    @rule(name=FEEDS, sender=SENDERS, values=VALUES, named=st.booleans())
    def append(self, name: str, sender: str, values: list[str], named: bool) -> None:
        """At the end: without a place, or named by expected offset."""
        feed, agent = self._met(name, sender)
        expected: Expected = feed.refusal(agent)
        made = (
            expecting(name, feed.next, *values, producer=agent)
            if named
            else append(name, *values, producer=agent)
        )
        self.queue.append((made, expected or feed.take(agent, values)))

    @rule(names=st.lists(FEEDS, min_size=3, max_size=12), values=VALUES, groups=st.booleans())
    def append_much(self, names: list[str], values: list[str], groups: bool) -> None:
        """Enough that segments are sealed."""
        for number, name in enumerate(names):
            self.append(name, "owner", [f"{value}{number}" for value in values], named=False)
            if groups:
                self.flush()

    @rule(
        data=st.data(),
        name=FEEDS,
        sender=SENDERS,
        change=st.sampled_from(["none", "none", "value", "longer"]),
    )
    def retry(self, data: st.DataObject, name: str, sender: str, change: str) -> None:
        """Entries that stand there already, cut anew, perhaps with something changed."""
        feed, agent = self._met(name, sender)
        if not feed.entries:
            return
        first = data.draw(st.integers(feed.begin, feed.next - 1))
        count = data.draw(st.integers(1, min(6, feed.next - first)))
        values = [value for _, value in feed.entries[first - feed.begin :][:count]]
        if change == "value":
            values[-1] += "!"
        if change == "longer":
            values += ["more"]
        expected: Expected = feed.refusal(agent)
        if expected is None:
            same = feed.holds(agent, first, values)
            expected = (first, first + len(values) - 1, True) if same else OffsetMismatch
        self.queue.append((expecting(name, first, *values, producer=agent), expected))

    @rule(name=FEEDS, sender=SENDERS, values=VALUES, ahead=st.integers(1, 3))
    def append_ahead(self, name: str, sender: str, values: list[str], ahead: int) -> None:
        feed, agent = self._met(name, sender)
        made = expecting(name, feed.next + ahead, *values, producer=agent)
        self.queue.append((made, feed.refusal(agent) or OffsetMismatch))

    @rule(name=FEEDS, sender=SENDERS, values=VALUES, shift=st.sampled_from([-1, 0, 0, 0, 1, 70]))
    def append_by_sequence_id(self, name: str, sender: str, values: list[str], shift: int) -> None:
        feed, agent = self._met(name, sender)
        number = max(1, feed.next + shift)
        made = append(name, *values, producer=agent, sequence_ids=[number, *[-1] * (len(values) - 1)])
        expected: Expected = feed.refusal(agent)
        if expected is None and feed.entries and number < feed.next:
            feed.quarantined.add(agent)
            expected = DuplicateEntry
        elif expected is None and feed.entries and number > feed.next:
            expected = SequenceGap
        elif expected is None:
            feed.begin = feed.begin if feed.entries else number
            expected = feed.take(agent, values)
        self.queue.append((made, expected))

    @rule(name=FEEDS, sender=SENDERS)
    def release(self, name: str, sender: str) -> None:
        feed, agent = self._met(name, sender)
        feed.quarantined.discard(agent)
        self.queue.append((Release(name, agent), None))

    def _met(self, name: str, sender: str) -> tuple[Feed, str]:
        feed = self.feeds[name]
        return feed, feed.owner if sender == "owner" else sender

    # -- what happens to the server -----------------------------------------------------------------------------------

    @rule()
    def flush(self) -> None:
        """Judge what waits as one group."""
        if self.queue:
            outcomes = self.bench.ask(*[request for request, _ in self.queue])
            for (request, expected), outcome in zip(self.queue, outcomes, strict=True):
                self._check(request, expected, outcome)
            self.queue = []

    def _check(self, request: Request, expected: Expected, outcome: Outcome | HeadraceError) -> None:
        if isinstance(expected, type):
            assert type(outcome) is expected, (request, outcome)
        elif expected is None:
            assert isinstance(outcome, FeedTail), (request, outcome)
        else:
            assert isinstance(request, Append)
            assert isinstance(outcome, Appended), (request, outcome)
            assert (outcome.first_sequence_id, outcome.last_sequence_id, outcome.duplicate) == expected

    @rule(by_ms=st.integers(-1000, 5000))
    def move_clock(self, by_ms: int) -> None:
        self.clock.ms += by_ms

    @rule()
    def reopen(self) -> None:
        self.flush()
        self.bench.store.close()
        self.bench = self._opened(self.folder)

    @rule(mark_written_back=st.booleans())
    def lose_power(self, mark_written_back: bool) -> None:
        """What waited is lost with the machine's memory; everything answered must come back."""
        self.flush()
        self.generation += 1
        left = self.root / str(self.generation)
        self.disk.lose_power(self.folder, left, written_back={"mark"} if mark_written_back else ())
        self.bench.store.close()
        self.disk = PowerLossDisk()
        self.disk.adopt(left)
        self.bench = self._opened(left)

    @rule(part=st.integers(1, 4))
    def drop(self, part: int) -> None:
        self.flush()
        store = self.bench.store
        oldest = store.drop_before(FIRST_POSITION + (store.end() - FIRST_POSITION) * part // 4)
        assert oldest == store.oldest_position()
        for name, feed in self.feeds.items():
            feed.dropped = self.bench.tail(name).dropped_sequence_id

    # -- what must hold -----------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.queue)
    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "bench"):
            return
        walked = self.bench.walked()
        lsns = [lsn for lsn, _ in walked]
        assert lsns == sorted(set(lsns)), "journal order is LSN order"
        for name, feed in self.feeds.items():
            tail = self.bench.tail(name)
            assert (tail.next_sequence_id, tail.owner) == (feed.next if feed.entries else 1, feed.owner)
            assert set(tail.quarantines) == feed.quarantined
            kept = {
                number: value.encode()
                for number, (_, value) in enumerate(feed.entries, feed.begin)
                if number > feed.dropped
            }
            assert self.bench.values(name) == kept
            assert [number for lsn, number in walked if lsn.region_id == tail.region_id] == list(kept)


LogMachine.TestCase.settings = settings(
    max_examples=sized(scaled(35), soak=scaled(80)), stateful_step_count=40, deadline=None
)
TestLog = LogMachine.TestCase
