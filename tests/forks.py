"""Run ``headrace`` commands as processes of their own: :func:`start` and :func:`run`, as Popen and run of :mod:`subprocess`.

In tests on Linux the process is forked from one that has imported everything (``tests/fork_server.py``), which saves about a
second of processor each. Elsewhere, and for what a fork can't be given, it is started as any other: benches measure that.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import select
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Final, Literal, overload

from tests.fork_server import LIMITS, NUMBER

HEADRACE: Final = (sys.executable, "-m", "headrace.cli.app")
"""What is run, before the words of a command."""

ROOT: Final = Path(__file__).parent.parent
_OPTIONS: Final = {"stdin", "stdout", "stderr", "env", "cwd", "text", "encoding", "errors", "bufsize"}
"""Options of Popen that a fork can have."""

_READ_EARLY: Final = ("PYTHON", "FSSPEC_")
"""Beginnings of environment variables that are read before a fork, by the interpreter and by an import."""


def start(words: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a process; ``options`` are those of :class:`subprocess.Popen`."""
    return (_Forked if _can_fork(words, options) else subprocess.Popen)(words, **options)


@overload
def run(words: Sequence[str], *, text: Literal[True], **options: Any) -> subprocess.CompletedProcess[str]: ...
@overload
def run(words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]: ...
def run(
    words: Sequence[str],
    *,
    given: Any = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a process to its end, as :func:`subprocess.run` does; ``given`` is what its stdin gets."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if given is not None:
        options["stdin"] = subprocess.PIPE
    with start(words, **options) as process:
        try:
            stdout, stderr = process.communicate(given, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)
    if check:
        done.check_returncode()
    return done


def _can_fork(words: Sequence[str], options: dict[str, Any]) -> bool:
    if sys.platform != "linux" or "PYTEST_VERSION" not in os.environ:
        return False
    env = options.get("env") or os.environ
    read_early = {name for name in {*env, *os.environ} if name.startswith(_READ_EARLY)}
    return (
        tuple(words[: len(HEADRACE)]) == HEADRACE
        and options.keys() <= _OPTIONS
        and all(env.get(name) == os.environ.get(name) for name in read_early)
    )


class _Forks:
    """The fork server of this process."""

    def __init__(self) -> None:
        self._asking = Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())]
            self._process = subprocess.Popen(words, cwd=ROOT, pass_fds=[theirs.fileno()])
        atexit.register(self._end)

    def _end(self) -> None:
        self._control.close()
        self._process.terminate()
        self._process.wait()

    def fork(self, words: list[str], env: dict[str, str], cwd: str, fds: list[int]) -> tuple[int, int]:
        """Start a process; returns its id, and a pipe that its exit code comes out of."""
        status, theirs = os.pipe()
        limits = [resource.getrlimit(kind) for kind in LIMITS]
        request = json.dumps({"words": words, "env": env, "cwd": cwd, "limits": limits}).encode()
        with self._asking:
            socket.send_fds(self._control, [request], [*fds, theirs])
            os.close(theirs)
            answer = self._control.recv(NUMBER.size)
        if not answer:
            raise RuntimeError(f"the fork server has ended with {self._process.wait()}")
        return int(NUMBER.unpack(answer)[0]), status


_forks = cache(_Forks)


class _Forked(subprocess.Popen[Any]):
    """A forked process. Its parent is the fork server, which tells how it ended."""

    _status = -1

    def __init__(self, words: Sequence[str], **options: Any) -> None:
        self._reading = Lock()
        super().__init__(words, **options)

    def _execute_child(self, *given: Any) -> None:
        args, cwd, env = given[0], given[5], given[6]
        stdin, stdout, stderr = given[10], given[13], given[15]
        fds = [own if fd == -1 else fd for own, fd in enumerate((stdin, stdout, stderr))]
        words = [os.fspath(word) for word in args[len(HEADRACE) :]]
        environment = dict(os.environ if env is None else env)
        self.pid, self._status = _forks().fork(words, environment, os.fspath(cwd or Path.cwd()), fds)
        self._child_created = True
        close_pipes: Any = getattr(self, "_close_pipe_fds")  # noqa: B009  # not in its types
        close_pipes(*given[10:16])

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        self._take(0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None and not self._take(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def _take(self, timeout: float | None) -> bool:
        """Read the exit code, if it is there within ``timeout`` seconds."""
        if self.returncode is None and self._status >= 0 and self._ends_within(timeout):
            with self._reading:
                if self.returncode is None:
                    told = os.read(self._status, NUMBER.size)
                    os.close(self._status)
                    assert told, "the fork server has ended"
                    self.returncode = NUMBER.unpack(told)[0]
        return self.returncode is not None

    def _ends_within(self, timeout: float | None) -> bool:
        ended = select.poll()
        ended.register(self._status, select.POLLIN)
        return bool(ended.poll(None if timeout is None else timeout * 1000))
