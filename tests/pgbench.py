"""pgbench beside a test: its tables, a load that runs until its time is up, and what it reported."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.postgres import Cluster

END_S_MAX = 120.0
"""How much longer than asked it may run, on a busy machine."""


@dataclass(frozen=True, slots=True)
class Report:
    """What pgbench says at its end. ``failed``: ended in a serialisation failure or a deadlock."""

    transactions: int
    failed: int
    tps: float
    latency_ms: float


def read_report(text: str) -> Report:
    """Return the figures of pgbench's report; fails if it is none."""

    def number(pattern: str) -> float:
        found = re.search(pattern, text)
        assert found is not None, f"not in pgbench's report: {pattern}\n{text}"
        return float(found[1])

    return Report(
        transactions=int(number(r"actually processed: (\d+)")),
        failed=int(number(r"number of failed transactions: (\d+)")),
        tps=number(r"tps = ([0-9.]+) \(without initial"),
        latency_ms=number(r"latency average = ([0-9.]+) ms"),
    )


def make_bank(cluster: Cluster, database: str, accounts: int, folder: Path) -> list[str]:
    """Make pgbench's tables as it does, but for the number of accounts; returns words that have it change these alone."""
    cluster.pgbench(database, "-i", "-q", "-I", "dtp")
    for statement in (
        "INSERT INTO pgbench_branches (bid, bbalance) VALUES (1, 0)",
        "INSERT INTO pgbench_tellers (tid, bid, tbalance) SELECT tid, 1, 0 FROM generate_series(1, 10) AS tid",
        "INSERT INTO pgbench_accounts (aid, bid, abalance, filler) "
        f"SELECT aid, 1, 0, '' FROM generate_series(1, {accounts}) AS aid",
    ):
        cluster.sql(statement, database)
    own = cluster.run("pgbench", "--show-script=tpcb-like").stderr
    script = folder / "tpcb-like.sql"
    script.write_text(own.replace("100000 * :scale", str(accounts)), encoding="ascii")
    assert script.read_text(encoding="ascii") != own
    return ["-f", str(script)]


class Load:
    """``pgbench`` with ``words`` against a database, in the background, from ``with`` on."""

    def __init__(self, cluster: Cluster, database: str, *words: str) -> None:
        self._command = cluster.command("pgbench", *words, database=database)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Load:
        self._process = subprocess.Popen(
            **self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def running(self) -> bool:
        """Tell whether its time is not up yet."""
        return self._process is not None and self._process.poll() is None

    def report(self, seconds: float) -> Report:
        """Wait for the end, which was asked for after ``seconds``; fails if any client was aborted by an error."""
        assert self._process is not None, "the load was never started"
        out, errors = self._process.communicate(timeout=seconds + END_S_MAX)
        assert self._process.returncode == 0, f"pgbench failed: {out}{errors}"
        assert "aborted" not in errors, errors
        return read_report(out)
