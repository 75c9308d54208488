"""Each feed: how many entries it has had, how many are retained, who is quarantined in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import Metric

from headrace.runtime.metric import counter, gauge
from headrace.server.metrics.measured import Measured, Subject

ENTRIES: Final = counter(
    "headrace_feed_entries_total",
    "Entries that were ever appended to the feed: its head's sequence id. It goes on over restarts.",
    "feed",
)
RETAINED: Final = gauge("headrace_feed_retained_entries", "Entries of the feed that can be read.", "feed")
QUARANTINES: Final = gauge(
    "headrace_quarantined_publishers", "Publishers that are quarantined in the feed.", "feed"
)


async def _collect(measured: Measured) -> Iterable[Metric]:
    tails = measured.log.feeds()
    return (
        ENTRIES.of(((tail.name,), tail.head) for tail in tails),
        RETAINED.of(((tail.name,), tail.head - tail.oldest + 1) for tail in tails),
        QUARANTINES.of(((tail.name,), len(tail.quarantines)) for tail in tails),
    )


SUBJECT: Final = Subject("Feeds", (ENTRIES, RETAINED, QUARANTINES), _collect)
