"""A streaming query from a folder of JSON files, one file a batch, to a feed: what the tests of the sink run.

As a program it runs such a query until it is killed, in a session of its own in which a task may be tried three times:
``python -m tests.integration.pipeline.sink.folder_job FOLDER SERVER GRPC FEED``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from headrace.pipeline.failures import error_of
from headrace.pipeline.session import SessionSettings, open_session
from headrace.pipeline.sink import one_task
from headrace.pipeline.sink.writer import FeedStreamWriter
from headrace.pipeline.source.feed import HeadraceSource

COLUMNS = "n BIGINT, key STRING, value STRING"


class FolderJob:
    """A query over ``folder/in`` with the checkpoint ``folder/checkpoint``."""

    def __init__(self, folder: Path, server: str, grpc: str, feed: str, **options: str) -> None:
        self.folder = folder
        self.input = folder / "in"
        self.input.mkdir(parents=True, exist_ok=True)
        self.options = {
            "endpoint": server,
            "grpc": grpc,
            "feed": feed,
            "agent-id": "job",
            "order-by": "n",
            "retry-seconds": "30",
        } | {name.replace("_", "-"): value for name, value in options.items()}
        self.options = {name: value for name, value in self.options.items() if value}

    def batch(self, *numbers: int, **members: Any) -> None:
        """Add a file, which becomes a batch: a row for each number."""
        rows = [{"n": n, "key": f"k{n}", "value": json.dumps({"n": n}), **members} for n in numbers]
        name = f"{len(list(self.input.iterdir())):04}.json"
        waiting = self.folder / name
        waiting.write_text("".join(json.dumps(row) + "\n" for row in rows))
        # Spark takes files in the order of their times, and these are made in the same millisecond.
        os.utime(waiting, times=(1_700_000_000 + int(name[:4]),) * 2)
        waiting.rename(self.input / name)

    def read(self, spark: SparkSession, columns: str = COLUMNS) -> DataFrame:
        """The stream of all rows."""
        reader = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.input))

    def start(
        self,
        spark: SparkSession,
        frame: DataFrame | None = None,
        *,
        name: str = "headrace",
        drain: bool = True,
        **options: Any,
    ) -> StreamingQuery:
        """Start the query over ``frame`` (default: all rows, in one task); it ends by itself if it is to ``drain``."""
        rows = one_task(self.read(spark)) if frame is None else frame
        given = self.options | {key.replace("_", "-"): value for key, value in options.items()}
        writer = rows.writeStream.format(name).options(
            **{key: value for key, value in given.items() if value}
        )
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        return (writer.trigger(availableNow=True) if drain else writer).start()

    def run(self, spark: SparkSession, frame: DataFrame | None = None, **options: Any) -> Exception | None:
        """Run the query to its end; returns our own error if it failed."""
        try:
            self.start(spark, frame, **options).awaitTermination(120)
        except PySparkException as failure:
            return error_of(failure)
        return None

    def forget_last_commit(self) -> int:
        """Take the last batch's commit out of the checkpoint, as if Spark had died before it; returns its number."""
        commits = self.folder / "checkpoint" / "commits"
        last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)
        return last


class DyingSource(HeadraceSource):
    """The data source, whose task dies (SIGKILL) once in each batch, after its append and before Spark hears of it."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(  # noqa: N802 - Spark calls it by this name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        return DyingWriter(self.options, schema, overwrite)


class DyingWriter(FeedStreamWriter):
    """Writes, then dies if it is a task's first attempt."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        written = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return written


def main(folder: str, server: str, grpc: str, feed: str) -> None:
    """Run the job until killed."""
    settings = SessionSettings(
        log_file=Path(folder) / "spark.log", name="sink", master="local[1,3]", memory="1g", short_lived=True
    )
    spark = open_session(settings)
    spark.dataSource.register(DyingSource)
    FolderJob(Path(folder), server, grpc, feed).start(spark, name="dying", drain=False).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
