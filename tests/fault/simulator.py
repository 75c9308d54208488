"""A journal's whole life on a disk in memory, by a seed: appends, retries, drops, faults, crashes at any step, recoveries.

It goes through the real writer (its order of durable, visible, answered), the real rules and the real file store. After
each recovery :meth:`Simulation.check` compares the journal with what had been answered and what had been visible.
``python -m tests.fault.simulator SEED [COUNT]`` runs some seeds by hand; a seed that fails prints its last steps.
"""

from __future__ import annotations

import errno
import random
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import Fenced, HeadraceError, OffsetMismatch, StoreUnavailable, WriterStopped, refusal_of
from headrace.log.files.store import FileStore
from headrace.log.history import stored_entries
from headrace.log.requests import Append, Appended, Outcome, Request
from headrace.log.tail import FeedTail
from headrace.log.writer import Writer
from headrace.runtime.logs import configure_logs
from headrace.testing.clock import ManualClock
from headrace.testing.disk import Fault, Step
from headrace.testing.memory import Crash, MemoryDisk, PowerCut
from headrace.wire.frame import FIRST_POSITION
from headrace.wire.mark import decode_marks
from tests.bench import append, expecting, register
from tests.fault.simulated import Asked, Feed, twisted, with_halves

FOLDER = Path("/machine/data")
MARK = FOLDER / "mark"


