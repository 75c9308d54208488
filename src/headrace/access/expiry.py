"""The end of a token in a call that goes on: a stream is ended at ``exp``, with a refusal that says so.

Requests and long polls take a minute at most, and are let finish.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.access.grants import Grant
from headrace.errors import Unauthenticated
from headrace.runtime.clock import Clock


def seconds_left(grant: Grant, clock: Clock) -> float | None:
    """Return for how many seconds ``grant`` is good still, 0 at the least; None for one without an end."""
    if grant.expires_at is None:
        return None
    return max(0.0, grant.expires_at - clock.wall_ms() / 1000)


def expired() -> Unauthenticated:
    """Return what a stream is ended with whose token has come to its end."""
    return Unauthenticated("the token has expired", hint="Open the stream again with a new token.")


@asynccontextmanager
async def until_expired(grant: Grant, clock: Clock) -> AsyncIterator[None]:
    """Run the block of ``async with`` until it ends or the grant does: then it is cancelled, and Unauthenticated raised.

    A block that has just ended by itself stands. The time is taken at the beginning: a wall clock that is set later does not
    move the end.
    """
    bound = asyncio.timeout(seconds_left(grant, clock))
    try:
        async with bound:
            yield
    except TimeoutError:
        if not bound.expired():
            raise
        raise expired() from None
