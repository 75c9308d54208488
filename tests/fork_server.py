"""Where the tests' ``headrace`` processes come from: a process that has imported everything, and forks one for each request.

A command's imports take longer than most commands, and the tests run thousands of them. What is forked here is a process of
its own, which runs :func:`headrace.cli.app.main` on its words and then ends as the interpreter does; but for a soak it does
not take its modules apart, which would take five times as long as most commands. ``tests/forks.py`` asks for it; the tests
of starting itself, and those that bring their own interpreter, do not come here.

``python -m tests.fork_server FD``: ``FD`` is one end of a SOCK_SEQPACKET pair. A request is the JSON document {words, env,
cwd, limits: those of LIMITS} with four descriptors: stdin, stdout, stderr, and a pipe to which the exit code is written (as
:attr:`subprocess.Popen.returncode` has it, four bytes). The answer is the process id, four bytes. Ends with the other end.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import socket
import struct
import sys
import threading
from typing import Any, Final, NoReturn

from tests.scale import SOAK

LIMITS: Final = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})
"""The limits that a process inherits."""

NUMBER: Final = struct.Struct("=i")
REQUEST_BYTES_MAX: Final = 1 << 18
_FDS: Final = 4


def main(control: socket.socket) -> list[str] | None:
    """Serve requests. Returns in each forked process, with its words; and at the end, with None."""
    _import_all()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    assert threading.active_count() == 1, "an import started a thread, which a fork would tear"
    gc.collect()
    gc.freeze()
    waiting: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _tell_ended(waiting)
        if control.fileno() not in ready:
            continue
        request, fds, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, _FDS)
        if not request:
            return None
        pid = os.fork()
        if pid == 0:
            for fd in (wake, woken, control.detach(), fds[3], *waiting.values()):
                os.close(fd)
            return _become(json.loads(request), fds[:3])
        waiting[pid] = fds[3]
        for fd in fds[:3]:
            os.close(fd)
        control.sendall(NUMBER.pack(pid))


def _import_all() -> None:
    """Import the product but for what needs Spark, which commands that need it import themselves."""
    headrace = importlib.import_module("headrace")
    for module in pkgutil.walk_packages(headrace.__path__, "headrace.", onerror=lambda name: None):
        if not module.name.startswith(("headrace.pipeline", "headrace.__main__")):
            importlib.import_module(module.name)


def _tell_ended(waiting: dict[int, int]) -> None:
    while waiting:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with open(waiting.pop(pid), "wb") as told:  # noqa: PTH123  # a file descriptor
            told.write(NUMBER.pack(os.waitstatus_to_exitcode(status)))


def _become(request: dict[str, Any], fds: list[int]) -> list[str]:
    """Take over what a new process would have been started with."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    for kind, limit in zip(LIMITS, request["limits"], strict=True):
        resource.setrlimit(kind, tuple(limit))
    faulthandler.enable()  # a crash leaves its stack on stderr
    words: list[str] = request["words"]
    sys.argv = ["headrace", *words]
    return words


def _end(code: int) -> NoReturn:
    """End as the interpreter does: wait for threads, do what was left for the end, write what is buffered."""
    if SOAK:
        sys.exit(code)
    getattr(threading, "_shutdown")()  # noqa: B009  # not in its types; forks of multiprocessing end so too
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError):  # who read it has gone: the interpreter tells of it
        sys.exit(code)
    os._exit(code)


if __name__ == "__main__":
    found = main(socket.socket(fileno=int(sys.argv[1])))
    if found is not None:
        from headrace.cli.app import main as run_command

        _end(run_command(found))
