"""commitTs grows whatever the source's times do."""

from __future__ import annotations

from headrace.capture.commit_time import CommitClock

MS = 1_708_923_662_000


def test_it_is_the_events_time_and_grows() -> None:
    clock = CommitClock(0)
    assert clock.next(MS) == MS << 18
    assert clock.next(MS) == (MS << 18) + 1
    assert clock.next(MS - 60_000) == (MS << 18) + 2, "the source's clock was put back"
    assert clock.next(MS + 1) == (MS + 1) << 18
    assert clock.last == (MS + 1) << 18


def test_it_goes_on_behind_the_last_one() -> None:
    clock = CommitClock((MS + 5) << 18)
    assert clock.next(MS) == ((MS + 5) << 18) + 1
