"""What ``headrace status`` gathers from a server, and the one document of it."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec import to_builtins

from headrace.client.http import FeedClient
from headrace.errors import Forbidden
from headrace.runtime.clock import SystemClock
from headrace.wire.documents import AlarmView, FeedView, Health, rfc3339
from headrace.wire.report_documents import ReportView
from headrace.wire.retention_documents import RetentionView

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a server.

    ``rates``: entries a second of each feed, empty if that was not asked. ``alarms``, ``processes`` and ``retention`` are
    None where the token may not see them. Of the alarms there are only those that stand.
    """

    server: str
    at_ms: int
    health: Health
    feeds: Sequence[FeedView]
    rates: dict[str, float] = field(default_factory=dict)
    alarms: Sequence[AlarmView] | None = None
    processes: Sequence[ReportView] | None = None
    retention: RetentionView | None = None

    @property
    def is_in_order(self) -> bool:
        """Whether nothing here needs a person: ready, no alarm, nobody stuck or failed. What is not shown does not count."""
        troubled = any(one.state in {"stuck", "failed"} for one in self.processes or ())
        return self.health.status == "ok" and not self.alarms and not troubled

    @property
    def not_shown(self) -> list[str]:
        """What the token may not see."""
        parts = {"alarms": self.alarms, "processes": self.processes, "retention": self.retention}
        return [name for name, part in parts.items() if part is None]

    def document(self) -> dict[str, Any]:
        """Return all of it as one JSON document; docs/reference/status.md says what its members mean."""
        return {
            "server": self.server,
            "at": rfc3339(self.at_ms),
            "version": self.health.version,
            "in-order": self.is_in_order,
            "ready": self.health.status == "ok",
            "reasons": self.health.reasons,
            "feeds": [
                {**to_builtins(one), "entries-per-second": self.rates.get(one.change_feed_id)}
                for one in self.feeds
            ],
            "processes": to_builtins(self.processes),
            "alarms": to_builtins(self.alarms),
            "retention": to_builtins(self.retention),
            "not-shown": self.not_shown,
        }


async def take_look(client: FeedClient, *, earlier: Sequence[FeedView] = (), seconds: float = 0.0) -> Look:
    """Ask the server for everything; ``earlier`` is how its feeds stood ``seconds`` ago, for their rates.

    Raises what the server answers, but for what an admin alone may see.
    """
    health = await client.ready()
    feeds = await client.feeds()
    alarms = await _if_allowed(client.alarms())
    return Look(
        server=client.server,
        at_ms=SystemClock().wall_ms(),
        health=health,
        feeds=feeds,
        rates=_rates(earlier, feeds, seconds),
        alarms=None if alarms is None else [one for one in alarms if one.cleared_at is None],
        processes=await _if_allowed(client.reports()),
        retention=await _if_allowed(client.retention()),
    )


def _rates(earlier: Sequence[FeedView], now: Sequence[FeedView], seconds: float) -> dict[str, float]:
    """Return the entries a second of each feed that is the same history as before."""
    before = {(one.change_feed_id, one.incarnation): one.head_sequence_id for one in earlier}
    return {
        one.change_feed_id: (one.head_sequence_id - before[one.change_feed_id, one.incarnation]) / seconds
        for one in now
        if (one.change_feed_id, one.incarnation) in before and seconds > 0
    }


async def _if_allowed(asked: Awaitable[T]) -> T | None:
    try:
        return await asked
    except Forbidden:
        return None
