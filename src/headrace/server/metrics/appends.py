"""How appends go: how long they take, how large they and their groups are, what waits, how long the disk takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import Metric

from headrace.runtime.metric import counter, gauge, histogram
from headrace.server.metrics.measured import Measured, Subject
from headrace.wire.frame import FIRST_POSITION

REQUESTS: Final = counter(
    "headrace_appends_total",
    "Requests that the writer has answered: `appended`, `duplicate` (stored before), `refused`, or `control` "
    "(registrations, releases, settings).",
    "outcome",
)
LATENCY: Final = histogram(
    "headrace_append_latency_seconds",
    "From the moment an append waits for the writer to its answer, refusals included.",
)
ENTRIES: Final = histogram(
    "headrace_append_entries", "Entries of an append that was written. Their sum is all entries."
)
GROUP: Final = histogram(
    "headrace_append_group_requests", "Requests that were judged, written and answered together."
)
PUT: Final = histogram(
    "headrace_journal_put_seconds",
    "How long the store took with a group: writing, making it durable, showing it.",
)
SYNC: Final = histogram(
    "headrace_fsync_seconds",
    "How long it took to make a group durable: the fsync of a data folder, the COMMIT of a log in PostgreSQL.",
)
QUEUE: Final = gauge("headrace_append_queue_requests", "Requests that are not answered yet.")
BUSY: Final = gauge(
    "headrace_append_group_busy_seconds",
    "For how long the group that is being written has not become durable; 0 if there is none.",
)
WRITTEN: Final = counter(
    "headrace_journal_written_bytes_total",
    "Bytes of the journal since it was begun, dropped ones included. It goes on over restarts.",
)


async def _collect(measured: Measured) -> Iterable[Metric]:
    log, counted = measured.log, measured.log.measures
    return (
        REQUESTS.of(((outcome,), times) for outcome, times in sorted(counted.outcomes.items())),
        LATENCY.histograms([((), counted.latency)]),
        ENTRIES.histograms([((), counted.entries)]),
        GROUP.histograms([((), counted.requests)]),
        PUT.histograms([((), counted.puts)]),
        SYNC.histograms([((), log.store.syncs)]),
        QUEUE.one(log.appends_waiting()),
        BUSY.one(log.group_busy_s()),
        WRITTEN.one(log.store.end() - FIRST_POSITION),
    )


SUBJECT: Final = Subject(
    "Appends", (REQUESTS, LATENCY, ENTRIES, GROUP, PUT, SYNC, QUEUE, BUSY, WRITTEN), _collect
)
