"""Stretches of the journal that were looked over as they were written: nobody needs to read them back for schemas.

The writer's thread adds to them after each group, so that costs one search for a few bytes a frame, whatever the number of
its entries.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final, NamedTuple

from headrace.log.schemas.entries import KEY_PREFIX
from headrace.wire.frame import FrameHeader

SPANS_MAX: Final = 256
"""Stretches kept; beyond them the oldest are forgotten, and what they cover is read back."""


class Span(NamedTuple):
    """Frames in a row, from ``start`` to ``end``, that hold no schema. The last begins at ``frame``, with ``global_ts``."""

    start: int
    end: int
    frame: int
    global_ts: int


class Spans:
    """Used from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._spans: list[Span] = []

    def note(self, frames: Iterable[tuple[FrameHeader, bytes]]) -> None:
        """Take in the frames of a group, in journal order, that is durable now."""
        with self._guard:
            for header, data in frames:
                if KEY_PREFIX in data:
                    continue
                start, end = header.position, header.position + len(data)
                if self._spans and self._spans[-1].end == start:
                    start = self._spans.pop().start
                self._spans.append(Span(start, end, header.position, header.global_ts))
            del self._spans[:-SPANS_MAX]

    def covering(self, position: int) -> Span | None:
        """Return the stretch that ``position`` lies in, None if there is none; those that end before it are forgotten."""
        with self._guard:
            while self._spans and self._spans[0].end <= position:
                del self._spans[0]
            first = self._spans[0] if self._spans else None
        return first if first is not None and first.start <= position else None
