"""What a streaming job tells while it runs is so; one that can't go on says so, and its tables hold each change once.

``/metrics`` has as many batches and rows as its tables took, and nothing left to do; where it stands still its health, its
report and an alarm say that.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.pipeline.tables.ledger import read_published
from headrace.pipeline.tables.reader import iter_rows
from tests import forks
from tests.integration.pipeline.source_tables import ID, SourceTables, column
from tests.ports import free_port
from tests.samples import Exposed, exposed
from tests.scenarios.spark_process import MASTER
from tests.servers import Feed, ServerProcess, serving
from tests.stuck import WITHIN, stalled, wait_over, wait_state, wait_stuck
from tests.waiting import wait_until

SPARK_WITHIN = 240.0
STALLED_AFTER = "15s"
"""On a busy machine a batch may be late enough to be called stuck: then its query is started again, which is told too."""


def java_of(pid: int) -> int:
    """The Java that a process has started, or a process of its own has."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
        except OSError:  # it has ended
            continue
        if name == "java" and os.getpgid(int(path.parent.name)) == pid and rest:
            return int(path.parent.name)
    return 0


class Numbers:
    """What ``/metrics`` of a server says of a Spark job."""

    def __init__(self, server: ServerProcess, name: str) -> None:
        self._server = server
        self._who = {"kind": "pipeline", "name": name}

    def of(self, what: str) -> float:
        """One of its numbers."""
        return self._exposed().of(f"headrace_pipeline_{what}", **self._who)

    def wait(self, what: str, wanted: float) -> None:
        """Wait until a number of its is told and is this one."""
        name = f"headrace_pipeline_{what}"
        wait_until(
            lambda: self._exposed().get(name, **self._who) == wanted, WITHIN, what=f"{name} to be {wanted:g}"
        )

    def _exposed(self) -> Exposed:
        return exposed(self._server.http.get("/metrics").text)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of this test's own: nobody else reports to it."""
    with serving(tmp_path / "server") as running:
        yield running


@pytest.mark.timeout(2 * SPARK_WITHIN + 2 * WITHIN)
def test_a_job_tells_what_it_did_and_that_its_java_stands_still(
    server: ServerProcess, to: str, tmp_path: Path
) -> None:
    feed, port = Feed(server, "shop"), free_port()
    feed.register()
    source = SourceTables(feed)
    source.schema("accounts", ID, column("balance", "int64"))
    source.put("accounts", {"id": 1, "balance": 1})
    first = source.commit()
    words = ["pipeline", "tables", "--feed", source.feed.name, "--to", to, "--server", server.url, *MASTER]
    words += ["--memory", "1g", "--health", f"127.0.0.1:{port}", "--stalled-after", STALLED_AFTER]

    def published() -> int:
        found = read_published(Path(to))
        return found.sequence_id if found is not None else 0

    with ExitStack() as stack:
        output = stack.enter_context((tmp_path / "output").open("wb"))
        process = forks.start([*forks.HEADRACE, *words], stdout=output, stderr=output, start_new_session=True)
        stack.callback(process.wait, WITHIN)
        stack.callback(os.killpg, process.pid, signal.SIGKILL)
        wait_until(lambda: published() == first or process.poll() is not None, SPARK_WITHIN, what="a batch")
        assert process.poll() is None, (tmp_path / "output").read_text()
        shown = wait_state(server, "pipeline", "idle")
        assert shown["name"].startswith("tables~")
        (work,) = shown["report"]["works"]
        assert (work["source-position"], work["reachable"]) == (str(first), True)
        told = Numbers(server, shown["name"])
        told.wait("rows_total", first)
        assert told.of("batches_total") == 1
        said = (tmp_path / "output").read_text()
        told.wait("restarts_total", said.count("the query failed and is started again"))
        source.put("accounts", {"id": 1, "balance": 2})
        source.put("accounts", {"id": 2, "balance": 2})
        second = source.commit()
        wait_until(lambda: published() == second, SPARK_WITHIN, what="the next batch")
        told.wait("rows_total", second)
        told.wait("lag_entries", 0)
        told.wait("lag_seconds", 0)
        assert 2 <= told.of("batches_total") <= 3
        assert 0 < told.of("batch_duration_seconds") < SPARK_WITHIN

        java = wait_until(lambda: java_of(process.pid), what="its Java")
        os.kill(java, signal.SIGSTOP)
        try:
            source.put("accounts", {"id": 1, "balance": 3})
            third = source.commit()
            wait_stuck(
                server, port, f"tables of {source.feed.name} does not move at {second}", "Spark's answer"
            )
            (alarm,) = stalled(server)
            assert f"the pipeline {shown['name']} on " in alarm
        finally:
            os.kill(java, signal.SIGCONT)
        wait_until(lambda: published() == third, SPARK_WITHIN, what="the entry after it")
        wait_over(server, port)

        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN) == 0
    wait_state(server, "pipeline", "ending")
    assert {row["id"]: row for _, row in iter_rows(to)} == source.rows["accounts"]
