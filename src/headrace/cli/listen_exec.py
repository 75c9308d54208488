"""``headrace listen --exec``: a command that takes entries, one process for each of them or one that is kept running."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from asyncio.subprocess import PIPE, Process
from typing import Final, Protocol

from headrace.cli.listen_lines import snapshot_lines
from headrace.errors import EntryRefused, Usage
from headrace.listener import Change, SnapshotBegin, SnapshotEnd
from headrace.listener.parts import SnapshotPart

ANSWER_BYTES_MAX: Final = 64 << 10
"""Longest answer of a command that is kept running."""
END_S_MAX: Final = 10.0
"""How long such a command may take to end once its stdin is closed."""


class Command(Protocol):
    """A command that takes changes and snapshots. What it refuses raises EntryRefused."""

    async def take(self, change: Change) -> None:
        """Return once it has taken ``change``."""

    async def take_part(self, part: SnapshotPart) -> None:
        """Give it a part of a snapshot; the end returns once it has taken all of it."""

    async def close(self) -> None:
        """End what runs; kills it if it must."""


def parse_command(text: str) -> list[str]:
    """Return the words of ``--exec``, split as a shell does; Usage if there are none or a quote stays open."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise Usage(f"--exec: {text!r}: {error}") from None
    if not words:
        raise Usage("--exec: no command is named")
    return words


class EachCommand:
    """One process for each entry: the entry's line on its stdin, and exit code 0 means taken. One for each snapshot, too."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._running: Process | None = None

    async def take(self, change: Change) -> None:
        """Run the command for ``change``. EntryRefused: it ended with another exit code than 0."""
        process = await self._start(HEADRACE_SEQUENCE_ID=str(change.sequence_id))
        await process.communicate(change.line())
        self._check(process)

    async def take_part(self, part: SnapshotPart) -> None:
        """Run the command for a snapshot: all its lines on its stdin. EntryRefused."""
        if isinstance(part, SnapshotBegin):
            await self.close()
            await self._start(HEADRACE_SNAPSHOT_ID=part.snapshot_id)
        process = self._running
        if process is None:
            raise EntryRefused("the command ended before the snapshot did")
        try:
            await _write(process, snapshot_lines(part))
        except ConnectionError:
            await process.wait()
            self._check(process)
            raise EntryRefused("the command did not read the whole snapshot") from None
        if isinstance(part, SnapshotEnd):
            await process.communicate(b"")
            self._check(process)

    async def close(self) -> None:
        """Kill what runs."""
        await _kill(self._running)
        self._running = None

    async def _start(self, **environment: str) -> Process:
        self._running = await _spawn(self._words, environment)
        return self._running

    def _check(self, process: Process) -> None:
        self._running = None
        if process.returncode != 0:
            raise EntryRefused(f"exit code {process.returncode}")


class KeptCommand:
    """One process that is kept running: a line on its stdin for each entry, a line on its stdout for each answer.

    ``ok`` means taken, ``refused REASON`` (or anything else) refused. If it ends, the entry at hand is refused, and the next
    try starts it anew. Of a snapshot only the end is answered.
    """

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._running: Process | None = None

    async def take(self, change: Change) -> None:
        """Give it ``change`` and wait for its answer. EntryRefused."""
        await self._ask(change.line(), answered=True)

    async def take_part(self, part: SnapshotPart) -> None:
        """Give it a part of a snapshot; waits for its answer to the end. EntryRefused."""
        if not isinstance(part, SnapshotBegin) and self._running is None:
            raise EntryRefused("the command ended before the snapshot did")
        await self._ask(snapshot_lines(part), answered=isinstance(part, SnapshotEnd))

    async def close(self) -> None:
        """Close its stdin, give it ten seconds, then kill it."""
        process, self._running = self._running, None
        if process is None:
            return
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(END_S_MAX):
                await process.communicate(b"")
        await _kill(process)

    async def _ask(self, lines: bytes, *, answered: bool) -> None:
        if self._running is None:
            self._running = await _spawn(self._words, {"HEADRACE_ACK": "line"}, stdout=PIPE)
        process = self._running
        try:
            await _write(process, lines)
            answer = await self._answer(process) if answered else b"ok"
        except ConnectionError:
            answer = b""
        except BaseException:
            # Told to stop in the middle: an answer that comes later must not be taken for that of the next entry.
            self._running = None
            await _kill(process)
            raise
        if not answer:
            self._running = None
            await _kill(process)
            raise EntryRefused(f"exit code {process.returncode}")
        text = answer.decode(errors="replace").strip()
        if text != "ok":
            raise EntryRefused(text.removeprefix("refused").strip() or "refused")

    async def _answer(self, process: Process) -> bytes:
        if process.stdout is None:
            raise RuntimeError("the command has no stdout")
        try:
            return await process.stdout.readuntil()
        except asyncio.IncompleteReadError:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S_MAX):
                    await process.wait()
            return b""
        except asyncio.LimitOverrunError:
            return b""


async def _spawn(words: list[str], environment: dict[str, str], *, stdout: int | None = None) -> Process:
    try:
        return await asyncio.create_subprocess_exec(
            *words,
            stdin=PIPE,
            stdout=stdout,
            limit=ANSWER_BYTES_MAX,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    except OSError as error:
        raise Usage(f"--exec: {words[0]!r} can't be run: {error.strerror}") from None


async def _write(process: Process, lines: bytes) -> None:
    if process.stdin is None:
        raise RuntimeError("the command has no stdin")
    process.stdin.write(lines)
    await process.stdin.drain()


async def _kill(process: Process | None) -> None:
    """Kill it with its children (its session is its own), and wait for its end."""
    if process is None:
        return
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):  # it may just have ended
            os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
