"""The page of listeners and subscribers: how far behind each is, how long it has, and how that was over the last hour."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from starlette.responses import Response

from headrace.server.console.chart import Chart, draw
from headrace.server.console.drawing import page
from headrace.server.http.table import Call
from headrace.server.retention.history import SeriesKey
from headrace.server.service import Service
from headrace.wire.documents import FeedView, TimeToLoss

CHARTS_MAX: Final = 24
"""Charts on one page: of those who are furthest behind."""
CONSUMERS_MAX: Final = 500
"""Rows on one page: of those who are furthest behind."""


class LagView(NamedTuple):
    """A consumer in one feed. ``place``: up to where it is. ``hold``: retention waits for it. ``chart``: its last hour, None
    where there is no room for one.
    """

    kind: str
    name: str
    subject: str
    feed: str
    place: str
    entries: int | None
    bytes: int | None
    seconds: float | None
    loss: TimeToLoss | None
    hold: bool
    seen_at: str
    chart: Chart | None = None

    @property
    def key(self) -> SeriesKey:
        """Under what its last hour is remembered."""
        return SeriesKey(self.kind, self.subject, self.name, self.feed)

    @property
    def anchor(self) -> str:
        """Return what its chart is called on a page."""
        return f"{self.kind} {self.subject}/{self.name} {self.feed}"


def lag_views(service: Service, views: Iterable[FeedView]) -> list[LagView]:
    """Return the consumers of some feeds, those furthest behind first; the first of them with a chart."""
    found = [one for view in views for one in _consumers(view)]
    found.sort(key=lambda one: (-(one.entries if one.entries is not None else -1), one.feed, one.name))
    now_ms = time.time_ns() // 1_000_000
    charted = [one._replace(chart=draw(service.lags_of(one.key), now_ms)) for one in found[:CHARTS_MAX]]
    return [*charted, *found[CHARTS_MAX:]]


async def list_consumers(service: Service, call: Call) -> Response:
    """Show everyone who reads, as far as the caller may know of them."""
    found = lag_views(service, (await service.feeds(call.grant)).feeds)
    return await page(service, call, "consumers.html", consumers=found[:CONSUMERS_MAX], found=len(found))


def _consumers(view: FeedView) -> Sequence[LagView]:
    feed = view.change_feed_id
    return [
        *(
            LagView(
                "listener", one.listener_id, "", feed, str(one.sequence_id) if one.sequence_id is not None else "",
                one.lag_entries, one.lag_bytes, one.lag_seconds, one.time_to_loss, one.hold, one.seen_at,
            )
            for one in view.listeners
        ),
        *(
            LagView(
                "subscriber", other.subscriber_id, other.subject, feed, other.lsn, other.lag_entries, other.lag_bytes,
                other.lag_seconds, other.time_to_loss, True, other.seen_at,
            )
            for other in view.subscribers
        ),
    ]  # fmt: skip
