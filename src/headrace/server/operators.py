"""The use cases of operators: feeds, retention, metrics, alarms, health."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace import __version__
from headrace.access.grants import EVERYTHING, Grant
from headrace.server.core import Core
from headrace.server.metrics.exposition import exposition
from headrace.server.metrics.measured import Measured
from headrace.server.publishing import settings_view
from headrace.server.retention.explaining import explain
from headrace.server.retention.history import HistoryKeeper, Point, SeriesKey
from headrace.server.retention.lags import FeedLags, hydration_view
from headrace.server.retention.loop import Retention
from headrace.wire import documents as doc
from headrace.wire.retention_documents import RetentionView, Rotated


class OperatorCases(Core):
    """What people and their tools ask for, one method each."""

    retention: Retention
    histories: HistoryKeeper
    measured: Measured
    on_rotate: list[Callable[[], int]]
    """Each asks the subscribers of one face's open streams to begin a new file, and returns how many streams there are."""

    async def feeds(self, grant: Grant = EVERYTHING) -> doc.FeedList:
        """Return every feed that ``grant`` may see with its bounds, owner, listeners and subscribers, by region id."""
        seen = [tail for tail in self.log.feeds() if grant.may_see(tail.name, tail.tenant)]
        return doc.FeedList(feeds=[_view(lags, grant) for lags in await self.retention.lags(seen)])

    async def feed(self, feed: str, grant: Grant = EVERYTHING) -> doc.FeedView:
        """Return one feed with its bounds, owner, listeners and subscribers; FeedNotFound."""
        (lags,) = await self.retention.lags([await self.log.find(feed)])
        return _view(lags, grant)

    async def explain_retention(self) -> RetentionView:
        """Return what retention keeps and would drop now, and why; changes nothing."""
        return await explain(self.log, self.retention)

    def rotate_streams(self) -> Rotated:
        """Ask the subscribers of this server's open streams to begin a new file; they hear it between two batches.

        Streams of other servers on the same store are not reached. Safe to repeat.
        """
        return Rotated(streams=sum(ask() for ask in self.on_rotate))

    async def metrics(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return await exposition(self.measured)

    async def alarms(self) -> doc.AlarmList:
        """Return the alarms that stand, newest first, then the newest cleared ones."""
        rows = self.log.troubles.among(await asyncio.to_thread(self.log.metadata.alarms))
        return doc.AlarmList(
            alarms=[
                doc.AlarmView(
                    alarm_id=row.alarm_id,
                    code=row.code,
                    raised_at=doc.rfc3339(row.raised_at_ms),
                    detail=row.detail,
                    change_feed_id=row.feed,
                    agent_id=row.agent_id,
                    cleared_at=doc.rfc3339(row.cleared_at_ms) if row.cleared_at_ms is not None else None,
                )
                for row in rows
            ]
        )

    def rate_of(self, view: doc.FeedView) -> float | None:
        """Return how many entries a second a feed got in the last minute; None before that can be said."""
        now_ms = self._clock.wall_ms()
        return self.histories.history.rate(
            view.change_feed_id, view.incarnation, view.head_sequence_id, now_ms
        )

    def lags_of(self, key: SeriesKey) -> list[Point]:
        """Return how far behind one consumer was over the last hour, oldest first, as far as this server remembers it.

        What a caller may know of a consumer is what :meth:`feeds` shows it.
        """
        return self.histories.history.points(key)

    def health(self) -> doc.Health:
        """Say that the process answers."""
        return doc.Health(status="ok", version=__version__, reasons=[])

    def readiness(self) -> doc.Health:
        """Say whether appends are taken, and if not, why."""
        reasons = self.not_appending()
        return doc.Health(status="not-ready" if reasons else "ok", version=__version__, reasons=reasons)

    def not_appending(self) -> list[str]:
        """Why appends are not taken; empty when they are."""
        return [*self.log.not_ready, *self._stopping()]

    def not_reading(self) -> list[str]:
        """Why reads are not served; empty when they are. A writer that has stopped is no reason."""
        return [*self.log.not_readable, *self._stopping()]

    def _stopping(self) -> list[str]:
        return ["the server is stopping"] if self._waits.stopping else []


def _view(lags: FeedLags, grant: Grant) -> doc.FeedView:
    """Subscribers stand across feeds and tenants: each sees itself, an admin all."""
    everybody = grant.may_administer()
    tail = lags.tail
    return doc.FeedView(
        change_feed_id=tail.name,
        region_id=tail.region_id,
        tenant_id=tail.tenant,
        incarnation=tail.incarnation,
        owner=tail.owner,
        epoch=tail.epoch,
        first_sequence_id=tail.first_sequence_id,
        oldest_sequence_id=tail.oldest,
        head_sequence_id=tail.head,
        next_sequence_id=tail.next_sequence_id,
        newest_lsn=tail.newest_lsn,
        quarantined=bool(tail.quarantines),
        shared=tail.shared,
        settings=settings_view(tail),
        listeners=[one.view() for one in lags.listeners],
        subscribers=[one.view() for one in lags.subscribers if everybody or one.row.subject == grant.subject],
        hydrations=[hydration_view(one) for one in lags.hydrations],
        lost_lsns=list(tail.lost_by_rebuilds),
    )
