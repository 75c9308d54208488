"""How a capture stands, for its health and its reports: the stream of its source, and the copies of rows beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headrace.capture.position import SourcePosition
from headrace.capture.session import CopyStand
from headrace.errors import HeadraceError, SourceLocked
from headrace.runtime.facts import CAPTURE_LAG
from headrace.runtime.progress import Progress

STEP_S: Final = 3.0
"""A step comes to its end so soon, by the source's heartbeats, where there is nothing to do."""
ANSWERS: Final = "the server's answers to appends"


class CaptureWorks:
    """Two works of one feed. What waits in the first are entries that are not durable yet; its position is the GTID."""

    def __init__(self, progress: Progress, feed: str) -> None:
        self._clock = progress.clock
        self._durable_s = 0
        self._is_behind: bool | None = None
        progress.tell(self._facts)
        self._stream = progress.work(f"capture {feed}", feed=feed)
        self._copies = progress.work(f"copies of {feed}", feed=feed)

    def note_durable(self, position: SourcePosition, unanswered: int, next_sequence_id: int) -> None:
        """The feed holds everything up to ``position``."""
        self._stream.set_position(position.gtid)
        self._stream.set_step(next_sequence_id - unanswered)
        self._stream.set_waiting(unanswered, what=ANSWERS)
        self._durable_s = position.time_s

    @contextmanager
    def asking_source(self, within_s: float = 0.0) -> Iterator[None]:
        """Within the body the source is asked for something that may take ``within_s`` though nothing waits."""
        with self._stream.during("the source database's answer", within_s=within_s):
            yield
        self._stream.set_reachable(True)

    @contextmanager
    def asking_server(self, what: str = ANSWERS) -> Iterator[None]:
        """Within the body the server is waited for."""
        with self._stream.during(what):
            yield

    def note_step(self, unanswered: int, copies: CopyStand, *, brought: int) -> None:
        """A step has come to its end; it ``brought`` so many appends."""
        self._is_behind = bool(brought or unanswered)
        self._stream.set_trouble(None)
        self._stream.set_waiting(unanswered, what=ANSWERS)
        self._copies.set_position(copies.done or None)
        self._copies.set_waiting(copies.remaining, what="the next rows")
        self._copies.set_trouble(SourceLocked(copies.hindrance) if copies.hindrance else None)

    def note_trouble(self, trouble: HeadraceError) -> None:
        """The source does not answer."""
        self._is_behind = None
        self._stream.set_reachable(False)
        self._stream.set_trouble(trouble)

    def _facts(self) -> dict[str, float]:
        """A source that has nothing new is not behind, however long ago its last commit was.

        Before the first look at it has come to its end, and while it does not answer, nobody knows what it has: no number.
        """
        if self._is_behind is False:
            return {CAPTURE_LAG.name: 0.0}
        if self._is_behind is None or not self._durable_s:
            return {}
        return {CAPTURE_LAG.name: max(0.0, self._clock.wall_ms() / 1000 - self._durable_s)}
