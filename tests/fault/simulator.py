"""A journal's whole life on a disk in memory, by a seed: appends, retries, drops, faults, crashes at any step, repairs.

It goes through the real writer (its order of durable, visible, answered), the real rules, file store and repair. What each
request must be told is said by a model of plain lists. After each recovery the journal must hold one of the states that the
model knows: all that was answered or seen, and of an unanswered group the first so many requests.
``python -m tests.fault.simulator SEED [COUNT]`` runs some seeds by hand; a seed that fails prints its last steps.
"""

from __future__ import annotations

import errno
import random
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Sequence

from headrace.errors import HeadraceError, StoreUnavailable, WriterStopped, refusal_of
from headrace.log.files.store import FileStore
from headrace.log.requests import Append, Appended, Outcome
from headrace.log.writer import Writer
from headrace.runtime.logs import configure_logs
from headrace.testing.clock import ManualClock
from headrace.testing.disk import Fault, Step
from headrace.testing.memory import Crash, MemoryDisk, PowerCut
from headrace.wire.frame import FIRST_POSITION
from headrace.wire.mark import decode_marks
from tests.append_model import told
from tests.fault.simulated import Asked, World, short
from tests.fault.simulated_contents import Contents
from tests.fault.simulated_repair import FOLDER, Mending
from tests.fault.simulated_requests import Requests, again

MARK = FOLDER / "mark"
FEEDS = {"a": False, "b": False, "s": True}
"""Feed -> whether it is shared."""
ODD_STEPS = (Step.OPEN, Step.WRITE, Step.TRUNCATE, Step.SYNC, Step.RENAME)


