"""Whether a process moves: what waits, where it stands, since when. Pure but for the clock that it is given.

Who works says what it does; who judges (a health thread, a reporter) asks. Slow is not stuck: only a work that has something
to do and whose position stays for the whole of ``stalled_after_s`` is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Final, NamedTuple

from headrace.errors import HeadraceError
from headrace.runtime.clock import Clock, SystemClock

STALLED_AFTER_S: Final = 60.0
"""How long a work that has something to do may stand still before that is an alarm."""


class State(StrEnum):
    """``IDLE``: nothing waits. ``MOVING``: something waits, and its position moves. ``STUCK``: it does not."""

    IDLE = "idle"
    MOVING = "moving"
    STUCK = "stuck"


class Trouble(NamedTuple):
    """What keeps a work from going on, as far as it knows: an error's code, and the words for people."""

    code: str
    detail: str


class _Call(NamedTuple):
    """What a work waits for, and from when on that is overdue (on the clock that runs evenly, and in UTC milliseconds)."""

    what: str
    due_at: float
    due_at_ms: int


class Standing(NamedTuple):
    """How one work stands at a moment.

    ``since_ms``: when its position last moved, or when it became idle or had something to do again (UTC milliseconds).
    ``waiting``: how much waits, 1 if only that something does is known. ``position`` is text, empty before the first.
    ``reachable``: whether its source answers, None if it was not asked. ``detail``: why it does not go on, empty if it does.
    """

    name: str
    feed: str
    state: State
    since_ms: int
    waiting: int
    oldest_waiting_ms: int | None
    position: str
    reachable: bool | None
    code: str
    detail: str


class Work:
    """One thing that a process does without end. Made by :meth:`Progress.work`; every method may be called by any thread."""

    def __init__(self, name: str, feed: str, clock: Clock, stalled_after_s: float) -> None:
        """Begin idle, with no position."""
        self.name, self.feed = name, feed
        self._clock, self._stalled_after_s = clock, stalled_after_s
        self._guard = threading.Lock()
        self._waiting = 0
        self._oldest_waiting_ms: int | None = None
        self._position: object = None
        self._reachable: bool | None = None
        self._trouble: Trouble | None = None
        self._what = ""
        self._step: object = None
        self._doing: list[_Call] = []
        self._moved_at = clock.monotonic()
        self._moved_at_ms = clock.wall_ms()

    def set_waiting(self, waiting: int, *, oldest_ms: int | None = None, what: str = "") -> None:
        """Say how much waits (0: nothing, so it is idle), since when the oldest does (UTC milliseconds), and for what."""
        with self._guard, self._watched():
            self._waiting = waiting
            self._what = what
            self._oldest_waiting_ms = oldest_ms if waiting else None

    def set_position(self, position: object) -> None:
        """Say where it stands; another value than the last is progress, and ends the trouble that was told."""
        with self._guard:
            if position != self._position:
                self._position = position
                self._trouble = None
                self._note_moved()

    def set_step(self, step: object) -> None:
        """Say how far it is within what moves its position next; another value than the last is progress too."""
        with self._guard:
            if step != self._step:
                self._step = step
                self._note_moved()

    def set_reachable(self, reachable: bool) -> None:
        """Say whether its source answered when it was last asked."""
        with self._guard:
            self._reachable = reachable

    def set_trouble(self, error: HeadraceError | None) -> None:
        """Say what keeps it from going on; None: nothing any more."""
        with self._guard:
            self._trouble = None if error is None else Trouble(error.code, error.detail)

    @contextmanager
    def during(self, what: str, *, within_s: float = 0.0) -> Iterator[None]:
        """Within the body something waits for ``what`` ("the server's answer"): a call that never returns is seen so.

        ``within_s``: how long the call may take though nothing waits (a long poll); from then on its answer is overdue. If
        the body raises, what it was to do still waits, until :meth:`set_waiting` says otherwise.
        """
        with self._guard, self._watched():
            call = _Call(
                what, self._clock.monotonic() + within_s, self._clock.wall_ms() + round(within_s * 1000)
            )
            self._doing.append(call)
        try:
            yield
        except BaseException:
            with self._guard, self._watched():
                self._waiting = self._waiting or 1
                self._doing.remove(call)
            raise
        with self._guard, self._watched():
            self._doing.remove(call)

    def standing(self) -> Standing:
        """Return how it stands now."""
        with self._guard:
            waiting = self._waiting or int(self._pending())
            still_s = self._clock.monotonic() - self._moved_at
            stuck = bool(waiting) and still_s >= self._stalled_after_s
            state = State.STUCK if stuck else State.MOVING if waiting else State.IDLE
            trouble = self._trouble
            detail = trouble.detail if trouble is not None else ""
            if not detail and stuck:
                now = self._clock.monotonic()
                what = next((call.what for call in reversed(self._doing) if call.due_at <= now), self._what)
                detail = f"it waits for {what}" if what else "it does not say why"
            return Standing(
                self.name,
                self.feed,
                state,
                self._moved_at_ms,
                waiting,
                self._oldest_waiting_ms,
                "" if self._position is None else str(self._position),
                self._reachable,
                trouble.code if trouble is not None else "",
                detail,
            )

    def _pending(self) -> bool:
        """Whether something waits. A call that is overdue does so from the moment on at which it became that."""
        now = self._clock.monotonic()
        late = [call for call in self._doing if call.due_at <= now]
        if late and not self._waiting:
            first = min(late, key=lambda call: call.due_at)
            if first.due_at > self._moved_at:
                self._moved_at, self._moved_at_ms = first.due_at, first.due_at_ms
        return bool(self._waiting or late)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """From idle to work and back the time counts anew."""
        was_pending = self._pending()
        yield
        if was_pending != self._pending():
            self._note_moved()

    def _note_moved(self) -> None:
        self._moved_at = self._clock.monotonic()
        self._moved_at_ms = self._clock.wall_ms()


