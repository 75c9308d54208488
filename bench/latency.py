"""From a commit in PostgreSQL to the listener's callback, on one machine, while commits come by a schedule.

The bare limit is a connection that LISTENs and hears a NOTIFY of every commit: no order, no place, nothing kept. It hears
of a commit about when the application does, so the arms are compared from the moment the commit was due (``p50-ms``), in
which a database or a load that falls behind shows too. What Headrace takes counts from when the database answered the
commit: the other tables, ``after-commit`` and its steps. They are noted by the agent's and the server's own processes
(``bench.support.noting``):

- notify: until the agent begins the pass that marks the row
- mark: until the row has its sequence id and is read
- post: until the server has the request
- durable: until the entry is durable and visible
- deliver: until it is in the consumer's hands

Durable as a production server is: fsync is on at both ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import psycopg

from bench.support.harness import ROOT, Bench, Figures, arguments, publish
from headrace.listener import Change, Listener, open_bookmarks
from tests.agents import AgentProcess, headrace
from tests.postgres import Cluster
from tests.servers import ServerProcess

ARMS: Final = ("notify", "callback", "listen")
STEPS: Final = ("notify", "mark", "post", "durable", "deliver")
WHOLE: Final = "after-commit"
FEED: Final = "latency"
TABLES: Final = """
CREATE TABLE item (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, number bigint NOT NULL, name text);
CREATE TABLE bare (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, number bigint NOT NULL, name text)"""
INSERT: Final = "INSERT INTO item (number, name) VALUES (%s, 'a small row')"
NOTIFY: Final = """
WITH made AS (INSERT INTO bare (number, name) VALUES (%s, 'a small row') RETURNING number)
SELECT pg_notify('bare', number::text) FROM made"""
SETTINGS: Final = {"fsync": "on", "synchronous_commit": "on"}
ARRIVAL_S_MAX: Final = 60.0
"""How long after the last commit the last row may come; the bench fails then."""


class _Row(msgspec.Struct):
    number: int


@dataclass
class Arrivals:
    """What came: a commit's number -> when, in ``time.monotonic_ns()``, and its sequence id (0: it has none)."""

    expected: int
    came: dict[int, tuple[int, int]] = field(default_factory=dict)
    all_there: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, number: int, sequence_id: int = 0) -> None:
        """Note that this commit's row is here."""
        self.came.setdefault(number, (time.monotonic_ns(), sequence_id))
        if number == self.expected - 1:
            self.all_there.set()


@dataclass(frozen=True)
class Sample:
    """One commit: when it was due, answered and delivered, in ns; its sequence id."""

    due: int
    committed: int
    delivered: int
    sequence_id: int


class Place:
    """A database with the table attached, and where the server is."""

    def __init__(self, cluster: Cluster, server: ServerProcess, folder: Path) -> None:
        self.dsn = cluster.create_database("source")
        self.server = server
        self.folder = folder
        with cluster.connect("source") as connection:
            connection.execute(TABLES)
        headrace(["publisher", "attach", self.dsn, "--feed", FEED, "--table", "item", "--no-copy"])
        self._runs = 0

    async def run(self, arm: str, rate: float, warm_s: float, seconds: float) -> list[Sample]:
        """Commit by the schedule while the arm's consumer listens; the first ``warm_s`` seconds don't count."""
        self._runs += 1
        expected, warm = round(rate * (warm_s + seconds)), round(rate * warm_s)
        arrivals = Arrivals(expected)
        async with self._consumer(arm, arrivals):
            committed = await self._load(NOTIFY if arm == "notify" else INSERT, rate, warm_s + seconds)
            async with asyncio.timeout(ARRIVAL_S_MAX):
                await arrivals.all_there.wait()
        missing = [number for number in range(warm, expected) if number not in arrivals.came]
        if missing:
            raise RuntimeError(f"{len(missing)} of {expected - warm} commits never came, first {missing[0]}")
        return [
            Sample(due, at, *arrivals.came[number]) for number, due, at in sorted(committed) if number >= warm
        ]

    async def _load(self, statement: str, rate: float, seconds: float) -> Sequence[tuple[int, int, int]]:
        words = [sys.executable, "-m", "bench.support.pacing", self.dsn, statement, str(rate), str(seconds)]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *words, cwd=ROOT, stdin=pipe, stdout=pipe, limit=1 << 28
        )
        assert process.stdin is not None, "its input is a pipe"
        assert process.stdout is not None, "its output is a pipe"
        try:
            await process.stdout.readline()
            process.stdin.write(b"go\n")
            return [(number, due, at) for number, due, at in json.loads(await process.stdout.readline())]
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    @asynccontextmanager
    async def _consumer(self, arm: str, arrivals: Arrivals) -> AsyncIterator[None]:
        """Let the arm's consumer note what comes, for the length of a ``with``; an error of it ends the bench."""
        consume = {"notify": self._listen_bare, "callback": self._call_back, "listen": self._run_listen}[arm]
        ready = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(consume(arrivals, ready))
            await ready.wait()
            yield
            task.cancel()

    async def _listen_bare(self, arrivals: Arrivals, ready: asyncio.Event) -> None:
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            await connection.execute("LISTEN bare")
            ready.set()
            async for notification in connection.notifies():
                arrivals.note(int(notification.payload))

    async def _call_back(self, arrivals: Arrivals, ready: asyncio.Event) -> None:
        def on_change(change: Change) -> None:
            if isinstance(change.entry.changes, msgspec.Raw) and not change.is_control:
                row = msgspec.json.decode(change.entry.changes, type=_Row)
                arrivals.note(row.number, change.sequence_id)

        name = f"callback-{self._runs}"
        with closing(open_bookmarks(str(self.folder / name))) as bookmarks:
            async with Listener(self.server.url, FEED, name, bookmarks, start="head") as listener:
                ready.set()
                await listener.run(on_change)

    async def _run_listen(self, arrivals: Arrivals, ready: asyncio.Event) -> None:
        name = f"listen-{self._runs}"
        words = ["listen", FEED, "--from", "head", "--ndjson", "--listener-id", name]
        words += ["--bookmark", str(self.folder / name), "--server", self.server.url]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headrace.cli.app", *words, stdout=asyncio.subprocess.PIPE, limit=1 << 20
        )
        assert process.stdout is not None, "its output is a pipe"
        ready.set()
        try:
            async for line in process.stdout:
                entry = json.loads(line)
                if "control" not in entry:
                    arrivals.note(entry["changes"]["number"], entry["sequence-id"])
        finally:
            process.kill()
            await process.wait()


