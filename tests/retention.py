"""Segments and consumers made by hand, for tests of plans and of times to loss. One segment is 1,000 bytes of journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.entries.hlc import from_ms
from headrace.log.contract import SegmentView
from headrace.log.retention.plan import Consumer, ConsumerKind, Terms

HOUR_MS = 3_600_000
NOW_MS = 1_760_000_000_000
SIZE = 1000


def segments(*newest_hours_ago: float, size: int = SIZE) -> list[SegmentView]:
    """One segment for each age of its newest frame, oldest first; the last is the open one."""
    return [
        SegmentView(
            index * SIZE,
            (index + 1) * SIZE,
            size,
            from_ms(NOW_MS - round(hours * HOUR_MS)),
            index == len(newest_hours_ago) - 1,
        )
        for index, hours in enumerate(newest_hours_ago)
    ]


def terms(**given: Any) -> Terms:
    """48 h of retention, 24 h until expiry, a byte cap out of reach; now unless ``later_hours``."""
    later_ms = round(given.pop("later_hours", 0) * HOUR_MS)
    defaults = {
        "now_ms": NOW_MS + later_ms,
        "retention_ms": 48 * HOUR_MS,
        "expiry_ms": 24 * HOUR_MS,
        "bytes_max": 1 << 40,
    }
    return Terms(**(defaults | given))


def consumer(
    position: int | None, *, hold_hours: float | None = None, name: str = "c", **given: Any
) -> Consumer:
    """A listener at ``position``, seen now; it holds for ``hold_hours`` more if given."""
    until = None if hold_hours is None else NOW_MS + round(hold_hours * HOUR_MS)
    fields: dict[str, Any] = {
        "kind": ConsumerKind.LISTENER,
        "name": name,
        "feed": "f",
        "place": f"position {position}",
        "position": position,
        "seen_at_ms": NOW_MS,
        "hold_until_ms": until,
        "lost": False,
    }
    return Consumer(**(fields | given))


def sizes(found: Sequence[SegmentView]) -> int:
    """What the segments take together."""
    return sum(one.size for one in found)