class Progress:
    """All that one process does without end, by name."""

    def __init__(self, *, clock: Clock | None = None, stalled_after_s: float = STALLED_AFTER_S) -> None:
        """Begin with no work. ``stalled_after_s``: see the module."""
        self.stalled_after_s = stalled_after_s
        self.clock = clock or SystemClock()
        self._guard = threading.Lock()
        self._works: dict[str, Work] = {}
        self._reasons: list[Callable[[], list[str]]] = []
        self._facts: list[Callable[[], Mapping[str, float]]] = []

    def work(self, name: str, *, feed: str = "") -> Work:
        """Return the work of this name, made if it isn't there."""
        with self._guard:
            if name not in self._works:
                self._works[name] = Work(name, feed, self.clock, self.stalled_after_s)
            return self._works[name]

    def also(self, reasons: Callable[[], list[str]]) -> None:
        """Have :meth:`not_ready` ask ``reasons`` too, from any thread."""
        with self._guard:
            self._reasons.append(reasons)

    def tell(self, facts: Callable[[], Mapping[str, float]]) -> None:
        """Have :meth:`facts` ask ``facts`` too, from any thread; it must not wait for anything."""
        with self._guard:
            self._facts.append(facts)

    def facts(self) -> dict[str, float]:
        """Return the numbers that the works tell beside their standing, by the names in :mod:`headrace.runtime.facts`."""
        with self._guard:
            asked = list(self._facts)
        return {name: value for facts in asked for name, value in facts().items()}

    def standings(self) -> list[Standing]:
        """Return how every work stands now, in the order in which they were made."""
        with self._guard:
            works = list(self._works.values())
        return [work.standing() for work in works]

    def state(self) -> State:
        """Return the worst state of all works: stuck, else moving, else idle."""
        states = {standing.state for standing in self.standings()}
        return next((state for state in (State.STUCK, State.MOVING) if state in states), State.IDLE)

    def not_ready(self) -> list[str]:
        """Return why the process is not ready, in words; empty if it is."""
        with self._guard:
            asked = list(self._reasons)
        stuck = [in_words(one) for one in self.standings() if one.state is State.STUCK]
        return [*stuck, *(reason for reasons in asked for reason in reasons())]


def in_words(standing: Standing) -> str:
    """Return a sentence about a work that is stuck."""
    at = f" at {standing.position}" if standing.position else ""
    code = f" ({standing.code})" if standing.code else ""
    return f"{standing.name} does not move{at} though {standing.waiting} wait: {standing.detail}{code}"
