"""commitTs grows whatever the source's times do."""

from __future__ import annotations

from headrace.capture.commit_time import CommitClock

MS = 1_708_923_662_000
HOUR_MS = 3_600_000


def clock_from(last: int) -> CommitClock:
    return CommitClock(last, wall_ms=lambda: MS)


def test_it_is_the_events_time_and_grows() -> None:
    clock = clock_from(0)
    assert clock.next(MS) == MS << 18
    assert clock.next(MS) == (MS << 18) + 1
    assert clock.next(MS - 60_000) == (MS << 18) + 2, "the source's clock was put back"
    assert clock.next(MS + 1) == (MS + 1) << 18
    assert clock.last == (MS + 1) << 18


def test_it_goes_on_behind_the_last_one() -> None:
    clock = clock_from((MS + 5) << 18)
    assert clock.next(MS) == ((MS + 5) << 18) + 1


def test_a_session_that_sets_its_time_far_ahead_does_not_take_the_feed_with_it() -> None:
    clock = clock_from(0)
    assert clock.next(2_147_483_000_000) == (MS + HOUR_MS) << 18
    assert clock.next(MS) == ((MS + HOUR_MS) << 18) + 1
    assert clock.next(MS + HOUR_MS + 1) == ((MS + HOUR_MS) << 18) + 2
