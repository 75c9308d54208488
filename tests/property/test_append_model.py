"""The append rules against a reference model, on every store: takeovers, twins, settings, appends, retries, drops.

The model keeps a list for each feed and knows nothing of frames, groups or digests. What it says of an append is compared
with the outcome in full: places, and the members of a refusal.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headrace.log.requests import NEXT, Configure, Release, Request
from headrace.testing.clock import ManualClock
from headrace.wire.frame import FIRST_POSITION
from tests.append_model import Feed, Said, told
from tests.bench import Bench, append, register
from tests.scale import scaled, sized
from tests.stores import Opener

SEGMENT_BYTES = 2500
NAMES = ("owned", "shared")
FEEDS = st.sampled_from(NAMES)
AGENTS = st.sampled_from(["a1", "a2", "a3"])
TERMS = ["optional", "optional", "optional", "required", "ignored"]
SENDERS = st.sampled_from(["one in", "one in", "one in", "one in", "one in", "a1", "a2", "a3"])
VALUES = st.lists(st.sampled_from(["", "x", "y", "z" * 200]), min_size=1, max_size=4)
RANDOM = st.randoms(use_true_random=True)


class AppendMachine(RuleBasedStateMachine):
    """Requests are queued with what the model says of them, then judged as one group."""

    opener: ClassVar[Opener]

    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-rules-"))
        self.clock = ManualClock()
        self.feeds = {name: Feed(shared=name == "shared") for name in NAMES}
        self.queue: list[tuple[Request, Said]] = []
        self.bench = self._opened()
        for name in NAMES:
            for agent in ("a1", "a2"):
                self.register(name, agent, "i1", takeover=False)

    def _opened(self) -> Bench:
        return Bench(type(self).opener(self.folder, SEGMENT_BYTES), self.clock)

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.flush()
            self.bench.store.close()
            shutil.rmtree(self.folder)

    # -- requests -----------------------------------------------------------------------------------------------------

    @rule(name=FEEDS, agent=AGENTS, instance=st.sampled_from(["i1", "i2"]), takeover=st.booleans())
    def register(self, name: str, agent: str, instance: str, takeover: bool) -> None:
        asked = register(name, agent, instance, takeover=takeover, shared=name == "shared")
        self.queue.append((asked, self.feeds[name].register(agent, instance, takeover=takeover)))

    @rule(name=FEEDS, agent=AGENTS, what=st.sampled_from(["other kind", "release", "release", *TERMS]))
    def administer(self, name: str, agent: str, what: Any) -> None:
        """Register as what the feed is not, release from quarantine, or change the settings."""
        feed = self.feeds[name]
        if what == "other kind":
            asked = register(name, agent, shared=name != "shared")
            self.queue.append((asked, {"code": "invalid-request"}))
        elif what == "release":
            feed.quarantined.discard(agent)
            self.queue.append((Release(name, agent), {}))
        else:
            feed.terms = what
            self.queue.append((Configure(name, expected_offset=what), {}))

    @rule(rng=RANDOM, name=FEEDS, sender=SENDERS, values=VALUES)
    def append(self, rng: Random, name: str, sender: str, values: list[str]) -> None:
        """Places are drawn around the end: none, right, wrong, or at odds with each other."""
        for number in range(rng.randint(1, 4)):
            feed, agent = self.feeds[name], self._sender(rng, name, sender)
            offsets, ids = [feed.next + at for at in range(len(values))], list[int]()
            if rng.random() < 0.5:
                shifts = [rng.choice([NEXT, 0, 0, 0, -2, 1, 3]) for _ in values]
                offsets = [
                    NEXT if by == NEXT else max(0, feed.next + at + by) for at, by in enumerate(shifts)
                ]
            if rng.random() < 0.3:
                offsets, ids = (
                    [],
                    [max(1, feed.next + at + rng.choice([*[0] * 6, -1, 5])) for at in range(len(values))],
                )
            incarnation = "other" if rng.random() < 0.05 else None
            self._send(
                name, agent, [f"{value}{number}" for value in values], _epoch(rng), offsets, ids, incarnation
            )

    @rule(rng=RANDOM, name=FEEDS, count=st.integers(3, 10), values=VALUES, sync=st.booleans())
    def append_much(self, rng: Random, name: str, count: int, values: list[str], sync: bool) -> None:
        """Enough that segments are sealed."""
        for number in range(count):
            agent = self._sender(rng, name, "one in")
            offsets = [self.feeds[name].next + at for at in range(len(values))]
            self._send(name, agent, [f"{value}{number}" for value in values], None, offsets, [], None)
            if sync:
                self.flush()

    @rule(rng=RANDOM, name=FEEDS, times=st.integers(1, 8))
    def retry(self, rng: Random, name: str, times: int) -> None:
        """What stands there already, cut anew, by who wrote it or another, perhaps with something changed."""
        feed = self.feeds[name]
        for _ in range(times if feed.entries else 0):
            first, kept = rng.choice(list(feed.last.values()))
            count = len(kept)
            if rng.random() < 0.6:
                first = rng.randint(max(feed.begin, feed.dropped - 3), feed.next - 1)
                count = rng.randint(1, min(6, feed.next - first))
            stored = feed.entries[first - feed.begin :][:count]
            values = [value for _, value in stored]
            change = rng.choice(["", "", "", "value", "longer"])
            if change == "value":  # of the same length
                values[-1] = values[-1][:-1] + "!" if values[-1] else "!"
            if change == "longer":
                values += ["more"]
            agent = stored[0][0] if rng.random() < 0.8 else self._sender(rng, name, "one in")
            self._send(name, agent, values, _epoch(rng), [first + at for at in range(len(values))], [], None)

    def _sender(self, rng: Random, name: str, sender: str) -> str:
        """An agent by its name, or one whose appends are let in."""
        feed = self.feeds[name]
        if sender != "one in":
            return sender
        return rng.choice(sorted(feed.epochs)) if feed.shared else feed.owner

    def _send(  # noqa: PLR0917 - the parts of an append, each drawn by its caller
        self,
        name: str,
        agent: str,
        values: list[str],
        epoch: str | None,
        offsets: list[int],
        ids: list[int],
        incarnation: str | None,
    ) -> None:
        feed = self.feeds[name]
        by = {"own": 0, "older": -1, "newer": 1}
        number = max(0, feed.epochs.get(agent, 0) + by[epoch]) if epoch is not None else None
        asked = append(
            name, *values, producer=agent, epoch=number, incarnation=incarnation,
            expected_offsets=offsets if any(place != NEXT for place in offsets) else (), sequence_ids=ids,
        )  # fmt: skip
        self.queue.append((asked, feed.append(asked, values)))

    # -- what happens to the server -----------------------------------------------------------------------------------

    @rule()
    def flush(self) -> None:
        """Judge what waits as one group."""
        queue, self.queue = self.queue, []
        if queue:
            outcomes = self.bench.ask(*[asked for asked, _ in queue])
            for (asked, said), outcome in zip(queue, outcomes, strict=True):
                assert told(outcome, said) == said, asked

    @rule()
    def restart(self) -> None:
        self.flush()
        self.bench.store.close()
        self.bench = self._opened()

    @rule(part=st.integers(1, 4))
    def drop(self, part: int) -> None:
        self.flush()
        store = self.bench.store
        store.drop_before(FIRST_POSITION + (store.end() - FIRST_POSITION) * part // 4)
        for name, feed in self.feeds.items():
            feed.dropped = self.bench.tail(name).dropped_sequence_id

    # -- what must hold -----------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.queue)
    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "bench"):
            return
        for name, feed in self.feeds.items():
            tail = self.bench.tail(name)
            assert (tail.shared, tail.owner, tail.epoch) == (feed.shared, feed.owner, feed.epoch)
            assert (tail.next_sequence_id, tail.agents) == (feed.next, feed.epochs)
            assert (set(tail.quarantines), tail.settings.expected_offset) == (feed.quarantined, feed.terms)
            kept = {
                number: value.encode()
                for number, (_, value) in enumerate(feed.entries, feed.begin)
                if number > feed.dropped
            }
            assert self.bench.values(name) == kept
            for agent, (first, values) in feed.last.items():
                place = tail.last_frame(agent)
                assert place is not None
                assert (place.first_sequence_id, place.count) == (first, len(values))


def _epoch(rng: Random) -> str | None:
    return rng.choice([*[None] * 9, "own", "older", "newer"])


@pytest.mark.timeout(600)
def test_appends_are_judged_as_the_model_says(opener: Opener, request: pytest.FixtureRequest) -> None:
    """On a store that is a database, an example takes a new database, so there are fewer of them.

    HEADRACE_TEST_SCALE runs more.
    """
    machine = type("AppendMachine", (AppendMachine,), {"opener": staticmethod(opener)})
    examples = sized(15, soak=40) if "files" in request.node.callspec.id else sized(3, soak=6)
    run_state_machine_as_test(
        machine, settings=settings(max_examples=scaled(examples), stateful_step_count=50, deadline=None)
    )
