"""What a session does for long, ended where its client asks for that, or has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from headrace.server.pg.sqlstate import PgError, SqlState
from headrace.server.pg.wire import ConnectionEnded


async def unless_interrupted(
    work: Coroutine[Any, Any, None], cancelled: asyncio.Event, ended: asyncio.Event
) -> None:
    """Do ``work``; it is cancelled when ``cancelled`` (PgError, 57014) or ``ended`` (ConnectionEnded) is set first."""
    running = asyncio.create_task(work)
    watching = [asyncio.create_task(event.wait()) for event in (cancelled, ended)]
    tasks: set[asyncio.Task[Any]] = {running, *watching}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        elif ended.is_set():
            raise ConnectionEnded
        else:
            raise PgError(SqlState.QUERY_CANCELED, "canceling statement due to user request")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if not running.cancelled():
            running.exception()
