"""Lines on a file descriptor, on their way to disk or reader before the bookmark moves. ``headrace listen`` uses it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import stat
import threading
from pathlib import Path
from typing import Final

import msgspec

from headrace.errors import Stopped
from headrace.runtime.disk import DiskFile

TAIL_BYTES_MAX: Final = 4 << 20
"""How far back a torn line is looked for; an entry is at most 1 MiB, and its text can be longer than its bytes."""


class LineOutput:
    """Writes whole lines to ``fd`` (stdout, mostly): a regular file, a pipe, a terminal. Does not own ``fd``."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        # A twin of the descriptor, because a DiskFile closes what it was given. Both are one open file.
        self._file = DiskFile(Path("output"), os.dup(fd)) if is_file else None

    def mend(self, *begins: bytes) -> int:
        """Cut the torn line that a killed writer left at the end of a file; returns the bytes cut.

        Without this the first new line would be glued to it, and both be lost to a reader. Only a part of a line that
        starts with one of ``begins`` is taken for ours; anything else is kept, and a newline added. Does nothing on a pipe
        or in an empty file.
        """
        if self._file is None or not (size := self._file.size()):
            return 0
        tail = self._tail(size)
        if tail is not None and tail.endswith(b"\n"):
            return 0
        torn = b"" if tail is None else tail[tail.rfind(b"\n") + 1 :]
        ours = any(torn.startswith(begin[: len(torn)]) for begin in begins)
        if not torn or not ours or _is_whole(torn):
            os.write(self._fd, b"\n")
            return 0
        self._file.truncate(size - len(torn))
        os.lseek(self._fd, 0, os.SEEK_END)
        return len(torn)

    async def write(self, lines: bytes) -> None:
        """Write all of ``lines``; into a file durably, else as far as the pipe takes them. Cancelled: nobody waits on.

        BrokenPipeError if the reader has gone, Stopped for any other failure.
        """
        loop = asyncio.get_running_loop()
        written: asyncio.Future[OSError | None] = loop.create_future()

        def settle(error: OSError | None) -> None:
            if not written.done():
                written.set_result(error)

        def run() -> None:
            error: OSError | None = None
            try:
                self._write_all(lines)
            except OSError as failed:
                error = failed
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
                loop.call_soon_threadsafe(settle, error)

        # A daemon, unlike a pool's thread, does not keep the process from ending while a stalled reader holds it up.
        threading.Thread(target=run, name="lines", daemon=True).start()
        error = await written
        if isinstance(error, BrokenPipeError):
            raise error
        if error is not None:
            raise Stopped(
                f"the output can't be written: {error.strerror or error}",
                hint="Make room for it and start again: the bookmark stands before what is missing.",
            )

    def _write_all(self, lines: bytes) -> None:
        view = memoryview(lines)
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:  # whoever shares this pipe made it non-blocking
                select.select([], [self._fd], [])
        if self._file is not None:
            self._file.sync()

    def _tail(self, size: int) -> bytes | None:
        """Return the end of the file, through a descriptor of its own: stdout is mostly open for writing alone.

        None where the platform gives none (``/dev/fd`` of macOS keeps the mode).
        """
        try:
            with DiskFile(Path("output"), os.open(f"/dev/fd/{self._fd}", os.O_RDONLY)) as file:
                start = max(0, size - TAIL_BYTES_MAX)
                return file.read_at(start, size - start)
        except OSError:
            return None


def _is_whole(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except msgspec.DecodeError:
        return False
    return True
