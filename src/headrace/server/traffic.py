"""What the faces of one server have answered since its start, counted in memory for metrics. Used from one event loop.

A request costs a clock's look and a few additions. What no request can make endless: a method that is none of HTTP's and an
address that is no route are counted under one word.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headrace.errors import HeadraceError
from headrace.runtime.histogram import SECONDS, Histogram

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER: Final = "other"
"""Another method, or an address that is no route."""
GIVEN_UP: Final = "given-up"
"""In place of a status: the client went away before there was an answer."""


class Traffic:
    """Counts of all faces."""

    def __init__(self) -> None:
        """Begin at nothing."""
        self.polls_open = 0
        self.event_streams_open = 0
        self.stream_bytes_sent = 0
        """Bytes of messages that gRPC streams over all feeds took."""
        self.requests: Counter[tuple[str, str, str]] = Counter()
        """HTTP requests by method, route and status."""
        self.request_seconds: dict[tuple[str, str], Histogram] = {}
        """From an HTTP request to its answer's first byte, by method and route."""
        self.calls: Counter[tuple[str, str]] = Counter()
        """gRPC calls that ended, by method and status."""
        self.call_seconds: dict[str, Histogram] = {}
        """From a gRPC call to its end, by method."""
        self.refusals: Counter[tuple[str, str]] = Counter()
        """What was refused or failed, by face and error code."""

    @contextmanager
    def poll_open(self) -> Iterator[None]:
        """Count a long poll within the body."""
        self.polls_open += 1
        try:
            yield
        finally:
            self.polls_open -= 1

    @contextmanager
    def event_stream_open(self) -> Iterator[None]:
        """Count an event stream within the body."""
        self.event_streams_open += 1
        try:
            yield
        finally:
            self.event_streams_open -= 1

    def asked(self, method: str) -> HttpRequest:
        """Begin an HTTP request."""
        return HttpRequest(self, method if method in METHODS else OTHER)

    def note_refused_at_door(self, method: str, error: HeadraceError) -> None:
        """Count an HTTP request that had no right to be looked at."""
        self.asked(method).refused(error)

    def called(self, method: str) -> GrpcCall:
        """Begin a gRPC call."""
        return GrpcCall(self, method)

    def note_refusal(self, face: str, error: HeadraceError) -> None:
        """Count a refusal that stands in an answer."""
        self.refusals[face, error.code] += 1


class HttpRequest:
    """One HTTP request. ``route`` is set once it is known; then one of the three, once."""

    __slots__ = ("_began", "_method", "_traffic", "route")

    def __init__(self, traffic: Traffic, method: str) -> None:
        self._traffic, self._method = traffic, method
        self.route = OTHER
        self._began = time.monotonic()

    def answered(self, status: int) -> None:
        """There is an answer, which is sent from now on."""
        self._count(str(status))

    def refused(self, error: HeadraceError) -> None:
        """It is answered with an error."""
        self._traffic.note_refusal("http", error)
        self._count(str(error.http_status))

    def given_up(self) -> None:
        """The client has gone."""
        self._count(GIVEN_UP)

    def _count(self, status: str) -> None:
        traffic, key = self._traffic, (self._method, self.route)
        traffic.requests[*key, status] += 1
        if key not in traffic.request_seconds:
            traffic.request_seconds[key] = Histogram(SECONDS)
        traffic.request_seconds[key].add(time.monotonic() - self._began)


class GrpcCall:
    """One gRPC call; it ends once, and what comes later changes nothing."""

    __slots__ = ("_began", "_has_ended", "_method", "_traffic")

    def __init__(self, traffic: Traffic, method: str) -> None:
        self._traffic, self._method = traffic, method
        self._has_ended = False
        self._began = time.monotonic()

    def refused(self, error: HeadraceError, status: str) -> None:
        """It ends with an error."""
        self._traffic.note_refusal("grpc", error)
        self.ended(status)

    def ended(self, status: str) -> None:
        """It ends with this status."""
        if self._has_ended:
            return
        self._has_ended = True
        self._traffic.calls[self._method, status] += 1
        if self._method not in self._traffic.call_seconds:
            self._traffic.call_seconds[self._method] = Histogram(SECONDS)
        self._traffic.call_seconds[self._method].add(time.monotonic() - self._began)
