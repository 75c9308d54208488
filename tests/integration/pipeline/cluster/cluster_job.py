"""Jobs in one session on a cluster, one behind the other: the program that all tests here share.

``python -m tests.integration.pipeline.cluster.cluster_job SETTINGS.json`` reads names of plans from its stdin, a line each,
and writes ``NAME.json`` beside a plan when a job of it is done. It runs in the plans' folder, whose relative paths mean
nothing to workers.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headrace.pipeline.audit.job import run_audit
from headrace.pipeline.connection import Endpoint
from headrace.pipeline.failures import error_of
from headrace.pipeline.kafka.job import run_kafka
from headrace.pipeline.kafka.sink import parse_sink
from headrace.pipeline.session import SessionSettings, open_session, stop_session
from headrace.pipeline.sink.writer import FeedStreamWriter
from headrace.pipeline.source.feed import HeadraceSource
from headrace.pipeline.wal.source import register
from tests.integration.pipeline.cluster import backup_job
from tests.integration.pipeline.sink.folder_job import FolderJob
from tests.waiting import wait_until

LATE_BATCH = 1
LATE_S_MAX = 60.0
BUSY = Path("busy.json")
BUSY_S = 0.2


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the session is made of. ``fsspec``: the folder by which workers find S3."""

    master: str
    executor_memory: str
    cores_max: int
    fsspec: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """``jobs``: names of :data:`JOBS`, in their order. ``server`` and ``grpc`` are an open server's.

    ``source`` has the options of the other's, which asks for tokens. ``topical``: the feed that goes to ``sink``.
    """

    jobs: tuple[str, ...]
    server: str = ""
    grpc: str = ""
    tables: str = ""
    written: str = ""
    source: dict[str, str] = {}
    archive: str = ""
    topical: str = ""
    sink: str = ""
    changefeed: str = ""
    backup: backup_job.BackupPlan | None = None


class LateSource(HeadraceSource):
    """The data source, whose task of one batch begins late: only when another attempt of it has appended its rows."""

    @classmethod
    def name(cls) -> str:
        return "late"

    def streamWriter(  # noqa: N802 - Spark calls it by this name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        return LateWriter(self.options, schema, overwrite)


class LateWriter(FeedStreamWriter):
    """Waits in a first attempt of the batch until the feed has grown; notes each attempt in a file."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        if int(context.getLocalProperty("streaming.sql.batchId") or -1) == LATE_BATCH:
            attempts = Path(self._checkpoint).parent / "attempts"
            attempts.mkdir(exist_ok=True)
            (attempts / str(context.attemptNumber())).touch()
            if context.attemptNumber() == 0:
                before = self._grown()
                wait_until(lambda: self._grown() > before, LATE_S_MAX, what="another attempt to append")
        return super().write(iterator)

    def _grown(self) -> int:
        answer = httpx.get(f"{self._options.target.server}/feeds/{self._options.feed}/tail", trust_env=False)
        return int(answer.json()["next-sequence-id"])


def run_sink(spark: SparkSession, plan: Plan) -> dict[str, Any]:
    """Write all batches of a folder to a feed."""
    spark.dataSource.register(LateSource)
    job = FolderJob(Path("sink").absolute(), plan.server, plan.grpc, plan.written)
    query = job.start(spark, name="late")
    query.awaitTermination(180)
    assert not query.isActive
    return {}


def run_reads(spark: SparkSession, plan: Plan) -> dict[str, Any]:
    """Read a feed that is partly in the archive alone, and the archive itself: every path is a relative one."""
    register(spark)
    feed = spark.read.format("headrace").options(**plan.source, archive=plan.archive).load()
    segments = spark.read.format("headrace.wal").load(plan.archive)
    return {
        name: sorted((row["sequence_id"], bytes(row["value"]).decode()) for row in frame.toLocalIterator())
        for name, frame in (("feed", feed), ("segments", segments))
    }


def run_audited(spark: SparkSession, plan: Plan) -> dict[str, Any]:
    """Compare the tables with their feed, folded on a folder that has a relative path."""
    found = run_audit(spark, plan.tables, Endpoint(plan.server), scratch=".")
    return {"audit": msgspec.to_builtins(found)}


def run_to_kafka(spark: SparkSession, plan: Plan) -> dict[str, Any]:
    """Send a captured feed to a broker, in one batch; nothing is begun again."""
    sink = parse_sink(plan.sink, plan.changefeed)
    summary = run_kafka(
        spark, feed=plan.topical, sink=sink, checkpoint="kafka-checkpoint", server=plan.server, once=True
    )
    return {"batches": summary.batches, "rows": summary.rows}


def _of_backup(step: backup_job.Step) -> Callable[[SparkSession, Plan], dict[str, Any]]:
    def run(spark: SparkSession, plan: Plan) -> dict[str, Any]:
        assert plan.backup is not None
        found: dict[str, Any] = msgspec.to_builtins(step(spark, plan.backup))
        return found

    return run


JOBS: dict[str, Callable[[SparkSession, Plan], dict[str, Any]]] = {
    "sink": run_sink,
    "reads": run_reads,
    "audit": run_audited,
    "kafka": run_to_kafka,
    **{name: _of_backup(step) for name, step in backup_job.STEPS.items()},
}


def tell_busy(spark: SparkSession, ended: threading.Event) -> None:
    """Say in ``busy.json``, again and again, how many executors the driver has and on which hosts tasks are running.

    ``at`` is when it was looked. The master counts executors when it starts them, the driver when they have come.
    """
    context: Any = spark.sparkContext._jsc
    while not ended.wait(BUSY_S):
        began = time.time()
        found = context.sc().statusTracker().getExecutorInfos()
        hosts = [one.host() for one in found if one.numRunningTasks()]
        said = {"at": began, "executors": len(found) - 1, "hosts": hosts}  # one is the driver
        replace_file(BUSY, json.dumps(said))


def replace_file(file: Path, text: str) -> None:
    """Nobody sees a part of it."""
    file.with_suffix(".new").write_text(text)
    file.with_suffix(".new").rename(file)


def main(file: str) -> None:
    """Run the jobs of each plan that is named, until there are no more."""
    given = msgspec.json.decode(Path(file).read_bytes(), type=Settings)
    more = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    more |= {"spark.executorEnv.FSSPEC_CONFIG_DIR": given.fsspec, "spark.sql.shuffle.partitions": "2"}
    # Tasks run on both workers, wherever what they read is.
    more |= {"spark.locality.wait": "0s"}
    # A task that takes six seconds gets a second attempt on another worker.
    more |= {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.speculation.task.duration.threshold": "6s",
    }
    settings = SessionSettings(
        log_file=Path("spark.log"),
        master=given.master,
        memory="1g",
        executor_memory=given.executor_memory,
        cores_max=given.cores_max,
        kafka=True,
        short_lived=True,
        more=more,
    )
    spark = open_session(settings)
    ended = threading.Event()
    telling = threading.Thread(target=tell_busy, args=(spark, ended))
    telling.start()
    try:
        for line in sys.stdin:
            plan = msgspec.json.decode(Path(line.strip()).read_bytes(), type=Plan)
            for name in plan.jobs:
                try:
                    found = JOBS[name](spark, plan)
                except PySparkException as failure:
                    raise error_of(failure) from None
                replace_file(Path(f"{name}.json"), json.dumps(found))
    finally:
        ended.set()
        telling.join()
    stop_session(spark)


if __name__ == "__main__":
    main(sys.argv[1])
