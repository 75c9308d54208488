"""The audit and Kafka on a real cluster of two workers, each of which dies once in the middle: nothing differs by it."""

from __future__ import annotations

import json
import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.audit.verdicts import Audit
from tests.integration.pipeline.cluster.captured_history import (
    BULK_ROWS,
    bulk_history,
    captured_history,
    rows_by_table,
)
from tests.integration.pipeline.cluster.cluster_job import Plan
from tests.integration.pipeline.cluster.programs import END_S_MAX, ROOT, account, running
from tests.integration.pipeline.kafka.topic_reader import (
    Rebuilt,
    check_first_sendings,
    messages_in,
    read_topic,
)
from tests.kafka import Broker
from tests.servers import Feed, serving
from tests.spark_cluster import EXECUTOR_MEMORY, SparkCluster
from tests.waiting import wait_until

TOPIC = "cluster"
PARTITIONS = 8
BY_KEY = "[sink]\ndispatchers = [{matcher = ['*.*'], partition = 'index-value'}]"
LOST_TASK = re.compile(r"Lost task .*(ExecutorLostFailure|FetchFailed)")
"""What Spark says of a task that ran where a worker died, or read what that one had made."""


@pytest.mark.timeout(3 * END_S_MAX)
def test_an_audit_and_kafka_on_a_cluster_whose_workers_die(
    spark: SparkSession, cluster: SparkCluster, tmp_path: Path
) -> None:
    """One worker dies while a feed is folded for the audit, the other one while rows are written to Kafka."""
    with serving(tmp_path / "server", grpc=True) as server, Broker() as broker:
        captured, topical = Feed(server, "captured"), Feed(server, "topical")
        for feed in (captured, topical):
            assert feed.register().status_code == 200
        history, wanted = captured_history(captured), bulk_history(topical)
        plan = Plan(
            jobs=("captured", "audit", "kafka"),
            master=cluster.url,
            executor_memory=EXECUTOR_MEMORY,
            server=server.url,
            grpc=server.grpc_address,
            captured=captured.name,
            entries_max=1_000,
            tables="there",
            topical=topical.name,
            sink=f"kafka://{broker.address}/{TOPIC}?partition-num={PARTITIONS}",
            changefeed=BY_KEY,
        )
        (tmp_path / "plan.json").write_bytes(msgspec.json.encode(plan))
        words = [sys.executable, "-m", "tests.integration.pipeline.cluster.cluster_job", "plan.json"]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        with running(words, tmp_path, PYTHONPATH=path) as process:

            def comes(*, to: Callable[[], bool], what: str) -> None:
                wait_until(lambda: to() or process.poll() is not None, END_S_MAX, what=what)
                assert to(), account(cluster, tmp_path)

            comes(to=(tmp_path / "captured.json").exists, what="tables to audit")
            folded = "audit-*/fold/_headrace/published.json"
            comes(to=lambda: any(tmp_path.glob(folded)), what="a first batch of the audit's fold")
            cluster.kill_worker(0)
            assert any(tmp_path.glob(folded))
            comes(to=(tmp_path / "audit.json").exists, what="the audit")
            cluster.restart_worker(0)
            before = lost_tasks(tmp_path)
            comes(
                to=lambda: messages_in(broker.address, TOPIC) > 4 * PARTITIONS,
                what="schemas and rows in the topic",
            )
            broker.pause()  # nothing is written to its end
            try:
                cluster.kill_worker(1)
            finally:
                broker.resume()
            wait_until(lambda: process.poll() is not None, END_S_MAX, what="the jobs to end")
            assert process.returncode == 0, account(cluster, tmp_path)
        partitions = read_topic(broker.address, TOPIC)
    assert lost_tasks(tmp_path) > before, "a write to Kafka lost tasks"
    assert (tmp_path / "spark.log").read_text().count("Lost executor") >= 2
    done = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in plan.jobs}
    assert rows_by_table(spark, str(tmp_path / plan.tables)) == {
        name: rows for name, rows in history.tables.items() if rows
    }
    audit = msgspec.convert(done["audit"]["audit"], Audit)
    assert audit.equal, audit
    assert {one.table[-1] for one in audit.tables if one.stopped_after is not None} == {"odd"}
    assert {
        one.table[-1]: one.feed.rows for one in audit.tables if one.feed is not None and one.feed.rows
    } == {name: len(rows) for name, rows in history.tables.items() if rows}
    assert done["kafka"]["batches"] == 1
    assert done["kafka"]["rows"] > BULK_ROWS
    assert len(partitions) == PARTITIONS
    assert all(partitions)
    check_first_sendings(partitions)
    rebuilt = Rebuilt().read(partitions, random.Random(3))  # repeatable
    assert rebuilt.waiting == 0
    assert rebuilt.tables == wanted


def lost_tasks(folder: Path) -> int:
    return len(LOST_TASK.findall((folder / "spark.log").read_text()))
