"""How far behind listeners and subscribers are, and how long they have until retention takes what they need."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from headrace.log.log import Log
from headrace.server.retention.lags import FeedLags, ListenerLag, SubscriberLag
from headrace.server.retention.loop import Retention

LABELS: Final = ("kind", "consumer", "feed")


async def collect(log: Log, retention: Retention) -> Iterable[Metric]:
    """Return lags by consumer and feed, and times to loss. What is not known is left out."""
    await log.refresh()
    return _families(await retention.lags(log.feeds()))


def _families(found: list[FeedLags]) -> Iterable[Metric]:
    entries = _gauge("headrace_consumer_lag_entries", "Entries of the feed after the consumer's place.")
    size = _gauge("headrace_consumer_lag_bytes", "Stored bytes of the feed after the consumer's place.")
    seconds = _gauge(
        "headrace_consumer_lag_seconds",
        "From the commit at the consumer's place to that of the newest entry.",
    )
    loss = _gauge(
        "headrace_time_to_loss_seconds",
        "Until the consumer loses its place at the rates of the last minutes; +Inf: nothing threatens it. The feed of a "
        "subscriber is empty: it reads all feeds.",
    )
    behind = GaugeMetricFamily(
        "kdb_wal_subscriber_lag_lsn",
        "Entries behind head, over all feeds (RFC-010).",
        labels=["subscriber_id"],
    )
    totals: Counter[str] = Counter()
    subscribers: dict[str, SubscriberLag] = {}
    for feed in found:
        for listener in feed.listeners:
            _add(listener, ("listener", listener.row.listener_id, feed.tail.name), entries, size, seconds)
            if not math.isnan(listener.loss.seconds):
                loss.add_metric(("listener", listener.row.listener_id, feed.tail.name), listener.loss.seconds)
        for subscriber in feed.subscribers:
            name = subscriber.name
            _add(subscriber, ("subscriber", name, feed.tail.name), entries, size, seconds)
            totals[name] += subscriber.entries
            subscribers[name] = subscriber
    for name, subscriber in subscribers.items():
        loss.add_metric(("subscriber", name, ""), subscriber.loss.seconds)
        behind.add_metric((name,), totals[name])
    return (entries, size, seconds, loss, behind)


def _gauge(name: str, help_text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_text, labels=LABELS)


def _add(
    lag: ListenerLag | SubscriberLag,
    labels: tuple[str, str, str],
    entries: GaugeMetricFamily,
    size: GaugeMetricFamily,
    seconds: GaugeMetricFamily,
) -> None:
    for family, value in ((entries, lag.entries), (size, lag.bytes), (seconds, lag.seconds)):
        if value is not None:
            family.add_metric(labels, value)
