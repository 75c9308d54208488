"""Time to loss, pure: how long until a consumer that is behind loses its place, at the rates of the last minutes.

Two frontiers chase a consumer: age (segments older than the retention go, unless it holds) and the byte cap (which wins over
holding). The estimate takes both rates as they are; its granularity is a journal segment and the pause between two passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from headrace.entries.hlc import to_ms
from headrace.log.contract import SegmentView
from headrace.log.retention.plan import Consumer, Terms

ACTIVE_MS: Final = 120_000
"""Who was seen within this time is taken to stay: twice the longest long poll. Who was not holds until it expires."""
FAR_S: Final = 10 * 365 * 86_400.0
"""No rate of ten minutes says anything of a day ten years from now: that is never."""


class Rates(NamedTuple):
    """Bytes of journal a second over a sliding window: how fast a consumer's place moves, how fast the end does."""

    consumed: float = 0.0
    written: float = 0.0


class LossState(Enum):
    """What can be said of a consumer's place; the values are those of the API."""

    UP_TO_DATE = "up-to-date"
    UNKNOWN = "unknown"
    LOST = "lost"
    HELD = "held"
    NEVER = "never-at-this-rate"
    BY_AGE = "by-age"
    BY_BYTE_CAP = "by-byte-cap"
    BY_EXPIRY = "by-expiry"


class Loss(NamedTuple):
    """When a place is lost. ``seconds`` is infinite where nothing threatens it, NaN where it is not known."""

    state: LossState
    seconds: float

    def describe(self) -> str:
        """Return it as people read it, such as ``loses its place in 3 h 10 min``."""
        return _WORDS.get(self.state) or f"loses its place in {duration(self.seconds)}{_CAUSES[self.state]}"


_WORDS: Final = {
    LossState.UP_TO_DATE: "up to date",
    LossState.UNKNOWN: "unknown: it has reported no place",
    LossState.LOST: "has lost its place",
    LossState.HELD: "held",
    LossState.NEVER: "never at this rate",
}
_CAUSES: Final = {
    LossState.BY_AGE: "",
    LossState.BY_BYTE_CAP: " (byte cap)",
    LossState.BY_EXPIRY: " unless it is seen again",
}


def time_to_loss(
    consumer: Consumer, needed_ms: int | None, segments: Sequence[SegmentView], rates: Rates, terms: Terms
) -> Loss:
    """Return when ``consumer`` loses its place if the rates stay as they are.

    ``needed_ms``: when the first frame that it needs was written (None: not known, the newest of its segment is taken).
    Never promises more time than a consumer that stands still has, unless it moves; for the open segment, whose newest
    frame may still come, it is the least.
    """
    if consumer.lost:
        return Loss(LossState.LOST, 0.0)
    if consumer.position is None:
        return Loss(LossState.UNKNOWN, math.nan)
    end = segments[-1].end
    if consumer.position >= end:
        return Loss(LossState.UP_TO_DATE, math.inf)
    at = next(index for index, one in enumerate(segments) if consumer.position < one.end)
    own, behind = segments[at], end - consumer.position
    newest_ms = to_ms(own.newest_global_ts)
    stands_s = max(0.0, (newest_ms + terms.retention_ms - terms.now_ms) / 1000)
    age_s = max(0.001, (terms.now_ms - (newest_ms if needed_ms is None else needed_ms)) / 1000)
    by_age = _seconds_by_age(stands_s, age_s, behind, rates)
    state = LossState.BY_AGE
    if consumer.holds(terms.now_ms) and consumer.hold_until_ms is not None:
        held_s = (consumer.hold_until_ms - terms.now_ms) / 1000
        if terms.now_ms - consumer.seen_at_ms <= ACTIVE_MS:
            by_age = math.inf
        elif held_s > by_age:
            by_age, state = held_s, LossState.BY_EXPIRY
    by_cap = _seconds_by_cap(terms.bytes_max - sum(one.size for one in segments[at:]), own.is_open, rates)
    if by_cap < min(by_age, FAR_S):
        return Loss(LossState.BY_BYTE_CAP, by_cap)
    if by_age >= FAR_S:
        return Loss(LossState.HELD if consumer.holds(terms.now_ms) else LossState.NEVER, math.inf)
    return Loss(state, by_age)


def _seconds_by_age(stands_s: float, age_s: float, behind: int, rates: Rates) -> float:
    """When the frontier of age meets the consumer: ``stands_s`` if it stands still.

    It reads its backlog (``behind`` bytes written over ``age_s`` seconds) first: the frontier moves through that at
    behind / age_s bytes a second, and through what is written from now on at the write rate.
    """
    if not rates.consumed:
        return stands_s
    backlog_rate = behind / age_s
    through_s = stands_s + age_s
    if backlog_rate > rates.consumed:
        met_s = backlog_rate * stands_s / (backlog_rate - rates.consumed)
        if met_s <= through_s:
            return met_s
    if rates.written > rates.consumed:
        met_s = (rates.written * through_s - behind) / (rates.written - rates.consumed)
        return max(through_s, met_s)
    return math.inf


def _seconds_by_cap(left: int, is_open: bool, rates: Rates) -> float:
    """When the byte cap takes the consumer's segment, once more than ``left`` bytes are added; not while it is open."""
    if left < 0 and not is_open:
        return 0.0
    closing = rates.written - rates.consumed
    return max(0, left) / closing if closing > 0 else math.inf


def duration(seconds: float) -> str:
    """Return a duration by its two largest units, rounded down: ``2 d 4 h``, ``3 h 10 min``, ``45 s``."""
    whole = int(seconds)
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit} {rest} {name}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"
