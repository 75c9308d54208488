"""The last hour of lags and heads: bounded, and a rate that is that of the last minute."""

from __future__ import annotations

import math

from headrace.log.metadata.contract import ListenerRow
from headrace.log.retention.loss import Loss, LossState
from headrace.log.tail import FeedTail
from headrace.server.retention.history import POINTS_MAX, SERIES_MAX, SPAN_MS, History, Point, SeriesKey
from headrace.server.retention.lags import FeedLags, ListenerLag

NOW = 1_700_000_000_000
LISTENER = SeriesKey("listener", "", "cache", "shop")


def lags(head: int, behind: int | None = None, *, feed: str = "shop", incarnation: str = "one") -> FeedLags:
    tail = FeedTail(feed, 1, "", incarnation, "agent", "i", 1, next_sequence_id=head + 1)
    row = ListenerRow("cache", feed, hold=False, incarnation=None, sequence_id=None, lsn=None, seen_at_ms=NOW)
    loss = Loss(LossState.UP_TO_DATE, math.inf)
    return FeedLags(tail, [ListenerLag(row, behind, None, None, loss)], [], [])


def test_points_come_back_oldest_first_and_unknown_ones_as_nan() -> None:
    history = History()
    history.add(NOW, [lags(5, 2)])
    history.add(NOW + 10_000, [lags(9, None)])
    first, second = history.points(LISTENER)
    assert (first.at_ms, first.entries) == (NOW, 2)
    assert math.isnan(second.entries)
    assert math.isnan(second.seconds)
    assert history.points(LISTENER._replace(name="other")) == []


def test_an_hour_is_kept_and_no_more() -> None:
    history = History()
    for number in range(2 * POINTS_MAX):
        history.add(NOW + number * 10_000, [lags(number, number)])
    points = history.points(LISTENER)
    assert len(points) == POINTS_MAX
    assert points[-1].entries == 2 * POINTS_MAX - 1
    history.add(NOW + 2 * POINTS_MAX * 10_000 + 2 * SPAN_MS, [])
    assert history.points(LISTENER) == []


def test_who_comes_when_there_is_no_room_is_not_remembered() -> None:
    history = History()
    history.add(NOW, [lags(1, 1, feed=f"feed-{number}") for number in range(SERIES_MAX)])
    known = [
        number for number in range(SERIES_MAX) if history.points(LISTENER._replace(feed=f"feed-{number}"))
    ]
    assert len(known) == SERIES_MAX // 2, "each has two series: the feed's and its listener's"


def test_a_rate_is_that_of_the_last_minute() -> None:
    history = History()
    assert history.rate("shop", "one", 10, NOW) is None
    history.add(NOW, [lags(0)])
    assert history.rate("shop", "one", 10, NOW + 500) is None, "too short to say"
    assert history.rate("shop", "one", 10, NOW + 2_000) == 5
    for second in range(10, 310, 10):
        history.add(NOW + second * 1000, [lags(min(second, 240))])
    assert history.rate("shop", "one", 240, NOW + 300_000) == 0
    assert history.rate("shop", "one", 300, NOW + 300_000) == 1
    assert history.rate("shop", "two", 300, NOW + 300_000) is None, "another history"
    assert history.points(SeriesKey("feed", "", "one", "shop"))[0] == Point(NOW, 0, 0)
