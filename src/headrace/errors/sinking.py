"""Why Spark's sink does not write a batch to a feed. Nothing of the batch was appended, unless the class says otherwise."""

from __future__ import annotations

from headrace.errors.stops import Stopped


class RowUnfit(Stopped):
    """A row can't become an entry; nothing of its batch was written."""

    code = "row-unfit"
    hint = "Mend the row, or filter it out, then start the query again: it goes on at this batch."
    exit_code = 3


class BatchTooLarge(Stopped):
    """A batch holds more than one append may; nothing of it was written."""

    code = "batch-too-large"
    hint = (
        "Bound the query's batches at its source (max-entries, max-bytes, maxFilesPerTrigger). A batch that is planned "
        "already keeps its size: begin it with a new checkpoint behind what the feed holds."
    )
    exit_code = 3


class BatchSplit(Stopped):
    """Rows for one feed came in several tasks of a batch; those of the first to be written are in the feed."""

    code = "batch-split"
    hint = (
        "Put headrace.pipeline.sink.one_task (or by_feed) before writeStream. The message names the entries that one task "
        "wrote; docs/howto/spark-sink.md says how to go on."
    )
    exit_code = 3


class BatchChanged(Stopped):
    """A batch that is in the feed came again with other rows; they were not written."""

    code = "batch-changed"
    hint = (
        "The query is not repeatable, or its checkpoint lost a plan that was made. Compare the entries that are named, then "
        "start once with the option keep-batch or repeat-batch."
    )
    exit_code = 3


class BatchStale(Stopped):
    """The feed holds a later batch of this query; nothing was written."""

    code = "batch-stale"
    hint = "The checkpoint is an older copy, or another run of the query is further: go on with that one."
    exit_code = 3


class BatchMissing(Stopped):
    """The feed lacks a batch that this query has appended to it; nothing was written."""

    code = "batch-missing"
    hint = (
        "An older copy of the server was put back, or the feed was made anew. Put the newest copy back; "
        "docs/howto/spark-sink.md says how to go on without it."
    )
    exit_code = 3


class SinkTaken(Stopped):
    """Another query writes to this feed under the same agent id; nothing was written."""

    code = "sink-taken"
    hint = (
        "Give this query its own agent-id (on a shared feed), or, if it shall replace the other for good, the option "
        "replaces with the id that is named."
    )
    exit_code = 3
