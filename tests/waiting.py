"""The only place in the tests that sleeps: wait until a condition holds, with a bound."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, overload

T = TypeVar("T")

POLL_S_MIN = 0.002
POLL_S_MAX = 0.1


def wait_until(predicate: Callable[[], T], within: float = 60.0, *, what: str = "") -> T:
    """Call ``predicate`` until it answers something true, and return that answer.

    Fails after ``within`` seconds, saying ``what`` was waited for (default: the predicate's name).
    """
    deadline = time.monotonic() + within
    pause = POLL_S_MIN
    while not (answer := predicate()):
        if time.monotonic() >= deadline:
            raise AssertionError(_too_late(predicate, within, what, answer))
        time.sleep(pause)
        pause = min(pause * 1.5, POLL_S_MAX)
    return answer


@overload
async def async_wait_until(
    predicate: Callable[[], Coroutine[Any, Any, T]], within: float = 60.0, *, what: str = ""
) -> T: ...
@overload
async def async_wait_until(predicate: Callable[[], T], within: float = 60.0, *, what: str = "") -> T: ...
async def async_wait_until(predicate: Callable[[], Any], within: float = 60.0, *, what: str = "") -> Any:
    """Do what :func:`wait_until` does without blocking the loop; ``predicate`` may be a coroutine function."""
    deadline = time.monotonic() + within
    pause = POLL_S_MIN
    while True:
        asked = predicate()
        answer = await asked if inspect.isawaitable(asked) else asked
        if answer:
            return answer
        if time.monotonic() >= deadline:
            raise AssertionError(_too_late(predicate, within, what, answer))
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, POLL_S_MAX)


def _too_late(predicate: object, within: float, what: str, answer: object) -> str:
    awaited = what or getattr(predicate, "__qualname__", repr(predicate))
    return f"waited {within:g} s in vain for {awaited}; the last answer was {answer!r}"
