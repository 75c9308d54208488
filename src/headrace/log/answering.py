"""How the thread that writes answers those who wait in event loops: each loop is woken once, however many wait there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from headrace.errors import HeadraceError
from headrace.log.requests import Outcome
from headrace.runtime.logs import get_logger

logger = get_logger("log")

T = TypeVar("T")


class Waiter(Protocol):
    """What waits in an event loop for an outcome: a future, or what costs less than one. Called in that loop, once."""

    def done(self) -> bool:
        """Tell whether nobody waits any more."""

    def set_result(self, result: Any, /) -> None:
        """Take what was durably done."""

    def set_exception(self, exception: Any, /) -> None:
        """Take the refusal."""


W = TypeVar("W", bound=Waiter)

Settled = tuple[Waiter, Outcome | HeadraceError]


def answer_in(loop: asyncio.AbstractEventLoop, settled: Sequence[Settled]) -> None:
    """Give each waiter of ``loop`` its outcome, in that loop; one wake-up for all."""
    try:
        loop.call_soon_threadsafe(_resolve, settled)
    except RuntimeError:
        logger.warning("requests were answered after their event loop had ended", requests=len(settled))


def work_for(loop: asyncio.AbstractEventLoop, future: asyncio.Future[T], work: Callable[[], T]) -> None:
    """Do ``work`` here, and give its result, or what it raised, to the future in ``loop``."""
    done: partial[None]
    try:
        done = partial(_settle, future, work())
    except Exception as error:  # noqa: BLE001  # it is raised where it was asked for
        done = partial(_settle_failed, future, error)
    try:
        loop.call_soon_threadsafe(done)
    except RuntimeError:
        logger.warning("work of the writer ended after its event loop had")


def _settle(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _settle_failed(future: asyncio.Future[T], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _resolve(settled: Sequence[Settled]) -> None:
    for waiter, outcome in settled:
        if waiter.done():
            continue
        if isinstance(outcome, HeadraceError):
            waiter.set_exception(outcome)
        else:
            waiter.set_result(outcome)
