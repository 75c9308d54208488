"""What ``headrace listen`` does with what comes: lines on stdout, or a command; and how it ends when it is told to."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any, ClassVar, Final, Protocol

from headrace.cli.listen_exec import Command
from headrace.cli.listen_lines import LINE_BEGINS, snapshot_lines
from headrace.errors import CommandFailed, EntryRefused, Stopped
from headrace.listener import Batch, Listener, Refused
from headrace.listener.lines import LineOutput
from headrace.listener.parts import Delivery
from headrace.runtime.shutdown import stop_event

GRACE_S: Final = 10.0
"""How long a stop waits for a command or a reader that has not taken its entries yet."""


class Sink(Protocol):
    """Where what comes goes."""

    holds_parked: ClassVar[bool]
    """Does it hold back later entries of parked keys? Else a listener with parked entries does not begin."""

    async def begin(self) -> None:
        """Make ready; called once, before anything comes."""

    async def take(self, delivery: Delivery, stop: asyncio.Event) -> None:
        """Take all of ``delivery`` and move the bookmark; may leave off between changes once ``stop`` is set."""

    async def close(self) -> None:
        """Let go of everything."""


class Stdout:
    """Lines on stdout."""

    holds_parked: ClassVar = False

    def __init__(self) -> None:
        self._output = LineOutput(sys.stdout.fileno())

    async def begin(self) -> None:
        """Cut what a killed writer left half-written."""
        if cut := self._output.mend(*LINE_BEGINS):
            print(f"cut {cut} bytes of a torn line; its entry comes again", file=sys.stderr)

    async def take(self, delivery: Delivery, stop: asyncio.Event) -> None:
        """Write before the bookmark moves: what is in the pipe is the reader's, what is in a file is on disk."""
        if isinstance(delivery, Batch):
            await self._output.write(b"".join(change.line() for change in delivery.changes))
            await delivery.done()
        else:
            await self._output.write(snapshot_lines(delivery))

    async def close(self) -> None:
        """Stdout is not ours to close."""


class Commands:
    """A command, with what was chosen for entries that it refuses."""

    holds_parked: ClassVar = True

    def __init__(self, listener: Listener, command: Command, name: str) -> None:
        self._command = command
        self._name = name
        self._handover = listener.handover(command.take, on_refused=_tell_refused)

    async def begin(self) -> None:
        """Hand over what was parked and is due now."""
        try:
            await self._handover.begin()
        except EntryRefused as error:
            raise self._failed(error) from None

    async def take(self, delivery: Delivery, stop: asyncio.Event) -> None:
        """Give the command each change, or the part of a snapshot. CommandFailed, and what the store raises."""
        try:
            if not isinstance(delivery, Batch):
                await self._command.take_part(delivery)
                self._handover.note(delivery)
                return
            await self._handover.hand_all(delivery.changes, stop.is_set, behind=delivery.place)
        except EntryRefused as error:
            raise self._failed(error) from None

    async def close(self) -> None:
        """End the command."""
        await self._command.close()

    def _failed(self, error: EntryRefused) -> CommandFailed:
        failed = CommandFailed(f"{self._name}: {error.detail}", hint=error.advice)
        failed.members = error.members
        return failed


def _tell_refused(refused: Refused) -> None:
    number = refused.change.sequence_id
    print(
        f"entry {number} was refused, try {refused.attempts}: {refused.reason}", file=sys.stderr, flush=True
    )


async def follow(listener: Listener, sink: Sink, *, snapshots: bool) -> None:
    """Follow until the listener ends or a signal comes; what is being handed over is finished first."""
    stop = stop_event()
    stopped = asyncio.create_task(stop.wait())
    try:
        async with listener:
            await _with_grace(sink.begin(), stopped)
            come = listener.deliveries(snapshots=snapshots, holds_parked=sink.holds_parked)
            async with aclosing(come) as deliveries:
                while not stop.is_set():
                    coming = asyncio.ensure_future(anext(deliveries, None))
                    await asyncio.wait({coming, stopped}, return_when=asyncio.FIRST_COMPLETED)
                    if not coming.done():
                        coming.cancel()
                        await asyncio.wait({coming})
                        return
                    delivery = coming.result()
                    if delivery is None:
                        return
                    await _with_grace(sink.take(delivery, stop), stopped)
    finally:
        stopped.cancel()
        await sink.close()


async def _with_grace(work: Coroutine[Any, Any, None], stopped: asyncio.Task[Any]) -> None:
    """Await ``work``; once told to stop, only for so long: a command or a reader that hangs must not hold the process."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait({task}, timeout=GRACE_S)
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if task.cancelled():
        raise Stopped(
            f"told to stop, but the entries at hand were not taken within {GRACE_S:g} s",
            hint="The bookmark stands before them: they come again at the next start.",
        )
    task.result()
