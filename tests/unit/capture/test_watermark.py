"""When a WATERMARK is due: by the time, and by what was read."""

from __future__ import annotations

from headrace.capture.binlog.event import GtidPosition
from headrace.capture.watermark import SourceMoment, WatermarkPolicy

HERE = GtidPosition.parse("0-1-10,1-2-5")
LATER = GtidPosition.parse("0-1-11,1-2-5")


def policy(*, held: bool = False) -> WatermarkPolicy:
    return WatermarkPolicy(1.0, 10.0, held=held)


def sent(at: float) -> WatermarkPolicy:
    """A policy whose last WATERMARK was sent ``at`` that second."""
    made = policy()
    made.answer(SourceMoment(1000, HERE))
    assert made.take(at, HERE) == 1000
    return made


def test_the_first_is_due_at_once() -> None:
    made = policy()
    assert made.asks(100.0)
    made.answer(SourceMoment(1000, HERE))
    assert not made.asks(100.0), "the question stands"
    assert made.wait_s(100.0) == 0
    assert made.take(100.0, HERE) == 1000
    assert made.take(100.0, HERE) is None, "once"


def test_one_a_second_while_there_are_changes() -> None:
    made = sent(100.0)
    made.note_change()
    assert not made.asks(100.9)
    assert round(made.wait_s(100.9), 6) == 0.1
    assert made.asks(101.0)


def test_less_often_without_changes() -> None:
    made = sent(100.0)
    assert not made.asks(109.9)
    assert made.asks(110.0)
    made.note_change()
    assert made.asks(101.0), "the last change is covered within a second"


def test_it_waits_for_what_the_source_had() -> None:
    made = policy()
    made.answer(SourceMoment(1000, LATER))
    assert made.take(100.0, HERE) is None
    assert made.take(105.0, GtidPosition.parse("0-1-11")) is None, "every domain counts"
    assert not made.asks(105.0), "a stream that lags is not asked anew"
    assert made.take(106.0, GtidPosition.parse("0-1-12,1-2-5")) == 1000


def test_none_is_due_before_the_snapshot_is_whole() -> None:
    made = policy(held=True)
    assert not made.asks(100.0)
    assert made.wait_s(100.0) == 1.0
    made.answer(SourceMoment(1000, HERE))
    assert made.take(100.0, HERE) is None
    made.held = False
    assert made.take(100.0, HERE) == 1000


def test_an_answer_of_another_connection_is_forgotten() -> None:
    made = policy()
    made.answer(SourceMoment(1000, HERE))
    made.forget()
    assert made.take(100.0, HERE) is None
    assert made.asks(100.0)
