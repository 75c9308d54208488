"""One CopyBoth: what a slot's walk yields is sent, what its client confirms is kept, and silence has an end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from typing import Any, Final

from headrace.log.log import Log
from headrace.runtime.logs import get_logger
from headrace.runtime.threads import in_thread
from headrace.server.pg.confirming import Confirming
from headrace.server.pg.messages import Status, clock_us, copy_both, keepalive, parse_status
from headrace.server.pg.slots import Held, Slots
from headrace.server.pg.sqlstate import PgError, SqlState
from headrace.server.pg.terms import PgTerms
from headrace.server.pg.walking import Chunk, Walk
from headrace.server.pg.wire import ConnectionEnded, Wire
from headrace.server.recording import Recorder, Step, subscriber
from headrace.server.waits import Waits

logger = get_logger("server.pg")

LOOK_EVERY_S: Final = 1.0
"""How long a wait for more takes at most, before it is looked whether the server stops."""


class StreamEnd(StrEnum):
    """Why a stream ended in order."""

    CLIENT_DONE = "client done"
    TERMINATED = "terminated"


class Streaming:
    """A slot's stream to one client; :meth:`run` once."""

    def __init__(
        self,
        wire: Wire,
        log: Log,
        slots: Slots,
        held: Held,
        walk: Walk,
        *,
        start: int,
        terms: PgTerms,
        waits: Waits,
        progress: Recorder,
        wanted: str,
        cancelled: asyncio.Event,
    ) -> None:
        """``cancelled`` ends the stream when it is set. ``start``: the stream carries what ends behind it.

        ``wanted``: its filter, as it is recorded.
        """
        self._wire = wire
        self._log = log
        self._slots = slots
        self._held = held
        self._chunks: Iterator[Chunk] = walk.chunks()
        self._terms = terms
        self._waits = waits
        self._progress = progress
        self._wanted = wanted
        self._confirming = Confirming(start, held.position)
        self._heard_s = time.monotonic()
        self._pinged = False
        self._cancelled = cancelled

    async def run(self) -> StreamEnd:
        """Stream until the client ends it. PgError for whatever else ends it in words; ConnectionEnded.

        What :meth:`Walk.chunks` raises is raised.
        """
        who = subscriber(self._held.who)
        self._progress.asked(who, Step.DELIVERED, int(self._held.place), wanted=self._wanted)
        self._wire.write(copy_both())
        reading = asyncio.create_task(self._read())
        others: list[asyncio.Task[None]] = [
            asyncio.create_task(work()) for work in (self._watch, self._send, self._wait_cancelled)
        ]
        tasks: set[asyncio.Task[Any]] = {reading, *others}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in others:
                if task.done():
                    task.result()
            return reading.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in tasks:  # of two that failed at once one is told
                _ = task.cancelled() or task.exception()

    async def _wait_cancelled(self) -> None:
        await self._cancelled.wait()
        raise self._held.gone or PgError(SqlState.QUERY_CANCELED, "canceling statement due to user request")

    # -- what the client says -----------------------------------------------------------------------------------------

    async def _read(self) -> StreamEnd:
        while True:
            kind, body = await self._wire.read_message()
            self._heard_s, self._pinged = time.monotonic(), False
            if kind == b"d":
                status = parse_status(body)
                if status is not None:
                    self._hear(status)
                    if status.reply:
                        self._keep_alive(reply=False)
                        await self._wire.drain()  # who asks and does not read is not listened to either
            elif kind == b"c":
                return StreamEnd.CLIENT_DONE
            elif kind == b"f":
                raise PgError(SqlState.QUERY_CANCELED, "COPY from the client failed", fatal=True)
            elif kind == b"X":
                return StreamEnd.TERMINATED
            elif kind not in {b"H", b"S"}:  # as PostgreSQL: Flush and Sync mean nothing here
                raise PgError(
                    SqlState.PROTOCOL_VIOLATION,
                    f"unexpected message type 0x{kind[0]:02X} during the stream",
                    fatal=True,
                )

    def _hear(self, status: Status) -> None:
        confirmed = self._confirming.hear(status.flushed)
        if confirmed is None:
            return
        mark = confirmed.mark
        self._slots.confirm(
            self._held, confirmed.position, mark.hold if mark is not None else self._held.place
        )
        if mark is not None:
            who = subscriber(self._held.who)
            self._progress.passed(who, Step.ACKED, int(mark.walked), wanted=self._wanted)

    # -- what is sent -------------------------------------------------------------------------------------------------

    async def _send(self) -> None:
        while True:
            if self._waits.stopping:
                raise _stopping()
            chunk = await in_thread(partial(next, self._chunks))
            if chunk.data:
                self._wire.write(chunk.data)
            self._note(chunk)
            # Also far from the end: a client for which nothing is there confirms how far it was walked.
            if self._confirming.tell_in_s(time.monotonic()) == 0:
                self._keep_alive(reply=False)
            await self._wire.drain()
            if chunk.caught_up:
                await self._wait_for_more(chunk.at)

    def _note(self, chunk: Chunk) -> None:
        """What was handed to the socket will come in this order, so it may be confirmed from now on."""
        self._confirming.note(chunk.sent, chunk.marks)
        if chunk.marks:
            who = subscriber(self._held.who)
            self._progress.passed(who, Step.DELIVERED, int(chunk.marks[-1].walked), wanted=self._wanted)

    async def _wait_for_more(self, at: int) -> None:
        """Return once the journal's end is above ``at``; say now and then how far it was walked, also while it goes on."""
        while True:
            due_s = self._confirming.tell_in_s(time.monotonic())
            if due_s == 0:
                self._keep_alive(reply=False)
                due_s = None
            if self._log.store.end() > at:
                return
            if self._waits.stopping:
                raise _stopping()
            wait_s = LOOK_EVERY_S if due_s is None else min(LOOK_EVERY_S, due_s)
            await self._waits.until(partial(self._log.wait_end_past, at), wait_s)

    def _keep_alive(self, *, reply: bool) -> None:
        end = self._confirming.tell(time.monotonic())
        self._wire.write(keepalive(end, clock_us(time.time_ns() // 1000), reply=reply))

    async def _watch(self) -> None:
        """End a stream whose client is silent: asked to answer after half of the time, gone after all of it."""
        timeout_s = self._terms.sender_timeout_s
        while True:
            silent_s = time.monotonic() - self._heard_s
            if silent_s >= timeout_s:
                logger.warning("a stream whose client is silent is ended", slot=self._held.row.name)
                self._wire.abort()
                raise ConnectionEnded
            if silent_s >= timeout_s / 2 and not self._pinged:
                self._pinged = True
                self._keep_alive(reply=True)
            due_s = timeout_s if self._pinged else timeout_s / 2
            await asyncio.sleep(max(0.01, due_s - silent_s))


def _stopping() -> PgError:
    return PgError(
        SqlState.ADMIN_SHUTDOWN,
        "terminating connection due to administrator command: the server is stopping",
        hint="Start again from the last position that was confirmed.",
        fatal=True,
    )
