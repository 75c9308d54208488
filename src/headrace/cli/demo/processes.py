"""The demo's processes: started with the same ``headrace`` as this one, killed with SIGKILL, started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from headrace.errors import DemoFailed

READY_S_MAX: Final = 60.0
"""A server on a busy machine may take this long to say that it is ready."""


class Child:
    """One child process; its stderr goes to ``{name}.log`` in the demo's folder."""

    def __init__(self, name: str, folder: Path, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        self._words = list(words)
        self._environment = {**os.environ, **environment}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process (again); its log is appended to."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self._words,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self._environment,
            )

    async def first_document(self) -> dict[str, str]:
        """Return the JSON document that the process prints when it is ready; DemoFailed if it ends before."""
        process = self._running()
        if process.stdout is None:
            raise DemoFailed(f"{self.name} has no output to read")
        try:
            async with asyncio.timeout(READY_S_MAX):
                line = await process.stdout.readline()
            found = json.loads(line)
        except (TimeoutError, ValueError):
            raise DemoFailed(f"{self.name} did not say that it is ready; see {self._log}") from None
        return dict(found)

    async def kill(self) -> None:
        """SIGKILL: the process gets no chance to put anything in order."""
        self._running().kill()
        await self._running().communicate()

    async def finish(self) -> str:
        """Wait for the process to end by itself and return what it printed; DemoFailed if it failed."""
        out, _ = await self._running().communicate()
        if self._running().returncode != 0:
            raise DemoFailed(
                f"{self.name} ended with exit code {self._running().returncode}; see {self._log}"
            )
        return out.decode()

    async def stop(self) -> None:
        """Ask the process to end (SIGTERM) and wait; does nothing if it was never started or has ended."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            await self._process.communicate()

    async def end(self) -> None:
        """Ask the process to end and wait until it has; DemoFailed unless it ended well."""
        await self.stop()
        await self.finish()

    def check(self) -> None:
        """DemoFailed if the process has ended although nobody asked it to."""
        if self._running().returncode is not None:
            raise DemoFailed(f"{self.name} ended by itself ({self._running().returncode}); see {self._log}")

    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise DemoFailed(f"{self.name} was never started")
        return self._process


def headrace(*words: str) -> list[str]:
    """Return the words that run this very Headrace as a process of its own."""
    return ["-m", "headrace.cli.app", *words]
