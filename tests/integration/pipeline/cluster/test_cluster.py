"""The tables job on a real cluster of two workers: one dies in the middle, and the tables are those of a local run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.tables.job import iter_rows, run_tables
from headrace.pipeline.tables.ledger import read_published
from tests.integration.pipeline.source_tables import ID, SourceTables, column
from tests.spark_cluster import EXECUTOR_MEMORY, SparkCluster
from tests.waiting import wait_until

END_S_MAX = 240.0


@pytest.fixture
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster(workers=2) as running:
        yield running


def filled(source: SourceTables) -> int:
    """Four batches' worth of transactions, each of which moves money; returns the last sequence id."""
    source.schema("accounts", ID, column("balance", "int64"), column("note", "string"))
    for number in range(20):
        source.put("accounts", {"id": number, "balance": 100, "note": f"né {number}"})
    last = source.commit()
    for number in range(40):
        source.put("accounts", {"id": number % 20, "balance": 100 - number, "note": "from"})
        source.patch("accounts", (number + 1) % 20, {"balance": 100 + number})
        last = source.commit()
    source.delete("accounts", 7)
    source.object("put", "k", {"n": 1})
    return source.commit() or last


def published_up_to(to: str) -> int:
    found = read_published(Path(to))
    return found.sequence_id if found is not None else 0


def test_a_worker_that_dies_in_the_middle_changes_nothing(
    spark: SparkSession, source: SourceTables, cluster: SparkCluster, tmp_path: Path
) -> None:
    last = filled(source)
    url = source.feed.server.url
    there, here = (str(tmp_path / name) for name in ("there", "here"))
    words = [sys.executable, "-m", "headrace.cli.app", "pipeline", "tables", "--feed", source.feed.name]
    words += ["--to", there, "--server", url, "--once", "--max-entries", "32", "--json"]
    words += ["--master", cluster.url, "--memory", "1g", "--executor-memory", EXECUTOR_MEMORY]
    # The name of this machine need not be one that it knows.
    words += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]
    output = tmp_path / "output"
    with output.open("wb") as stdout, (tmp_path / "errors").open("wb") as stderr:
        job = subprocess.Popen(words, stdout=stdout, stderr=stderr, start_new_session=True)
    try:
        wait_until(
            lambda: published_up_to(there) > 0 or job.poll() is not None, END_S_MAX, what="a first batch"
        )
        assert job.poll() is None, _account(cluster, tmp_path)
        assert len(cluster.executors()) == 2
        cluster.kill_worker(0)
        assert published_up_to(there) < last
        wait_until(lambda: job.poll() is not None, END_S_MAX, what="the job to end")
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    assert job.returncode == 0, _account(cluster, tmp_path)
    assert "Lost executor" in (Path(there) / "_headrace" / "spark.log").read_text()
    assert json.loads(output.read_text())["batches"] >= 3
    assert published_up_to(there) == last
    run_tables(spark, feed=source.feed.name, to=here, server=url, once=True)
    tables = [_sorted(spark, to) for to in (there, here)]
    assert tables[0] == tables[1]
    assert {row["id"]: row for table, row in iter_rows(spark, there) if table} == source.rows["accounts"]


def _sorted(spark: SparkSession, to: str) -> list[str]:
    return sorted(repr((table, sorted(row.items()))) for table, row in iter_rows(spark, to))


def _account(cluster: SparkCluster, folder: Path) -> str:
    """What everybody wrote, for the reader of a failure."""
    files = [folder / "output", folder / "errors", folder / "there" / "_headrace" / "spark.log"]
    texts = [path.read_text(errors="replace")[-6000:] for path in files if path.exists()]
    return "\n".join([*texts, cluster.log()])
