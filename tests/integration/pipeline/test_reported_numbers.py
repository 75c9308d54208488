"""What ``/metrics`` says of a Spark job is so: as many batches and rows as its tables took, and nothing left to do."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.pipeline.tables.ledger import read_published
from tests import forks
from tests.integration.pipeline.source_tables import ID, SourceTables, column
from tests.samples import Exposed, exposed
from tests.scenarios.spark_process import MASTER
from tests.servers import Feed, ServerProcess, serving
from tests.stuck import WITHIN, wait_state
from tests.waiting import wait_until

SPARK_WITHIN = 240.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server") as running:
        yield running


def test_batches_rows_and_lag_of_a_tables_job(server: ServerProcess, to: str, tmp_path: Path) -> None:
    feed = Feed(server, "shop")
    feed.register()
    source = SourceTables(feed)
    source.schema("accounts", ID, column("balance", "int64"))
    source.put("accounts", {"id": 1, "balance": 1})
    first = source.commit()
    words = [
        "pipeline",
        "tables",
        "--feed",
        feed.name,
        "--to",
        to,
        "--server",
        server.url,
        *MASTER,
        "--memory",
        "1g",
    ]

    def metrics() -> Exposed:
        return exposed(server.http.get("/metrics").text)

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
        who = {"kind": "pipeline", "name": wait_state(server, "pipeline", "idle")["name"]}
        rows = "headrace_pipeline_rows_total"
        wait_until(lambda: metrics().get(rows, **who) == first, WITHIN, what="the first rows to be told")
        assert metrics().of("headrace_pipeline_batches_total", **who) == 1
        assert metrics().of("headrace_pipeline_restarts_total", **who) == 0
        source.put("accounts", {"id": 1, "balance": 2})
        source.put("accounts", {"id": 2, "balance": 2})
        second = source.commit()
        wait_until(lambda: published() == second, SPARK_WITHIN, what="the next batch")
        wait_until(lambda: metrics().of(rows, **who) == second, WITHIN, what="the rows to be told")
        wait_until(lambda: metrics().get("headrace_pipeline_lag_entries", **who) == 0, WITHIN, what="no lag")
        found = metrics()
        assert found.of("headrace_pipeline_lag_seconds", **who) == 0
        assert 2 <= found.of("headrace_pipeline_batches_total", **who) <= 3
        assert 0 < found.of("headrace_pipeline_batch_duration_seconds", **who) < SPARK_WITHIN
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN) == 0
    wait_state(server, "pipeline", "ending")
