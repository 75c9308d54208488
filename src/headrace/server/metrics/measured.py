"""What the subjects of ``/metrics`` look at, and what a subject is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from prometheus_client.core import Metric

from headrace.log.log import Log
from headrace.runtime.clock import Clock
from headrace.runtime.metric import Described
from headrace.server.reports import Reports
from headrace.server.retention.loop import Retention
from headrace.server.streams.subscriptions import Subscriptions
from headrace.server.traffic import Traffic


@dataclass(frozen=True, slots=True)
class Measured:
    """The parts of one server. ``not_ready`` tells why appends are not taken; each gRPC face adds its ``subscriptions``."""

    log: Log
    clock: Clock
    retention: Retention
    reports: Reports
    traffic: Traffic
    not_ready: Callable[[], list[str]]
    subscriptions: list[Subscriptions] = field(default_factory=list)


class Subject(NamedTuple):
    """Metrics that are collected together. ``title`` is their page's heading; ``collect`` returns these and no others."""

    title: str
    metrics: tuple[Described, ...]
    collect: Callable[[Measured], Awaitable[Iterable[Metric]]]
