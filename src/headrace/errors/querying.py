"""What ends a streaming query on Spark, and what is wrong with its checkpoint."""

from __future__ import annotations

from headrace.errors.root import HeadraceError, Recovery
from headrace.errors.stops import Stopped


class QueryFailed(HeadraceError):
    """A Spark query failed for a reason that is none of ours."""

    code = "query-failed"
    hint = (
        "The query's log file has Spark's own account. It goes on where it stopped when it is started again."
    )


class SparkBusy(HeadraceError):
    """Spark's Python processes do not start in the ten seconds that Java waits for them."""

    code = "spark-busy"
    recovery = Recovery.WAIT
    hint = (
        "The job goes on by itself once they do. If it never does, the machine has too much to do for its processors, or "
        "the Python of the workers can't start: the query's log file has what it says."
    )


class SparkEnded(Stopped):
    """Spark's Java process has ended."""

    code = "spark-ended"
    hint = (
        "Start the same command again: it goes on where it stopped. The end of its log file says why Java ended; if the "
        "machine's memory was exhausted, give it another --memory."
    )


class CheckpointNotFound(Stopped):
    """There is no checkpoint at this place."""

    code = "checkpoint-not-found"
    hint = "Name the folder that holds `metadata` and `offsets`; that of the tables job is TO/_headrace/checkpoint."


class CheckpointAhead(Stopped):
    """This checkpoint is ahead of what the tables have: entries between the two would be in no table."""

    code = "checkpoint-ahead"
    hint = (
        "Name the checkpoint that belongs to these tables (--checkpoint; by default it is inside their folder), or put "
        "this one away: without a checkpoint the job goes on after what its tables have. Else begin anew in an empty folder."
    )
    exit_code = 3


class CheckpointUnfit(Stopped):
    """This checkpoint can't be shown or moved as it is, or not to there."""

    code = "checkpoint-unfit"
    hint = "Stop the job, copy the whole folder as it is, and start it there."
    exit_code = 3