class Simulation:
    """One seed's story. :meth:`run` raises AssertionError if something that was promised does not hold."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = MemoryDisk(self.rng)
        self.clock = ManualClock()
        self.feeds = {name: Feed() for name in ("a", "b", "c")[: self.rng.randint(1, 3)]}
        self.segment_bytes = self.rng.choice((900, 2000, 6000, 30_000))
        self.unclear: list[Request] = []
        self.stored: list[tuple[Append, int]] = []
        self.drop_asked = FIRST_POSITION
        self.shown_end = FIRST_POSITION
        self.newest = ZERO
        self.number = 0
        self.recoveries = 0
        self.story: deque[str] = deque(maxlen=60)
        self._store: FileStore | None = None

    # -- lives --------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Some lives of a server, each ended by a crash or a stop; at the end one that must find everything."""
        for _ in range(self.rng.randint(2, 5)):
            self.live()
        self.calm()
        self.opened()
        self.check()

    def calm(self) -> None:
        self.disk.faults.clear()
        self.disk.crash_at = None

    def live(self) -> None:
        if self.rng.random() < 0.85:
            self.disk.crash_at = self.disk.steps + self.rng.randrange(self.rng.choice((5, 20, 60, 200)))
        if self.rng.random() < 0.4:
            self.disk.faults.append(self.fault())
        try:
            self.opened()
            self.check()
            for _ in range(self.rng.randint(1, 25)):
                self.act()
            if self.rng.random() < 0.3:
                self.store.close()
                self.say("stopped")
                self._store = None
                self.disk.faults.clear()
                return
        except PowerCut:
            self.say("crashed in a step")
        except StoreUnavailable as error:
            if self._store is not None:
                raise
            self.say(f"did not open: {error}")
        kind = self.rng.choice(list(Crash))
        self.say(f"{kind}")
        self._store = None
        self.disk = self.disk.crash(kind)

    def fault(self) -> Fault:
        step = self.rng.choice(list(Step))
        number = self.rng.choice((errno.EIO, errno.ENOSPC))
        suffix = self.rng.choice(("", ".seg", "mark", ".tmp"))
        return Fault(
            step,
            number,
            after=self.rng.randint(0, 25),
            suffix=suffix,
            written=self.rng.choice((0, 1, 100, 5000)),
        )

    @property
    def store(self) -> FileStore:
        assert self._store is not None
        return self._store

    def opened(self) -> None:
        """Open what is there; a crash may come in the middle of recovery, and again in the next."""
        self.disk.watch = None
        self._store = FileStore(FOLDER, disk=self.disk, segment_bytes=self.segment_bytes)
        self.recoveries += 1
        self.say(f"opened, end {self.store.end():#x}")
        self.writer = Writer(self.store, self.clock, region="local", clock_lead_ms_max=1 << 40)
        self.store.on_moved(self.look)
        self.disk.watch = self.look

    def look(self) -> None:
        """What any reader could see now must never be taken back; also what other processes read by the mark."""
        for tail in self.store.tails():
            feed = self.feeds[tail.name]
            feed.shown = max(feed.shown, tail.head)
        mark = decode_marks(self.disk.bytes_of(MARK), "mark")
        self.shown_end = max(self.shown_end, self.store.end(), mark.end if mark is not None else 0)

    # -- what is done -------------------------------------------------------------------------------------------------

    def act(self) -> None:
        roll = self.rng.random()
        if roll < 0.06:
            self.drop()
        elif roll < 0.09:
            self.roll()
        elif roll < 0.12:
            self.clock.ms += self.rng.randint(-2000, 5000)
        else:
            self.group()
        self.look()

    def drop(self) -> None:
        span = self.store.end() - FIRST_POSITION
        position = FIRST_POSITION + int(span * self.rng.random())
        self.drop_asked = max(self.drop_asked, position)
        self.say(f"drop before {position:#x}")
        try:
            self.store.drop_before(position)
        except (OSError, StoreUnavailable) as error:
            self.say(f"the drop failed: {error}")

    def roll(self) -> None:
        try:
            self.store.roll()
        except (StoreUnavailable, WriterStopped) as error:
            self.say(f"no new segment: {error}")

    def group(self) -> None:
        """Some requests at once, with what must come of each; then what came."""
        plans = {name: list(feed.entries) for name, feed in self.feeds.items()}
        claims = {name: (feed.epoch, feed.instance) for name, feed in self.feeds.items()}
        asked: list[Asked] = []
        for name, feed in self.feeds.items():
            if self.store.tail(name) is None:
                asked.append(Asked(register(name), None))
            count = self.rng.choice((0, 1, 1, 2, 4))
            asked += [self.request(name, feed, plans[name], claims) for _ in range(count)]
        stopped = self.store.not_writable() is not None
        for one in asked:
            self.writer.enqueue(one.request, self.answer(one))
        self.say(f"group of {len(asked)}")
        try:
            self.writer.handle_waiting()
        finally:
            self.settle(asked, stopped=stopped)

    def answer(self, asked: Asked) -> Callable[[Outcome | HeadraceError], None]:
        def take(outcome: Outcome | HeadraceError) -> None:
            asked.outcome = outcome

        return take

    def request(self, name: str, feed: Feed, plan: list[bytes], claims: dict[str, tuple[int, str]]) -> Asked:
        kind = self.rng.random()
        epoch, instance = claims[name]
        if kind < 0.05:
            again = self.rng.choice((instance, f"i{self.number}"))
            self.number += 1
            claims[name] = (epoch + (again != instance), again)
            return Asked(register(name, instance=again), None)
        if kind < 0.10 and epoch > 1:
            return Asked(append(name, *self.values(), epoch=epoch - 1), Fenced)
        if kind < 0.30 and plan:
            return self.retry(name, plan)
        values = self.values()
        at = len(plan) + 1
        if kind < 0.36:
            return Asked(expecting(name, at + self.rng.randint(1, 3), *values), OffsetMismatch)
        made = append(name, *values) if kind < 0.5 else expecting(name, at, *values)
        plan.extend(made.halves)
        return Asked(made, (at, False))

    def retry(self, name: str, plan: list[bytes]) -> Asked:
        """Entries that stand there, cut anew; one in two is changed in place, its length kept."""
        oldest = self.store.tail(name)
        low = oldest.oldest if oldest is not None else 1
        first = self.rng.randint(low, len(plan) + 1)
        halves = plan[first - 1 : first - 1 + self.rng.randint(1, 5)]
        if not halves:
            return Asked(expecting(name, len(plan) + 2, b"x"), OffsetMismatch)
        made = expecting(name, first, *[b""] * len(halves))
        changed = self.rng.random() < 0.5
        made = with_halves(
            made, [twisted(half) if changed and at == 0 else half for at, half in enumerate(halves)]
        )
        return Asked(made, OffsetMismatch if changed else (first, True))

    def values(self) -> list[bytes]:
        self.number += 1
        size = self.rng.choice((0, 0, 0, 30, 300, 5000))
        return [f"{self.number}.{at}".encode() + b"." * size for at in range(self.rng.randint(1, 4))]

    # -- what came of it ----------------------------------------------------------------------------------------------

    def settle(self, group: list[Asked], *, stopped: bool) -> None:
        """Note what was answered. What was not, or with an error that leaves it open, is unclear."""
        for asked in group:
            self.say(f"  {type(asked.request).__name__} {asked.expected} -> {asked.outcome!r:.90}")
            outcome = asked.outcome
            if isinstance(outcome, (StoreUnavailable, WriterStopped)):
                if not stopped and refusal_of(outcome).side_effects == "possible":
                    self.unclear.append(asked.request)
            elif outcome is None:
                self.unclear.append(asked.request)
            else:
                self.note(asked, outcome)

    def note(self, asked: Asked, outcome: Outcome | HeadraceError) -> None:
        feed = self.feeds[asked.request.feed]
        if isinstance(asked.expected, type):
            assert type(outcome) is asked.expected, (asked, outcome)
        elif asked.expected is None:
            assert isinstance(outcome, FeedTail), (asked, outcome)
            feed.epoch, feed.instance = outcome.epoch, outcome.instance
        else:
            assert isinstance(outcome, Appended), (asked, outcome)
            assert (outcome.first_sequence_id, outcome.duplicate) == asked.expected, (asked, outcome)
            assert isinstance(asked.request, Append)
            if not outcome.duplicate:
                assert outcome.first_lsn > self.newest, "LSNs strictly grow"
                self.newest = outcome.last_lsn
                feed.entries += asked.request.halves
                feed.lsns += [None] * len(asked.request.halves)
                feed.lsns[outcome.first_sequence_id - 1], feed.lsns[-1] = outcome.first_lsn, outcome.last_lsn

    # -- what must hold -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """After a recovery: nothing answered or seen is gone or changed, nothing is there that nobody sent."""
        store = self.store
        assert all("the torn end" in alarm for alarm in store.alarms), store.alarms
        assert store.not_writable() is None
        assert store.end() >= self.shown_end, "what was visible was taken back"
        assert store.oldest_position() <= self.drop_asked, "more was dropped than was asked for"
        walked = self.walk()
        assert [lsn for lsn, _, _ in walked] == sorted({lsn for lsn, _, _ in walked}), "LSNs strictly grow"
        self.stored.clear()
        for name, feed in self.feeds.items():
            tail = store.tail(name)
            if tail is None:
                assert not feed.entries
                assert not feed.shown
                continue
            assert tail.head >= max(feed.shown, feed.next - 1), f"{name} lost entries"
            there = [(number, lsn) for lsn, region, number in walked if region == tail.region_id]
            assert [number for number, _ in there] == list(range(tail.oldest, tail.head + 1)), "dense"
            found = [entry.half for entry in stored_entries(store, tail, tail.oldest, tail.head)]
            gone = tail.oldest - 1
            assert found[: max(0, feed.next - 1 - gone)] == feed.entries[gone:], f"{name} changed"
            for number, lsn in there:
                known = feed.lsns[number - 1] if number < feed.next else None
                assert known is None or known == lsn, "an LSN changed"
            self.explain(name, feed, tail, found[max(0, feed.next - 1 - gone) :], there)
        self.unclear.clear()
        self.shown_end = store.end()
        self.newest = max([self.newest, *(lsn for lsn, _, _ in walked[-1:])])
        self.repeat_unclear()

    def explain(
        self, name: str, feed: Feed, tail: FeedTail, extra: list[bytes], there: list[tuple[int, Lsn]]
    ) -> None:
        """What stands behind the answered entries are whole unclear appends, in the order in which they were sent."""
        sent = [request for request in self.unclear if request.feed == name]
        for request in sent:
            if not isinstance(request, Append):
                assert tail.epoch in {feed.epoch, feed.epoch + 1, feed.epoch + 2}
                continue
            halves = list(request.halves)
            if halves == extra[: len(halves)]:
                self.stored.append((request, len(feed.entries) + 1))
                feed.entries += halves
                feed.lsns += [None] * len(halves)
                extra = extra[len(halves) :]
        assert not extra, f"{name} holds what nobody sent, or half an append"
        assert tail.epoch >= feed.epoch, "a registration was forgotten"
        feed.epoch, feed.instance = tail.epoch, tail.instance
        feed.shown = tail.head

    def repeat_unclear(self) -> None:
        """Who had no answer asks again: told that it was stored, and where; something else at that place is refused."""
        for request, first in self.stored:
            named = expecting(request.feed, first, *[b""] * len(request.halves))
            for halves, expected in (
                (list(request.halves), (first, True)),
                ([*request.halves[:-1], twisted(request.halves[-1])], OffsetMismatch),
            ):
                asked = Asked(with_halves(named, halves), expected)
                self.writer.enqueue(asked.request, self.answer(asked))
                self.writer.handle_waiting()
                if asked.outcome is not None and not isinstance(
                    asked.outcome, (StoreUnavailable, WriterStopped)
                ):
                    self.note(asked, asked.outcome)

    def walk(self) -> list[tuple[Lsn, int, int]]:
        found: list[tuple[Lsn, int, int]] = []
        position = self.store.oldest_position()
        while position < self.store.end():
            for frame in self.store.walk(position, bytes_max=1 << 20):
                assert frame.header.position == position, "positions join"
                position = frame.header.end
                header = frame.header
                found += [
                    (header.lsn(at), header.region_id, header.first_sequence_id + at)
                    for at in range(header.count)
                ]
        return found

    def say(self, text: str) -> None:
        self.story.append(f"{self.disk.steps:5d} {text}")


def simulate(seed: int) -> int:
    """Run one seed; returns how many recoveries it checked. AssertionError tells seed and story."""
    simulation = Simulation(seed)
    try:
        simulation.run()
    except Exception as error:
        story = "\n".join(simulation.story)
        raise AssertionError(f"seed {seed}: {error!r}\n{traceback.format_exc()}\n{story}") from error
    return simulation.recoveries


def main(first: int, count: int) -> None:
    """Run ``count`` seeds from ``first`` on and say how many recoveries were checked, and how long it took."""
    configure_logs(level="critical")
    began = time.monotonic()
    recoveries = sum(simulate(seed) for seed in range(first, first + count))
    took = time.monotonic() - began
    sys.stdout.write(f"{count} seeds, {recoveries} recoveries, {took:.1f} s\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
