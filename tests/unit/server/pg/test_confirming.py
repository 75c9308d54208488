"""What counts as confirmed, and when a client is told how far the journal was walked."""

from __future__ import annotations

from headrace.entries.lsn import Lsn
from headrace.server.pg.confirming import TELL_EVERY_S, Confirmed, Confirming
from headrace.server.pg.positions import Mark


def mark(end: int) -> Mark:
    """Of a frame behind which nothing is open."""
    return Mark(end, Lsn(end, 1, 1), Lsn(end, 1, 1))


def test_what_was_not_sent_is_not_confirmed() -> None:
    one = Confirming(100, 100)
    assert one.hear(1 << 63) is None
    one.note(150, [])
    assert one.hear(1 << 63) == Confirmed(150, None), "inside a frame: no mark is passed"
    one.note(200, [mark(200)])
    assert one.hear(1 << 63) == Confirmed(200, mark(200))


def test_what_lies_behind_the_confirmed_position_is_nothing_new() -> None:
    one = Confirming(100, 100)
    one.note(200, [mark(150), mark(200)])
    assert one.hear(99) is None
    assert one.hear(199) == Confirmed(199, mark(150))
    assert one.hear(150) is None
    assert one.hear(200) == Confirmed(200, mark(200))


def test_a_frame_that_is_noted_behind_its_confirmation_is_passed_with_the_next_word() -> None:
    one = Confirming(100, 100)
    one.note(200, [])
    assert one.hear(200) == Confirmed(200, None)
    one.note(0, [mark(200)])
    assert one.hear(200) == Confirmed(200, mark(200))
    assert one.hear(200) is None


def test_a_start_that_was_not_confirmed_yet_is_confirmed_by_saying_so() -> None:
    assert Confirming(100, 50).hear(100) == Confirmed(100, None)


def test_a_client_is_told_at_once_and_then_once_a_second() -> None:
    one = Confirming(100, 100)
    assert one.tell_in_s(0.0) is None, "it knows"
    one.note(0, [mark(200)])
    assert one.tell_in_s(0.0) == 0.0
    assert one.tell(0.0) == 200
    one.note(0, [mark(300)])
    assert one.tell_in_s(0.25) == TELL_EVERY_S - 0.25
    assert one.tell_in_s(5.0) == 0.0


def test_a_record_at_a_frames_end_tells_as_much() -> None:
    one = Confirming(100, 100)
    one.note(200, [mark(200)])
    assert one.tell_in_s(0.0) is None


def test_a_keepalive_within_a_frame_says_no_more_than_what_was_whole() -> None:
    one = Confirming(100, 100)
    one.note(150, [])
    assert one.tell(0.0) == 100
