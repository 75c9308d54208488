"""Numbers that processes report of themselves (``facts`` of a report), each under the name of the metric that it becomes.

The server shows them at ``/metrics`` with the process's kind and name. One that is not declared here is kept in the report
alone.
"""

from __future__ import annotations

from typing import Final

from headrace.runtime.metric import Described, counter, gauge

_WHO: Final = ("kind", "name")

CAPTURE_LAG: Final = gauge(
    "headrace_capture_lag_seconds",
    "From the source's commit of what capture last made durable to now, in whole seconds of the source; 0 once a look at "
    "the source brought nothing new. Missing before the first look, while the source does not answer, and while its time "
    "there is not known.",
    *_WHO,
)
BACKUP_LAG: Final = gauge(
    "headrace_backup_lag_seconds",
    "From the commit of the oldest entry that came to the agent and is not in the archive to now; 0 if there is none. "
    "Up to `--segment-time` by design.",
    *_WHO,
)
BACKUP_WINDOW_BEGIN: Final = gauge(
    "headrace_backup_window_begin_timestamp_seconds",
    "The oldest moment of the archive's newest window that a restore can reach, in seconds since 1970; looked over hourly.",
    *_WHO,
)
BACKUP_WINDOW_END: Final = gauge(
    "headrace_backup_window_end_timestamp_seconds",
    "The newest moment that a restore can reach, in seconds since 1970.",
    *_WHO,
)
PIPELINE_BATCHES: Final = counter(
    "headrace_pipeline_batches_total", "Batches with rows that ended since the job began.", *_WHO
)
PIPELINE_ROWS: Final = counter(
    "headrace_pipeline_rows_total", "Rows of the batches that ended since the job began.", *_WHO
)
PIPELINE_BATCH_SECONDS: Final = gauge(
    "headrace_pipeline_batch_duration_seconds", "How long the newest batch with rows took.", *_WHO
)
PIPELINE_LAG_ENTRIES: Final = gauge(
    "headrace_pipeline_lag_entries", "Entries of the feed that the job has not done yet.", *_WHO
)
PIPELINE_LAG_SECONDS: Final = gauge(
    "headrace_pipeline_lag_seconds",
    "From the append of the last entry that the job has done to now; 0 at the feed's head.",
    *_WHO,
)
PIPELINE_RESTARTS: Final = counter(
    "headrace_pipeline_restarts_total", "How often the query was started again after a failure.", *_WHO
)

FACTS: Final[dict[str, Described]] = {
    one.name: one
    for one in (
        CAPTURE_LAG,
        BACKUP_LAG,
        BACKUP_WINDOW_BEGIN,
        BACKUP_WINDOW_END,
        PIPELINE_BATCHES,
        PIPELINE_ROWS,
        PIPELINE_BATCH_SECONDS,
        PIPELINE_LAG_ENTRIES,
        PIPELINE_LAG_SECONDS,
        PIPELINE_RESTARTS,
    )
}
"""All facts, by key."""
