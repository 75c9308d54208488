"""What attaching costs the application: pgbench's transactions per second detached, attached, and with the agent running.

And, for comparison, with the least that a trigger can do to capture a row: PL/pgSQL that inserts a constant into a table
without an index. Four databases of one cluster, made alike; the server runs all the time, the agent only in its own arm, and
what it has to relay is relayed before the next arm's turn. Durable as a production server is: fsync and synchronous_commit
are on.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import NamedTuple

from bench.support.harness import Bench, Figures, arguments, cpu_seconds, halves_of_cores, on_cores, publish
from tests.agents import AgentProcess, headrace
from tests.pgbench import Load
from tests.postgres import Cluster
from tests.servers import Feed, ServerProcess, serving
from tests.waiting import wait_until

ARMS = ("detached", "trigger", "attached", "agent")
TABLES = ("pgbench_accounts", "pgbench_tellers", "pgbench_branches")
LEAST_TRIGGER = """
CREATE TABLE captured (row text);
CREATE FUNCTION capture() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO captured VALUES ('');
    RETURN NULL;
END $$"""
SETTINGS = {
    "fsync": "on",
    "shared_buffers": "1GB",
    # No checkpoint falls into one arm's run and not into the other's.
    "checkpoint_timeout": "1h",
    "max_wal_size": "16GB",
}
DRAIN_S_MAX = 600.0


class Places(NamedTuple):
    """The processors of the database with its application, and those of agent and server."""

    source: list[int]
    headrace: list[int]


class Arms:
    """The databases, one for each arm, and the agent that belongs to the last."""

    def __init__(
        self, cluster: Cluster, server: ServerProcess, folder: Path, scale: int, places: Places
    ) -> None:
        self.cluster = cluster
        self.places = places
        self.feed = Feed(server, "agent")
        self.agent = AgentProcess(folder / "agent", server.url, cluster.dsn("agent"), "agent")
        for arm in ARMS:
            cluster.create_database(arm)
            cluster.pgbench(arm, "-i", "-q", "-s", str(scale))
            if arm == "trigger":
                self._make_least_triggers()
            elif arm != "detached":
                words = ["publisher", "attach", cluster.dsn(arm), "--feed", arm, "--no-copy"]
                headrace([*words, "--table", ",".join(TABLES)])

    def _make_least_triggers(self) -> None:
        with self.cluster.connect("trigger") as connection:
            connection.execute(LEAST_TRIGGER)
            for table in TABLES:
                connection.execute(
                    f"CREATE TRIGGER capture AFTER INSERT OR UPDATE OR DELETE ON {table} "
                    "FOR EACH ROW EXECUTE FUNCTION capture()"
                )

    def set_flush(self, microseconds: int) -> None:
        """Make each flush of the WAL longer by so much."""
        self.cluster.sql("ALTER SYSTEM SET commit_siblings = 0")
        self.cluster.sql(f"ALTER SYSTEM SET commit_delay = {microseconds}")
        self.cluster.sql("SELECT pg_reload_conf()")

    def measure(self, arm: str, clients: int, seconds: float) -> Figures:
        """Run pgbench once against the arm's database."""
        self.cluster.sql("CHECKPOINT")
        if arm != "agent":
            return self._load(arm, clients, seconds)
        with self._relaying():
            before = self._head()
            figures = self._load(arm, clients, seconds)
            posted = self._head() - before
            drained_s = self._drain()
            committed = self._head() - before
        return {**figures, "relayed-share": posted / max(1, committed), "drain-s": drained_s}

    def _load(self, arm: str, clients: int, seconds: float) -> Figures:
        words = ("-c", str(clients), "-j", "2", "-T", f"{max(1, round(seconds))}")
        processes = [self.cluster.pid, *(self._ours() if arm == "agent" else [])]
        before = [cpu_seconds(pid) for pid in processes]
        with on_cores(self.places.source), Load(self.cluster, arm, *words) as load:
            report = load.report(seconds)
        used = [cpu_seconds(pid) - was for pid, was in zip(processes, before, strict=True)]
        return {
            "tps": report.tps,
            "latency-ms": report.latency_ms,
            "failed": report.failed,
            "pg-cpu-ms/tx": used[0] * 1000 / report.transactions,
            "our-cpu-ms/tx": sum(used[1:]) * 1000 / report.transactions,
        }

    def _ours(self) -> list[int]:
        assert self.agent.process is not None, "the agent does not run"
        return [self.agent.process.pid, self.feed.server.pid]

    @contextmanager
    def _relaying(self) -> Iterator[None]:
        """Run the agent, from the moment on that it has nothing left to do."""
        with on_cores(self.places.headrace):
            self.agent.start()
        try:
            self._drain()
            yield
        finally:
            self.agent.stop()

    def _drain(self) -> float:
        begun = time.monotonic()
        wait_until(lambda: self._head() > 0, DRAIN_S_MAX, what="the agent to make the feed")
        wait_until(lambda: self._waiting() == 0, DRAIN_S_MAX, what="the agent to relay everything")
        return time.monotonic() - begun

    def _waiting(self) -> int:
        assert self.agent.ended() is None, f"the agent ended: {self.agent.errors()[-2000:]}"
        found = headrace(["publisher", "check", self.cluster.dsn("agent")])
        return sum(one["waiting-rows"] for one in found["attached"])

    def _head(self) -> int:
        answer = self.feed.server.http.get(self.feed.path)
        return int(answer.json()["head-sequence-id"]) if answer.status_code == 200 else 0


