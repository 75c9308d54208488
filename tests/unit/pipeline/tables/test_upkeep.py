"""How long a file that left a table must stay: as long as a moment that readers may still have needs it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.tables.upkeep import publishes_with, retained_hours

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def kept_after(gaps: list[int]) -> tuple[list[str], list[datetime]]:
    """The times that are kept, and all of them, of publishes with so many minutes between them; the last is NOW."""
    moments = [NOW]
    for minutes in gaps:
        moments.append(moments[-1] - timedelta(minutes=minutes))
    kept: list[str] = []
    for moment in reversed(moments):
        kept = publishes_with(kept, moment)
    return kept, moments


def test_nothing_is_removed_before_a_day_has_passed() -> None:
    kept, _ = kept_after([60] * 23)
    assert retained_hours(kept, NOW) is None


def test_after_a_long_pause_what_was_published_before_it_stays() -> None:
    kept, _ = kept_after([1, 60 * 72, 60])
    assert retained_hours(kept, NOW) == 73  # of the two publishes before the pause the first stands for both


@given(st.lists(st.integers(1, 60 * 40), max_size=80))
def test_no_file_of_a_moment_of_the_last_day_is_removed_and_the_list_stays_short(gaps: list[int]) -> None:
    kept, moments = kept_after(gaps)
    assert len(kept) <= 27
    hours = retained_hours(kept, NOW)
    if hours is not None:
        # What was shown a day ago was published by then; files that left tables after that are needed.
        shown = max(moment for moment in moments if NOW - moment >= 24 * HOUR)
        assert NOW - hours * HOUR <= shown
