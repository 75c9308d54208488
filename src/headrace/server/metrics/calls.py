"""What HTTP and gRPC were asked, how it ended, and how long it took."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import Metric

from headrace.runtime.metric import counter, histogram
from headrace.server.metrics.measured import Measured, Subject

REQUESTS: Final = counter(
    "headrace_http_requests_total",
    "HTTP requests that were answered, the console's pages included. `route` is the path with its parameters' names; "
    "`other` is no route or a caller without a right. The status `given-up`: the client went away.",
    "method",
    "route",
    "status",
)
REQUEST_SECONDS: Final = histogram(
    "headrace_http_request_seconds",
    "From an HTTP request to its answer, before that is sent. A long poll waits as long as it was asked to.",
    "method",
    "route",
)
CALLS: Final = counter(
    "headrace_grpc_calls_total", "gRPC calls that have ended, streams included.", "method", "status"
)
CALL_SECONDS: Final = histogram(
    "headrace_grpc_call_seconds", "From a gRPC call to its end; of a stream, how long it was open.", "method"
)
REFUSALS: Final = counter(
    "headrace_refusals_total",
    "Answers that were errors, by code (docs/reference/errors.md) and face (`http`, `grpc`); those of single appends in "
    "a stream as well.",
    "face",
    "code",
)


async def _collect(measured: Measured) -> Iterable[Metric]:
    traffic = measured.traffic
    return (
        REQUESTS.of(sorted(traffic.requests.items())),
        REQUEST_SECONDS.histograms(sorted(traffic.request_seconds.items(), key=lambda item: item[0])),
        CALLS.of(sorted(traffic.calls.items())),
        CALL_SECONDS.histograms(
            ((method,), seconds)
            for method, seconds in sorted(traffic.call_seconds.items(), key=lambda item: item[0])
        ),
        REFUSALS.of(sorted(traffic.refusals.items())),
    )


SUBJECT: Final = Subject(
    "Requests, calls, refusals", (REQUESTS, REQUEST_SECONDS, CALLS, CALL_SECONDS, REFUSALS), _collect
)