def main() -> None:
    """Make the databases, measure with each number of clients, and print what was found."""
    parser = arguments(__doc__, seconds=20, rounds=5)
    parser.add_argument(
        "--clients", type=int, nargs="+", default=[16, 4], help="clients at once (default: 16, then 4)"
    )
    parser.add_argument(
        "--scale",
        type=int,
        default=10,
        help="pgbench's: branches that clients meet at (default: %(default)s)",
    )
    parser.add_argument(
        "--apart",
        action="store_true",
        help="PostgreSQL and pgbench on one half of the cores, agent and server on the other (default: all on all)",
    )
    parser.add_argument(
        "--flush-us",
        type=int,
        nargs="+",
        default=[1000, 0],
        help="microseconds by which each flush of the WAL takes longer, as on a slower disk (default: 1000, then 0)",
    )
    given: argparse.Namespace = parser.parse_args()
    benches = []
    everywhere = sorted(os.sched_getaffinity(0))
    places = Places(*halves_of_cores()) if given.apart else Places(everywhere, everywhere)
    with ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-"))
        with on_cores(places.source):
            cluster = stack.enter_context(Cluster(settings=SETTINGS))
        with on_cores(places.headrace):
            server = stack.enter_context(serving(Path(temporary) / "server"))
        print(f"making four databases of scale {given.scale} ...", file=sys.stderr, flush=True)
        arms = Arms(cluster, server, Path(temporary), given.scale, places)
        ((version,),) = cluster.sql("SHOW server_version")
        for flush_us, clients in product(given.flush_us, given.clients):
            arms.set_flush(flush_us)
            conditions = {
                "clients": clients,
                "flush-us": flush_us,
                "scale": given.scale,
                "seconds": given.seconds,
            }
            conditions |= {"source-cores": len(places.source), "headrace-cores": len(places.headrace)}
            conditions["apart"] = given.apart
            bench = Bench("pgbench_attached", ARMS, {**conditions, "postgresql": version, **SETTINGS})
            bench.run(lambda arm, clients=clients: arms.measure(arm, clients, given.seconds), given.rounds)  # type: ignore[misc]  # mypy knows no default in a lambda
            benches.append(bench)
    publish(benches, ["tps", "pg-cpu-ms/tx"], given.json)


if __name__ == "__main__":
    main()
