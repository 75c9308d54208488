"""Acks of a subscription: when they are due, and the one task that sends them beside the stream."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import HeadraceError, InvalidRequest, Usage
from headrace.runtime.backoff import Backoff
from headrace.runtime.logs import get_logger

logger = get_logger("client")

FLUSH_S_MAX: Final = 10.0
"""How long the end of a subscription waits for its last ack."""
HURRIED_S: Final = 0.5
"""Longest pause between two tries of it."""
QUIET_S: Final = 3.0
"""Shortest pause before an ack for which there is no other reason than a heartbeat."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AckEvery:
    """An ack is due once ``entries`` are finished and not acked, or one has been for ``seconds``: whichever is first.

    Also where the server says that nothing else is there (a heartbeat): ``seconds`` after the last ack, at least 3.
    """

    entries: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        """Raise ValueError where neither is named, or one is not above zero."""
        named = [bound for bound in (self.entries, self.seconds) if bound is not None]
        if not named or min(named) <= 0:
            raise ValueError(f"{self} is never due")


AckPolicy = Literal["batch", "manual"] | AckEvery
"""``batch``: as soon as a batch is finished. ``manual``: only what the consumer acks itself."""


@dataclass(slots=True, eq=False)
class Acker:
    """Sends the newest LSN that is finished, never one above it. One ack is under way at a time; what is finished meanwhile
    goes into the next.

    An ack that fails, for whatever reason, is tried again until it is taken, or the subscription is closed: nothing depends
    on it but what comes again after a restart, so it never ends the stream. Only a closed client ends the tries.
    ``error``: why the last one failed, None if it did not. ``acked``: the last LSN that was taken. ``quiet_s``: shortest
    pause before an ack of a heartbeat's LSN alone.
    """

    send: Callable[[Lsn], Awaitable[Lsn]]
    policy: AckPolicy
    backoff: Backoff = field(default_factory=Backoff)
    quiet_s: float = QUIET_S
    acked: Lsn | None = None
    error: HeadraceError | None = None
    _finished: Lsn | None = None
    _walked: Lsn | None = None
    _entries: int = 0
    _waiting_since: float = 0.0
    _settled_at: float = 0.0
    _hurried: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to send what is finished; call :meth:`close` in the end."""
        self._settled_at = asyncio.get_running_loop().time()
        self._task = asyncio.create_task(self._run(), name="headrace acks")

    @property
    def counts_entries(self) -> bool:
        """Whether an ack can be due in the middle of a batch."""
        return isinstance(self.policy, AckEvery)

    def finish(self, lsn: Lsn, entries: int) -> None:
        """Say that the consumer is done with everything up to ``lsn``, which is ``entries`` more than before."""
        if self.policy == "manual":
            return
        if self._waiting() is None:
            self._waiting_since = asyncio.get_running_loop().time()
        self._entries += entries
        self._finished, self._walked = lsn, None
        self._changed.set()

    def walk(self, lsn: Lsn) -> None:
        """Say that the consumer is done with all it was given, and that nothing else for it stands up to ``lsn``."""
        if self.policy == "manual" or (self._finished is not None and lsn < self._finished):
            return
        self._walked = lsn
        self._changed.set()

    async def ack(self, lsn: Lsn) -> Lsn:
        """Ack ``lsn`` now; returns the least place of all subscribers, or raises why it was not taken."""
        watermark = await self.send(lsn)
        self._taken(lsn)
        return watermark

    async def close(self, within_s: float) -> None:
        """Send what is finished and not acked, and stop. Never raises for an ack that is not taken."""
        task, self._task = self._task, None
        if task is None:
            return
        self._hurried = True
        self._changed.set()
        try:
            if self._waiting() is not None or self._above(self._walked) is not None:
                await asyncio.wait({task}, timeout=within_s)
        finally:
            task.cancel()
            await asyncio.wait({task})
        lost = self._waiting()
        if lost is not None:
            logger.warning("the last ack was not taken", lsn=str(lost), detail=str(self.error))

    def _above(self, lsn: Lsn | None) -> Lsn | None:
        """Return ``lsn`` if it is not acked; None otherwise."""
        return None if lsn is None or lsn <= (self.acked or ZERO) else lsn

    def _waiting(self) -> Lsn | None:
        """Return what is finished and not acked; None if nothing is."""
        return self._above(self._finished)

    def _taken(self, lsn: Lsn) -> None:
        self.acked = max(lsn, self.acked) if self.acked is not None else lsn
        self.error = None
        self.backoff.reset()

    async def _run(self) -> None:
        while (lsn := await self._next_due()) is not None:
            entries, is_walked = self._entries, lsn == self._walked
            try:
                await self.send(lsn)
            except Exception as error:  # noqa: BLE001  # whatever it is: if this task ended, nobody would see that acks did
                if isinstance(error, InvalidRequest) and is_walked:
                    # Older servers take acks of entries alone, and a stream begun anew has not said a heartbeat again.
                    self._walked = None
                    self._settled_at = asyncio.get_running_loop().time()
                    continue
                self._failed(lsn, error)
                if isinstance(error, Usage):
                    return
                delay_s = self.backoff.next_delay()
                await asyncio.sleep(min(delay_s, HURRIED_S) if self._hurried else delay_s)
                continue
            self._entries -= entries
            self._settled_at = self._waiting_since = asyncio.get_running_loop().time()
            self._taken(lsn)

    def _failed(self, lsn: Lsn, error: Exception) -> None:
        """Keep why an ack was not taken, and tell the first of several in a row.

        Also a refusal is tried again: a stream that was just begun anew has not sent again what is acked here.
        """
        expected = isinstance(error, HeadraceError)
        found = (
            error if isinstance(error, HeadraceError) else HeadraceError(f"{type(error).__name__}: {error}")
        )
        if self.error is None:
            logger.warning("an ack was not taken", lsn=str(lsn), detail=found.detail, exc_info=not expected)
        self.error = found

    async def _next_due(self) -> Lsn | None:
        """Return what is to be acked, once it is due; None when the subscription is closed and nothing is left."""
        while True:
            lsn, due_at = self._due()
            if self._hurried or due_at <= asyncio.get_running_loop().time():
                return lsn
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if math.isinf(due_at) else due_at):
                    await self._changed.wait()

    def _due(self) -> tuple[Lsn | None, float]:
        """Return what is to be acked next, and when, by the loop's clock; infinity where more must be finished first."""
        finished, walked = self._waiting(), self._above(self._walked)
        if self._hurried:
            return (finished if walked is None else walked), 0.0
        finished_at = walked_at = math.inf
        policy = self.policy if isinstance(self.policy, AckEvery) else None
        if finished is not None:
            if policy is None or (policy.entries is not None and self._entries >= policy.entries):
                finished_at = 0.0
            elif policy.seconds is not None:
                finished_at = self._waiting_since + policy.seconds
        if walked is not None:
            seconds = policy.seconds if policy is not None else None
            walked_at = self._settled_at + max(self.quiet_s, seconds or 0.0)
        return (finished, finished_at) if finished_at <= walked_at else (walked, walked_at)
