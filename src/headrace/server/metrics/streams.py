"""Who stays connected: long polls, event streams, the streams over all feeds, and what was sent to these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import Metric

from headrace.runtime.metric import counter, gauge
from headrace.server.metrics.measured import Measured, Subject

POLLS: Final = gauge("headrace_long_polls_open", "Long polls that are not answered yet.")
EVENTS: Final = gauge("headrace_event_streams_open", "Open event streams (SSE).")
SUBSCRIPTIONS: Final = gauge("headrace_wal_streams_open", "Open gRPC streams over all feeds.")
DEPTH: Final = gauge(
    "kdb_wal_queue_depth",
    "Pending entries in the send queue (RFC-010), of subscribers with an open stream.",
    "subscriber_id",
)
SENT: Final = counter(
    "kdb_wal_bytes_sent_total", "Total bytes sent to all subscribers (RFC-010), as messages."
)


async def _collect(measured: Measured) -> Iterable[Metric]:
    traffic = measured.traffic
    depths = {
        who.name: depth for face in measured.subscriptions for who, depth in face.queue_depths().items()
    }
    return (
        POLLS.one(traffic.polls_open),
        EVENTS.one(traffic.event_streams_open),
        SUBSCRIPTIONS.one(sum(face.open_streams for face in measured.subscriptions)),
        DEPTH.of(((name,), depth) for name, depth in sorted(depths.items())),
        SENT.one(traffic.stream_bytes_sent),
    )


SUBJECT: Final = Subject("Long polls and streams", (POLLS, EVENTS, SUBSCRIPTIONS, DEPTH, SENT), _collect)