class Simulation:
    """One seed's story. :meth:`run` raises AssertionError if something that was promised does not hold.

    ``states``: what the journal may hold: one world, or after a group without an answer one more for each of its requests,
    ``asked``, because a crash keeps the first so many frames. ``met`` counts what happened, by name.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = MemoryDisk(self.rng)
        self.clock = ManualClock()
        names = self.rng.sample(sorted(FEEDS), self.rng.randint(1, len(FEEDS)))
        self.requests = Requests(self.rng, {name: FEEDS[name] for name in sorted(names)})
        self.contents = Contents()
        self.segment_bytes = self.rng.choice((900, 2000, 6000, 30_000))
        self.states = [World()]
        self.asked: list[Asked] = []
        self.drop_asked = FIRST_POSITION
        self.shown_end = FIRST_POSITION
        self.shown: dict[str, int] = {}
        self.recoveries = 0
        self.lost_power = False
        self.met: Counter[str] = Counter()
        self.story: deque[str] = deque(maxlen=60)
        self._store: FileStore | None = None

    # -- lives --------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Some lives of a server, each ended by a crash or a stop; at the end one that must find everything."""
        for _ in range(self.rng.randint(2, 5)):
            self.live()
            if self.rng.random() < 0.12:
                self.repair()
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
        if self.rng.random() < 0.1:  # what no code expects there
            self.disk.faults.append(Fault(self.rng.choice(ODD_STEPS), 0, after=self.rng.randint(0, 60)))
        try:
            self.opened()
            self.check()
            self.repeat_unanswered()
            for _ in range(self.rng.randint(1, 25)):
                self.act()
            if self.rng.random() < 0.3:
                self.stop()
                return
        except PowerCut:
            self.say("crashed in a step")
        except (StoreUnavailable, MemoryError) as error:
            if self._store is not None:
                raise
            self.say(f"did not open: {error!r}")
        kind = self.rng.choice(list(Crash))
        self.say(f"{kind}")
        self.lost_power = self.lost_power or kind == Crash.POWER
        self._store = None
        self.disk = self.disk.crash(kind)

    def stop(self) -> None:
        """A clean stop. Whatever strikes in the middle of it, the files are let go of, and nothing durable is lost."""
        self.disk.watch = None
        try:
            self.store.close()
            self.say("stopped")
        except MemoryError as error:  # what no code expects there
            self.say(f"stopped in the middle: {error!r}")
        self._store = None
        self.disk.faults.clear()

    def fault(self) -> Fault:
        step = self.rng.choice(list(Step))
        number = self.rng.choice((errno.EIO, errno.ENOSPC, errno.EMFILE))
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
        self.requests.reconnected()
        self.store.on_moved(self.look)
        self.disk.watch = self.look

    def look(self) -> None:
        """What any reader could see now must never be taken back; also what other processes read by the mark."""
        for tail in self.store.tails():
            self.shown[tail.name] = max(self.shown.get(tail.name, 0), tail.head)
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
        elif roll < 0.15:
            self.contents.read(self.store, self.states[0])
        else:
            self.group(self.drawn())
        self.look()

    def drop(self) -> None:
        span = self.store.end() - FIRST_POSITION
        position = FIRST_POSITION + int(span * self.rng.random())
        self.drop_asked = max(self.drop_asked, position)
        self.say(f"drop before {position:#x}")
        try:
            self.store.drop_before(position)
        except (OSError, MemoryError, StoreUnavailable) as error:
            self.say(f"the drop failed: {error!r}")
        self.note_dropped()

    def note_dropped(self) -> None:
        for state in self.states:
            for name, feed in state.feeds.items():
                tail = self.store.tail(name)
                feed.dropped = tail.dropped_sequence_id if tail is not None else feed.dropped

    def roll(self) -> None:
        try:
            self.store.roll()
        except (StoreUnavailable, WriterStopped) as error:
            self.say(f"no new segment: {error}")

    def drawn(self) -> list[Asked]:
        """Some requests at once, with what must come of each."""
        begin = now = self.states[0]
        asked: list[Asked] = []
        for _ in range(self.rng.choice((1, 1, 2, 3, 5, 8))):
            request = self.requests.draw(begin, now)
            now, said = now.hear(request)
            asked.append(Asked(request, said, now))
        return asked

    def repeat_unanswered(self) -> None:
        """Who had no answer asks again: told that it was stored, and where; something else at that place is refused."""
        stood = [
            (one.request, one.said["first"])
            for one in self.asked
            if isinstance(one.request, Append) and "first" in one.said and not one.said["duplicate"]
        ]
        self.asked = []
        now, asked = self.states[0], list[Asked]()
        for request in again([(ask, first) for ask, first in stood if now.stands(ask)]):
            now, said = now.hear(request)
            asked.append(Asked(request, said, now))
        if asked:
            self.met["asked again after a crash"] += 1
            self.group(asked)

    def group(self, asked: list[Asked]) -> None:
        """Give the requests to the writer as one group, and compare what it answers."""
        stopped = self.store.not_writable() is not None
        for one in asked:
            self.writer.enqueue(one.request, self.taker(one))
        self.say(f"group of {len(asked)}")
        try:
            self.writer.handle_waiting()
        finally:
            self.settle(asked, stopped=stopped)

    def taker(self, asked: Asked) -> Callable[[Outcome | HeadraceError], None]:
        def take(outcome: Outcome | HeadraceError) -> None:
            asked.outcome = outcome

        return take

    # -- what came of it ----------------------------------------------------------------------------------------------

    def settle(self, group: list[Asked], *, stopped: bool) -> None:
        """Note what was answered. A group without an answer, or with an error that leaves it open, is open to the end."""
        for asked in group:
            self.say(f"  {short(asked.request)}: {asked.said} -> {short(asked.outcome)}")
        outcomes = [asked.outcome for asked in group]
        failed = [one for one in outcomes if one is None or isinstance(one, StoreUnavailable | WriterStopped)]
        if not failed:
            for asked in group:
                self.note(asked)
            self.states = [group[-1].after]
            return
        assert len(failed) == len(group), "a group is answered as one"
        if not stopped and (None in failed or self.store.not_writable() is not None):
            self.met["no answer"] += 1
            self.states += [asked.after for asked in group]
            self.asked = group
        elif not stopped:  # a full disk: what was begun has been cut off again
            self.met["disk full"] += 1
            self.states = [self.states[0].without(asked.request for asked in group)]
        for asked in group:
            self.deny(asked, self.states)

    def note(self, asked: Asked) -> None:
        outcome = asked.outcome
        assert outcome is not None
        assert told(outcome, asked.said) == asked.said, (short(asked.request), outcome, asked.said)
        self.met[asked.kind] += 1
        if isinstance(outcome, Appended):
            self.contents.appended(asked.request.feed, outcome)
        self.deny(asked, [asked.after])

    def deny(self, asked: Asked, states: Sequence[World]) -> None:
        """Who is told that there are no side effects must find none, neither now nor later."""
        request, outcome = asked.request, asked.outcome
        if isinstance(request, Append) and isinstance(outcome, HeadraceError):
            refusal = refusal_of(outcome)
            none = refusal.side_effects == "none"
            assert not none or not any(state.stands(request) for state in states), (
                f"{short(request)} was told {refusal}, and stands"
            )

    # -- what must hold -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """After a recovery: nothing answered or seen is gone or changed, nothing is there that nobody sent."""
        if self.store.not_writable() is not None:
            self.settle_end()
        store = self.store
        told = ("the torn end", "half written")
        assert all(any(text in alarm for text in told) for alarm in store.alarms), store.alarms
        assert store.not_writable() is None
        assert store.end() >= self.shown_end, "what was visible was taken back"
        assert store.oldest_position() <= self.drop_asked, "more was dropped than was asked for"
        self.states = [self.contents.state_of(store, self.states)]
        self.note_dropped()
        for name, head in self.shown.items():
            assert self.states[0].feeds[name].next > head, f"{name} lost what was visible"
        self.contents.check(store, self.states[0])
        self.shown_end, self.lost_power = store.end(), False

    def settle_end(self) -> None:
        """A power failure tore the mark and the journal's end: only a person may say that this was not acknowledged."""
        assert self.lost_power, "a process that is killed never leaves both"
        assert any("half written" in alarm for alarm in self.store.alarms), self.store.alarms
        self.calm()
        world = self.contents.state_of(self.store, self.states)
        mending = Mending(self.rng, self.disk, self.clock, self.contents, self.say)
        self._store, store = None, self.store
        mending.leave_to_decide(store, world)
        self.take(mending, "repair of a doubtful end", self.states)

    def repair(self) -> None:
        """Damage a journal, look at it, and repair it: the world loses what the repair says, and nothing else."""
        self.calm()
        self.opened()
        self.check()
        for _ in range(self.rng.randint(0, 5)):
            self.group(self.drawn())
        self.look()
        mending = Mending(self.rng, self.disk, self.clock, self.contents, self.say)
        self._store, store = None, self.store
        mending.damage(store, self.states[0])
        self.take(mending, f"repair {mending.mode}" if mending.gone else "repair of copies")
        self.check()
        self.disk.watch = None
        self.store.close()
        self._store = None

    def take(self, mending: Mending, what: str, possible: Sequence[World] = ()) -> None:
        """Repair, and take the world as it is then.

        ``possible``: the worlds that a crash may have left. Where a repair took nothing away, it is one of them: what was
        not answered, and stands whole above a doubtful end, may be there from then on.
        """
        self.disk = mending.repaired()
        self.opened()
        if possible and not mending.has_cost:
            self.states = [self.contents.state_of(self.store, possible)]
        else:
            mending.begin_at(self.store, possible)
            self.states = [mending.world_after(self.store)]
        if mending.is_cut:
            self.shown_end = self.store.end()
        self.shown = {tail.name: tail.head for tail in self.store.tails()}
        self.asked = []
        self.met[what] += 1

    def say(self, text: str) -> None:
        self.story.append(f"{self.disk.steps:5d} {text}")


def simulate(seed: int) -> Simulation:
    """Run one seed; returns its story. AssertionError tells seed and story."""
    simulation = Simulation(seed)
    try:
        simulation.run()
    except Exception as error:
        story = "\n".join(simulation.story)
        raise AssertionError(f"seed {seed}: {error!r}\n{traceback.format_exc()}\n{story}") from error
    return simulation


def main(first: int, count: int) -> None:
    """Run ``count`` seeds from ``first`` on and say how many recoveries were checked, and how long it took."""
    configure_logs(level="critical")
    began = time.monotonic()
    recoveries = sum(simulate(seed).recoveries for seed in range(first, first + count))
    took = time.monotonic() - began
    sys.stdout.write(f"{count} seeds, {recoveries} recoveries, {took:.1f} s\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
