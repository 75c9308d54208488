"""What Spark calls: one writer a batch, made on the driver and copied to its tasks. The data source's class hands them out.

The appends happen in the tasks, durable before a task is done. Spark's commit then notes on the driver where they stand,
so that a feed which lost them is found out by the next batch. There is nothing that an abort could take back: a batch that
failed runs again and finds what it left.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headrace.errors import InvalidRequest
from headrace.pipeline.checkpoint_folder import Folder
from headrace.pipeline.sink import kept
from headrace.pipeline.sink.appending import Put, put_rows
from headrace.pipeline.sink.options import FORMAT, SinkOptions, read_options
from headrace.pipeline.sink.position import BATCH_WRITES, LastAppend, SinkPosition
from headrace.pipeline.sink.rows import collect, feed_rows

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task did with its rows, feed by feed, for which batch."""

    own: SinkPosition
    puts: tuple[Put, ...] = ()

    def appends(self) -> dict[str, LastAppend]:
        """Return where the task's rows stand in each feed."""
        return {
            put.feed: LastAppend(batch=self.own.batch, first_sequence_id=put.first_sequence_id, rows=put.rows)
            for put in self.puts
        }


class _Writes:
    """What both writers do in a task. Spark pickles a writer to there: it holds values only, no connection."""

    def __init__(
        self, given: MutableMapping[str, str], schema: StructType, overwrite: bool, *, streaming: bool
    ) -> None:
        if overwrite:
            raise InvalidRequest(
                f"{FORMAT}: a feed can't be overwritten",
                hint="Use outputMode('append'), or mode('append') for a batch write.",
            )
        self._options: SinkOptions = read_options(given, schema, streaming=streaming)
        # Made once for each execution of a batch, so that its tasks, and their retries, know each other.
        self._attempt = str(uuid.uuid4())
        named = {name.lower(): value for name, value in given.items()}
        self._checkpoint = named.get("checkpointlocation", "")
        # On a worker it would be another machine's disk.
        self._kept = kept.read(self._folder())

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Append this task's rows; durable when it returns."""
        own = self._position()
        table = collect(iterator, own.batch)
        if table is None:
            return Written(own)
        options = self._options
        parts = feed_rows(table, options, own.batch)
        known = kept.known_to(self._kept, own.query, options.target.agent_id)
        return Written(own, tuple(put_rows(options.target, options.settled, own, parts, known)))

    def _keep(self, messages: list[WriterCommitMessage | None]) -> None:
        """Note where the batch's rows stand. BatchSplit if two tasks had rows for one feed."""
        tasks = [task for task in messages if isinstance(task, Written) and task.puts]
        if not tasks:
            return
        appends = kept.Appends(
            query=tasks[0].own.query,
            agent_id=self._options.target.agent_id,
            feeds=kept.joined(task.appends() for task in tasks),
        )
        kept.write(self._folder(), appends)

    def _folder(self) -> Folder | None:
        return kept.folder_of(self._checkpoint, self._options.kept_in)

    def _position(self) -> SinkPosition:
        context = TaskContext.get()
        if context is None:
            raise InvalidRequest(f"{FORMAT}: rows are written by Spark's tasks alone")
        task = context.partitionId()
        if self._options.batch_id is not None:
            return SinkPosition(
                query=BATCH_WRITES, batch=self._options.batch_id, attempt=self._attempt, task=task
            )
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if not query or not batch:
            raise InvalidRequest(
                f"{FORMAT}: this Spark does not tell its tasks which batch of a query they run"
            )
        return SinkPosition(query=query, batch=int(batch), attempt=self._attempt, task=task)


class FeedStreamWriter(_Writes, DataSourceStreamArrowWriter):
    """Writes one micro-batch."""

    def __init__(self, given: MutableMapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(given, schema, overwrite, streaming=True)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Note where the rows stand: they are durable already. BatchSplit if two tasks had rows for one feed."""
        self._keep(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: the batch runs again and finds what it left."""


class FeedWriter(_Writes, DataSourceArrowWriter):
    """Writes one batch that the caller numbered (``batch-id``)."""

    def __init__(self, given: MutableMapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(given, schema, overwrite, streaming=False)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Note where the rows stand: they are durable already. BatchSplit if two tasks had rows for one feed."""
        self._keep(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the same write again finds what it left."""
