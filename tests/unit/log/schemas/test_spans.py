"""What was looked over as it was written, and what has to be read back."""

from __future__ import annotations

from headrace.log.schemas.entries import KEY_PREFIX
from headrace.log.schemas.spans import SPANS_MAX, Span, Spans
from headrace.wire.frame import FrameHeader, FrameKind

SIZE = 10


def frame(position: int, data: bytes = b"." * SIZE) -> tuple[FrameHeader, bytes]:
    """A frame's header, and bytes in place of its own."""
    return FrameHeader(FrameKind.ENTRIES, position, 1, position * 7, 1, bytes(16), 1, 1, 0, 0, 0), data


def test_frames_in_a_row_are_one_stretch() -> None:
    spans = Spans()
    spans.note([frame(100), frame(110)])
    spans.note([frame(120)])
    assert spans.covering(100) == Span(100, 130, 120, 840)
    assert spans.covering(110) == Span(100, 130, 120, 840)
    assert spans.covering(130) is None


def test_a_frame_that_may_hold_a_schema_belongs_to_none() -> None:
    spans = Spans()
    spans.note([frame(100), frame(110, b"1" + KEY_PREFIX + b"1"), frame(120)])
    assert spans.covering(99) is None
    assert spans.covering(100) == Span(100, 110, 100, 700)
    assert spans.covering(110) is None
    assert spans.covering(125) == Span(120, 130, 120, 840)
    assert spans.covering(105) is None, "what lies behind is forgotten"


def test_what_another_server_wrote_in_between_is_not_covered() -> None:
    spans = Spans()
    spans.note([frame(100)])
    spans.note([frame(150)])
    assert spans.covering(100) == Span(100, 110, 100, 700)
    assert spans.covering(110) is None
    assert spans.covering(150) is not None


def test_stretches_are_bounded_and_the_newest_stay() -> None:
    spans = Spans()
    for number in range(SPANS_MAX + 5):
        spans.note([frame(number * 2 * SIZE)])
    assert spans.covering(0) is None
    assert spans.covering(5 * 2 * SIZE) is not None
