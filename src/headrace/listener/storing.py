"""Calls of a bookmark store that wait out what passes: a database that is away for a moment ends no listener."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import ParamSpec, TypeVar

from headrace.errors import Recovery, SourceUnavailable
from headrace.listener.works import ListenerWork
from headrace.runtime.backoff import Backoff
from headrace.runtime.logs import get_logger
from headrace.runtime.threads import in_thread

P = ParamSpec("P")
T = TypeVar("T")

logger = get_logger("listener")


def lasting(error: SourceUnavailable) -> SourceUnavailable:
    """Return ``error`` as one that waiting does not mend: a disk that is full, rights that are missing."""
    error.recovery = Recovery.END
    return error


class StoreCalls:
    """``failures_max``: a call is given up after so many failures; None never gives up. ``work``: it is told of them."""

    def __init__(self, failures_max: int | None = None, work: ListenerWork | None = None) -> None:
        self._failures_max = failures_max
        self._work = work

    async def __call__(self, call: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Return what ``call`` of a store does, in a thread; again with backoff where it may pass.

        Every call of a store may be made twice: it then comes to the same. One that is under way is waited for, whoever
        cancels: the store's next call, or its end, must not meet it. Raises what the store does, SourceUnavailable
        where it says that waiting is no use (``recovery``).
        """
        backoff = Backoff()
        while True:
            try:
                with nullcontext() if self._work is None else self._work.store():
                    return await in_thread(partial(call, *given, **named))
            except SourceUnavailable as error:
                if self._work is not None:
                    self._work.failed(error)
                gave_up = self._failures_max is not None and backoff.failures >= self._failures_max
                if gave_up or not error.may_pass:
                    raise
                delay = backoff.next_delay()
                logger.warning(
                    "the bookmark store is away",
                    code=error.code,
                    detail=error.detail,
                    seconds=round(delay, 2),
                )
                await asyncio.sleep(delay)
