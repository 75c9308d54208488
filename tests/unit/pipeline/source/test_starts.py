"""What the options start and end may say, and what is made of it."""

from __future__ import annotations

import pytest

from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest
from headrace.pipeline.source.starts import Instant, first_of, last_of, read_moment, time_us


class Asked:
    """Notes what is looked up, and answers 7."""

    def __init__(self) -> None:
        self.asked: list[int | Lsn] = []

    def first_since(self, feed: str, ms: int) -> int:
        self.asked.append(ms)
        return 7

    def first_from_lsn(self, feed: str, lsn: Lsn) -> int:
        self.asked.append(lsn)
        return 7


def test_each_form_is_read() -> None:
    assert read_moment("oldest", "start") == "oldest"
    assert read_moment("head", "start") == "head"
    assert read_moment("17", "start") == 17
    assert read_moment("ff.1.2", "start") == Lsn(255, 1, 2)
    assert read_moment("1970-01-01T01:00:00.000001+01:00", "start") == Instant(1)


@pytest.mark.parametrize("text", ["", "0", "-1", "newest", "1.2", "2026-01-01T00:00:00", "9" * 30, "²"])
def test_what_is_none_of_them_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"option end: .* is not a sequence id, an LSN"):
        read_moment(text, "end")


def test_a_time_between_two_milliseconds_counts_for_what_it_is() -> None:
    lookup = Asked()
    between = Instant(time_us("1970-01-01T00:00:05.000500Z"))
    assert (first_of(between, "f", lookup), last_of(between, "f", lookup)) == (7, 6)
    assert lookup.asked == [5001, 5001]
    exact = Instant(5_000_000)
    assert (first_of(exact, "f", lookup), last_of(exact, "f", lookup)) == (7, 6)
    assert lookup.asked[2:] == [5000, 5001]
    assert first_of(Instant(-5), "f", lookup) == 7
    assert lookup.asked[4:] == [0]


def test_an_end_is_inclusive() -> None:
    lookup = Asked()
    assert (first_of(9, "f", lookup), last_of(9, "f", lookup)) == (9, 9)
    assert (first_of(Lsn(1, 2, 3), "f", lookup), last_of(Lsn(1, 2, 3), "f", lookup)) == (7, 6)
    assert last_of(Lsn.from_int((1 << 128) - 1), "f", lookup) == 6
    assert lookup.asked == [Lsn(1, 2, 3), Lsn(1, 2, 4), Lsn.from_int((1 << 128) - 1)]
