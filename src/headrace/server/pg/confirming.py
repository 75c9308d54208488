"""What a stream has sent, and so what its client may confirm and be told: positions in, positions out. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace.server.pg.positions import MARKS_MAX, Mark, Marks

TELL_EVERY_S: Final = 1.0
"""How often a client that has all is told how far the journal was walked, while nothing in it is for it."""


class Confirmed(NamedTuple):
    """What a client has confirmed anew: all up to ``position``; ``mark`` is of the last frame that this passes, if any."""

    position: int
    mark: Mark | None


class Confirming:
    """Of one stream. What was noted as sent reaches the client in this order, so it may be confirmed from then on."""

    def __init__(self, start: int, confirmed: int, *, marks_max: int = MARKS_MAX) -> None:
        """``start``: the stream carries what ends behind it. ``confirmed``: what the slot's client had confirmed before."""
        self._sent = start
        self._whole = start
        self._told = start
        self._told_at_s: float | None = None
        self._confirmed = confirmed
        self._marks = Marks(marks_max)

    @property
    def whole(self) -> int:
        """All frames that end up to there were sent, or passed over: what a keepalive may say."""
        return self._whole

    def note(self, sent: int, marks: Sequence[Mark]) -> None:
        """Note that records were sent, the greatest position in them being ``sent`` (0: none), and whose frames they end."""
        if sent > self._sent:
            self._sent = self._told = sent
        if marks:
            self._whole = max(self._whole, marks[-1].end)
            self._sent = max(self._sent, self._whole)
            self._marks.add(marks)

    def hear(self, flushed: int) -> Confirmed | None:
        """Return what a client confirms that says it has all up to ``flushed``; None where that is nothing new.

        It can't have what it was not sent: what it confirms beyond that counts as what was sent. What it has confirmed
        before it was noted whose frame ends there is confirmed anew.
        """
        position = min(flushed, self._sent)
        mark = self._marks.confirm(position)
        if position <= self._confirmed and mark is None:
            return None
        self._confirmed = max(self._confirmed, position)
        return Confirmed(self._confirmed, mark)

    def tell(self, now_s: float) -> int:
        """Return the position of a keepalive that is sent now. ``now_s``: of a clock that never goes back."""
        self._told, self._told_at_s = max(self._told, self._whole), now_s
        return self._whole

    def tell_in_s(self, now_s: float) -> float | None:
        """Return in how many seconds a client should be told how far the journal was walked; None: it knows."""
        if self._told >= self._whole:
            return None
        return 0.0 if self._told_at_s is None else max(0.0, self._told_at_s + TELL_EVERY_S - now_s)