def figures_of(samples: Sequence[Sample]) -> Figures:
    """The percentiles of one run."""
    return {
        **_percentiles("", [one.delivered - one.due for one in samples]),
        **_percentiles("after-commit-", [one.delivered - one.committed for one in samples]),
        **_percentiles("commit-", [one.committed - one.due for one in samples]),
    }


def _percentiles(name: str, times_ns: Sequence[int]) -> Figures:
    cuts = statistics.quantiles(times_ns, n=100, method="inclusive")
    found = {"p50-ms": cuts[49], "p99-ms": cuts[98], "max-ms": max(times_ns)}
    return {name + figure: ns / 1e6 for figure, ns in found.items()}


def read_notes(*files: Path) -> dict[str, dict[int, tuple[int, int]]]:
    """What agent and server noted: step -> sequence id -> when it began and ended, in ns."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            step, first, count, begun, ended = json.loads(line)
            found.setdefault(step, {}).update(dict.fromkeys(range(first, first + count), (begun, ended)))
    return found


def steps_of(
    samples: Sequence[Sample], notes: Mapping[str, Mapping[int, tuple[int, int]]]
) -> dict[str, Figures]:
    """The percentiles of each step; their medians need not add up to the median of the whole."""
    times: dict[str, list[int]] = {step: [] for step in (WHOLE, *STEPS)}
    for one in samples:
        marked, read = notes["mark"][one.sequence_id], notes["read"][one.sequence_id]
        taken, put = notes["take"][one.sequence_id], notes["put"][one.sequence_id]
        moments = (one.committed, marked[0], read[1], taken[0], put[1], one.delivered)
        times[WHOLE].append(one.delivered - one.committed)
        for step, begun, ended in zip(STEPS, moments, moments[1:], strict=False):
            times[step].append(ended - begun)
    return {step: _percentiles("", found) for step, found in times.items()}


def main() -> None:
    """Start database, server and agent, measure the arms by turns, then split what was noted by steps."""
    parser = arguments(__doc__, seconds=20, rounds=3)
    parser.add_argument("--rate", type=float, default=500, help="commits a second (default: %(default)s)")
    parser.add_argument(
        "--warm", type=float, default=3, help="seconds before, not counted (default: %(default)s)"
    )
    given = parser.parse_args()
    runs: dict[str, list[list[Sample]]] = {arm: [] for arm in ARMS}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        cluster = stack.enter_context(Cluster(settings=SETTINGS))
        noted = [folder / "server.notes", folder / "agent.notes"]
        server_words, agent_words = [
            (sys.executable, "-m", "bench.support.noting", str(file)) for file in noted
        ]
        server = ServerProcess(folder / "server")
        server.program = server_words
        stack.callback(server.kill)
        server.start()
        place = Place(cluster, server, folder)
        agent = AgentProcess(folder / "agent", server.url, place.dsn, FEED)
        agent.program = agent_words
        stack.enter_context(agent)

        def measure(arm: str) -> Figures:
            samples = asyncio.run(place.run(arm, given.rate, given.warm, given.seconds))
            runs[arm].append(samples)
            return figures_of(samples)

        conditions = {"commits/s": given.rate, "seconds": given.seconds, **SETTINGS}
        bench = Bench("latency", ARMS, conditions)
        bench.run(measure, given.rounds)
        assert agent.stop() == 0, agent.errors()
        assert server.stop() == 0, server.errors()
        notes = read_notes(*noted)
    split = [Bench(f"latency {arm}", (WHOLE, *STEPS), conditions) for arm in ARMS[1:]]
    for one, arm in zip(split, ARMS[1:], strict=True):
        one.rounds += [steps_of(samples, notes) for samples in runs[arm]]
    publish([bench, *split], ["p50-ms", "p99-ms"], given.json)


if __name__ == "__main__":
    main()
