"""What attaching costs the application: pgbench's transactions per second detached, attached, and with the agent running.

Three databases of one cluster, made alike; the server runs all the time, the agent only in its own arm, and what it has to
relay is relayed before the next arm's turn. Durable as a production server is: fsync and synchronous_commit are on.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import Bench, Figures, arguments, cpu_seconds, publish
from tests.agents import AgentProcess, headrace
from tests.pgbench import Load
from tests.postgres import Cluster
from tests.servers import Feed, ServerProcess, serving
from tests.waiting import wait_until

ARMS = ("detached", "attached", "agent")
TABLES = ("pgbench_accounts", "pgbench_tellers", "pgbench_branches")
SETTINGS = {
    "fsync": "on",
    "shared_buffers": "1GB",
    # No checkpoint falls into one arm's run and not into the other's.
    "checkpoint_timeout": "1h",
    "max_wal_size": "16GB",
}
DRAIN_S_MAX = 600.0


class Arms:
    """The databases, one for each arm, and the agent that belongs to the last."""

    def __init__(self, cluster: Cluster, server: ServerProcess, folder: Path, scale: int) -> None:
        self.cluster = cluster
        self.feed = Feed(server, "agent")
        self.agent = AgentProcess(folder / "agent", server.url, cluster.dsn("agent"), "agent")
        for arm in ARMS:
            cluster.create_database(arm)
            cluster.pgbench(arm, "-i", "-q", "-s", str(scale))
            if arm != "detached":
                words = ["publisher", "attach", cluster.dsn(arm), "--feed", arm, "--no-copy"]
                headrace([*words, "--table", ",".join(TABLES)])

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
        with Load(self.cluster, arm, *words) as load:
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
    given: argparse.Namespace = parser.parse_args()
    benches = []
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as temporary,
        Cluster(settings=SETTINGS) as cluster,
        serving(Path(temporary) / "server") as server,
    ):
        print(f"making three databases of scale {given.scale} ...", file=sys.stderr, flush=True)
        arms = Arms(cluster, server, Path(temporary), given.scale)
        ((version,),) = cluster.sql("SHOW server_version")
        for clients in given.clients:
            conditions = {"clients": clients, "scale": given.scale, "seconds": given.seconds}
            bench = Bench("pgbench_attached", ARMS, {**conditions, "postgresql": version, **SETTINGS})
            bench.run(lambda arm, clients=clients: arms.measure(arm, clients, given.seconds), given.rounds)  # type: ignore[misc]  # mypy knows no default in a lambda
            benches.append(bench)
    publish(benches, ["tps", "pg-cpu-ms/tx"], given.json)


if __name__ == "__main__":
    main()
