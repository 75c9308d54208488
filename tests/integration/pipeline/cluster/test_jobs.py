"""Several jobs in one session on a real cluster of two workers, each of which dies once: what they make is whole."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.connection import Endpoint
from tests.identity import Issuer
from tests.integration.pipeline.cluster.captured_history import captured_history, rows_by_table
from tests.integration.pipeline.cluster.cluster_job import LATE_BATCH, Plan
from tests.integration.pipeline.cluster.programs import END_S_MAX, ROOT, account, published_up_to, running
from tests.integration.pipeline.sink.folder_job import FolderJob
from tests.integration.pipeline.source.queries import archived, oldest, post
from tests.secured import secured
from tests.servers import Feed, ServerProcess, serving
from tests.spark_cluster import EXECUTOR_MEMORY, SparkCluster
from tests.waiting import wait_until

BATCHES, ROWS = 5, 20


@pytest.fixture
def open_server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "open", grpc=True) as started:
        yield started


def passed_feed(folder: Path, feed: Feed, endpoint: Endpoint) -> int:
    """Fill a feed, archive it, and let retention drop some of it; returns how many entries it had."""
    assert feed.register().status_code == 200
    for first in range(1, 45, 4):
        post(feed, first, 4)
    archived(feed, folder, 1, 44, endpoint)
    feed.server.args += ["--retention", "1ms", "--retention-every", "100ms"]
    feed.server.restart()
    assert feed.register().status_code == 200
    wait_until(lambda: oldest(feed) > 20, what="retention to drop what is archived")
    return 44


def own_python(folder: Path) -> Path:
    """A Python under another name, which leaves a mark where it ran."""
    program = folder / "their-python"
    program.write_text(f'#!/bin/sh\necho ran >> "{folder}/marks"\nexec {shlex.quote(sys.executable)} "$@"\n')
    program.chmod(0o755)
    return program


@pytest.mark.timeout(3 * END_S_MAX)
def test_a_sink_captured_tables_and_archives_on_a_cluster_whose_workers_die(
    spark: SparkSession, cluster: SparkCluster, open_server: ServerProcess, tmp_path: Path
) -> None:
    """One worker dies while a feed is written, the other one while tables are kept; a task has two attempts at once."""
    captured, written = Feed(open_server, "captured"), Feed(open_server, "written")
    assert captured.register().status_code == 200
    history = captured_history(captured)
    job = FolderJob(tmp_path / "sink", open_server.url, open_server.grpc_address, written.name)
    for number in range(BATCHES):
        job.batch(*range(number * ROWS, (number + 1) * ROWS))
    issuer = Issuer()
    (tmp_path / "token").write_text(issuer.token())
    with secured(tmp_path / "secured", issuer, args=("--segment-size", "4k"), tls=True) as server:
        assert server.authority is not None
        kept = Feed(server, "kept")
        endpoint = Endpoint(server.url, str(tmp_path / "token"), str(server.authority.file))
        count = passed_feed(tmp_path / "archive", kept, endpoint)
        plan = Plan(
            jobs=("sink", "captured", "reads"),
            master=cluster.url,
            executor_memory=EXECUTOR_MEMORY,
            server=open_server.url,
            grpc=open_server.grpc_address,
            captured=captured.name,
            tables=str(tmp_path / "there"),
            written=written.name,
            source={
                "endpoint": server.url,
                "feeds": kept.name,
                "token-file": "token",
                "ca-file": str(server.authority.file.relative_to(tmp_path)),
                "partition-entries": "15",
            },
            archive="archive",
        )
        (tmp_path / "plan.json").write_bytes(msgspec.json.encode(plan))
        words = [sys.executable, "-m", "tests.integration.pipeline.cluster.cluster_job", "plan.json"]
        python, path = own_python(tmp_path), os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        with running(words, tmp_path, PYTHONPATH=path, PYSPARK_PYTHON=str(python)) as process:

            def comes(*, to: Callable[[], bool], what: str) -> None:
                wait_until(lambda: to() or process.poll() is not None, END_S_MAX, what=what)
                assert to(), account(cluster, tmp_path)

            # Behind the batch whose task is tried twice.
            comes(to=lambda: head(written) > ROWS * (LATE_BATCH + 1), what="batches of the sink")
            assert head(written) < ROWS * BATCHES
            cluster.kill_worker(0)
            comes(to=(tmp_path / "sink.json").exists, what="the sink")
            cluster.restart_worker(0)
            comes(to=lambda: published_up_to(plan.tables) > 0, what="a first batch of tables")
            assert not (tmp_path / "captured.json").exists()
            cluster.kill_worker(1)
            wait_until(lambda: process.poll() is not None, END_S_MAX, what="the jobs to end")
            assert process.returncode == 0, account(cluster, tmp_path)
    done = {
        name: json.loads((tmp_path / f"{name}.json").read_text()) for name in ("captured", "sink", "reads")
    }
    assert done["captured"]["stopped"] == ["odd"]
    assert done["captured"]["batches"] >= 2
    assert rows_by_table(spark, plan.tables) == {
        name: found for name, found in history.tables.items() if found
    }
    assert [entry["changes"]["n"] for entry in written.entries()] == list(range(BATCHES * ROWS))
    assert {file.name for file in (tmp_path / "sink" / "attempts").iterdir()} >= {"0", "1"}
    wanted = [[number, f'{{"n":{number}}}'] for number in range(1, count + 1)]
    assert done["reads"]["feed"] == done["reads"]["segments"] == wanted
    assert "ran" in (tmp_path / "marks").read_text()


def head(feed: Feed) -> int:
    answer = feed.server.http.get(f"{feed.path}/tail")
    return int(answer.json()["next-sequence-id"]) - 1 if answer.status_code == 200 else 0
