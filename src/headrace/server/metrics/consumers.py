"""How far behind listeners and subscribers are, and how long they have until retention takes what they need."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Final

from prometheus_client.core import Metric

from headrace.runtime.metric import gauge
from headrace.server.metrics.measured import Measured, Subject
from headrace.server.retention.lags import FeedLags, ListenerLag, SubscriberLag

_LABELS: Final = ("kind", "consumer", "feed")

ENTRIES: Final = gauge(
    "headrace_consumer_lag_entries", "Entries of the feed after the consumer's place.", *_LABELS
)
BYTES: Final = gauge(
    "headrace_consumer_lag_bytes", "Stored bytes of the feed after the consumer's place.", *_LABELS
)
SECONDS: Final = gauge(
    "headrace_consumer_lag_seconds",
    "From the commit at the consumer's place to that of the newest entry.",
    *_LABELS,
)
LOSS: Final = gauge(
    "headrace_time_to_loss_seconds",
    "Until the consumer loses its place at the rates of the last minutes; +Inf: nothing threatens it, 0: it is lost. The "
    "feed of a subscriber is empty: it reads all feeds.",
    *_LABELS,
)
BEHIND: Final = gauge(
    "kdb_wal_subscriber_lag_lsn", "Entries behind head, over all feeds (RFC-010).", "subscriber_id"
)

Samples = list[tuple[tuple[str, ...], float]]


async def _collect(measured: Measured) -> Iterable[Metric]:
    """What is not known is left out."""
    return _families(await measured.retention.lags(measured.log.feeds()))


def _families(found: list[FeedLags]) -> Iterable[Metric]:
    entries: Samples = []
    size: Samples = []
    seconds: Samples = []
    loss: Samples = []
    totals: Counter[str] = Counter()
    subscribers: dict[str, SubscriberLag] = {}
    for feed in found:
        for listener in feed.listeners:
            labels = ("listener", listener.row.listener_id, feed.tail.name)
            _add(listener, labels, entries, size, seconds)
            if not math.isnan(listener.loss.seconds):
                loss.append((labels, listener.loss.seconds))
        for subscriber in feed.subscribers:
            name = subscriber.name
            _add(subscriber, ("subscriber", name, feed.tail.name), entries, size, seconds)
            totals[name] += subscriber.entries
            subscribers[name] = subscriber
    loss += [(("subscriber", name, ""), one.loss.seconds) for name, one in subscribers.items()]
    behind = BEHIND.of(((name,), total) for name, total in totals.items())
    return (ENTRIES.of(entries), BYTES.of(size), SECONDS.of(seconds), LOSS.of(loss), behind)


def _add(
    lag: ListenerLag | SubscriberLag,
    labels: tuple[str, str, str],
    entries: Samples,
    size: Samples,
    seconds: Samples,
) -> None:
    for samples, value in ((entries, lag.entries), (size, lag.bytes), (seconds, lag.seconds)):
        if value is not None:
            samples.append((labels, value))


SUBJECT: Final = Subject(
    "Listeners and subscribers: how far behind, how long until loss",
    (ENTRIES, BYTES, SECONDS, LOSS, BEHIND),
    _collect,
)
