"""A process that writes to an archive as it is told, line by line: it answers each with ``ok`` or an error's code.

``take S`` owns it with a lease of so many seconds, ``check`` asks whether it still does, ``put FILE SIZE`` writes a file,
``many SIZE`` writes one file after the other, each as large as its number makes it, and names each that is there.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Final

from headrace.archive.files.folder import Folder
from headrace.archive.files.writing import put_new
from headrace.archive.rights.owner import Owner, take
from headrace.errors import HeadraceError
from headrace.runtime.logs import configure_logs

ERRORS_SHOWN_BYTES: Final = 4_000
"""Of what a writer that died said on standard error, so much of the end is shown."""


def content(file: str, size: int) -> bytes:
    """What a file of that name and size holds."""
    return random.Random(f"{file} {size}").randbytes(size)


def size_of(file: str, size_max: int) -> int:
    """How large one of ``many`` is."""
    return random.Random(file).randrange(1, size_max)


class Writer:
    """Such a process."""

    def __init__(self, url: str, env: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "tests.integration.backup.archive_writer", url]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as the process, and is closed with it
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=env,
        )

    def tell(self, line: str) -> None:
        """Give it a command."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        """Its next answer. RuntimeError, with the end of what it said on standard error, if it has ended without one."""
        assert self.process.stdout is not None
        if line := self.process.stdout.readline():
            return line.strip()
        code = self.process.wait()
        size = os.fstat(self._errors.fileno()).st_size
        self._errors.seek(max(0, size - ERRORS_SHOWN_BYTES))
        said = self._errors.read().decode(errors="replace")
        raise RuntimeError(f"the writer ended with {code} and without an answer; it said:\n{said}")

    def ask(self, line: str) -> str:
        """Give it a command and wait for the answer."""
        self.tell(line)
        return self.answer()

    def halt(self) -> None:
        """Stop it where it is, and return once it stands; :meth:`go_on` or :meth:`kill` ends that."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def go_on(self) -> None:
        """Let it run again."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> list[str]:
        """Kill it with SIGKILL, and return what it had answered until then."""
        self.process.kill()
        said, _ = self.process.communicate()
        self._errors.close()
        return said.splitlines()


@contextmanager
def writing(url: str, env: Mapping[str, str] | None = None) -> Iterator[Writer]:
    """Run a writer for the length of a ``with``."""
    writer = Writer(url, env)
    try:
        yield writer
    finally:
        writer.kill()


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main() -> None:
    """Do what standard input says."""
    configure_logs()
    folder = Folder(sys.argv[1])
    owners: list[Owner] = []
    for line in sys.stdin:
        command, *words = line.split()
        try:
            match command:
                case "take":
                    owners.append(take(folder, lease_s=float(words[0])))
                case "check":
                    owners[-1].check()
                case "put":
                    put_new(folder, words[0], [content(words[0], int(words[1]))])
                case "many":
                    for number in count(1):
                        file = f"file-{number}"
                        put_new(folder, file, [content(file, size_of(file, int(words[0])))])
                        _say(file)
            _say("ok")
        except HeadraceError as error:
            _say(error.code)


if __name__ == "__main__":
    main()
