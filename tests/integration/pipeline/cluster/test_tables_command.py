"""``headrace pipeline tables`` on a real cluster of two workers: one dies, and the tables are the source's."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.pipeline.tables.job import iter_rows
from tests import forks
from tests.integration.pipeline.cluster.programs import END_S_MAX, account, published_up_to, running
from tests.integration.pipeline.source_tables import ID, SourceTables, column
from tests.spark_cluster import EXECUTOR_MEMORY, SparkCluster
from tests.waiting import wait_until


def filled(source: SourceTables) -> int:
    """Three batches' worth of transactions, each of which moves money; returns the last sequence id."""
    source.schema("accounts", ID, column("balance", "int64"), column("note", "string"))
    for number in range(20):
        source.put("accounts", {"id": number, "balance": 100, "note": f"né {number}"})
    last = source.commit()
    for number in range(15):
        source.put("accounts", {"id": number % 20, "balance": 100 - number, "note": "from"})
        source.patch("accounts", (number + 1) % 20, {"balance": 100 + number})
        last = source.commit()
    source.delete("accounts", 7)
    source.object("put", "k", {"n": 1})
    return source.commit() or last


def test_a_worker_that_dies_in_the_middle_changes_nothing(
    spark: SparkSession, source: SourceTables, cluster: SparkCluster, tmp_path: Path
) -> None:
    last = filled(source)
    url = source.feed.server.url
    to = str(tmp_path / "there")
    words = [*forks.HEADRACE, "pipeline", "tables", "--feed", source.feed.name]
    words += ["--to", to, "--server", url, "--once", "--max-entries", "20", "--json"]
    words += ["--master", cluster.url, "--memory", "1g", "--executor-memory", EXECUTOR_MEMORY]
    # The name of this machine need not be one that it knows.
    words += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]
    with running(words, tmp_path) as job:
        wait_until(lambda: published_up_to(to) > 0 or job.poll() is not None, END_S_MAX, what="a first batch")
        assert job.poll() is None, account(cluster, tmp_path)
        assert len(cluster.executors()) >= 2
        cluster.kill_worker(0)
        assert published_up_to(to) < last
        wait_until(lambda: job.poll() is not None, END_S_MAX, what="the job to end")
    assert job.returncode == 0, account(cluster, tmp_path)
    assert "Lost executor" in (Path(to) / "_headrace" / "spark.log").read_text()
    assert json.loads((tmp_path / "output").read_text())["batches"] >= 3
    assert published_up_to(to) == last
    found = list(iter_rows(spark, to))
    rows = [row for table, row in found if table]
    assert len(rows) == len(source.rows["accounts"])
    assert {row["id"]: row for row in rows} == source.rows["accounts"]
    assert [(row["key"], row["value"]) for table, row in found if not table] == [("k", '{"n":1}')]
