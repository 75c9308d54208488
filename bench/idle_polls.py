"""Thousands of long polls that wait on one server: what each costs in memory, and how soon one append answers them all.

The bare limit is an ASGI application that waits for an event and answers a constant, on the same uvicorn.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from bench.support.bare_polls import bare_polls
from bench.support.harness import ROOT, Bench, Figures, arguments, publish
from tests.servers import Feed, changes, serving

ARMS = ("bare", "headrace")
CLIENTS: Final = 2
"""Client processes: reading thousands of answers must not be what takes the time."""


@contextmanager
def _server(arm: str) -> Iterator[tuple[int, str, str, Callable[[], object]]]:
    """The server of an arm: its process id and address, what a poll asks for, and what answers all polls."""
    if arm == "bare":
        with bare_polls() as (pid, address):
            yield pid, address, "/poll", lambda: httpx.post(f"http://{address}/", trust_env=False)
        return
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder, serving(Path(folder)) as server:
        feed = Feed(server, "bench")
        feed.register()
        feed.listener()
        target = f"{feed.path}/poll?listener-id=listener-1&after-sequence-id=0&timeout-ms=60000"
        yield server.pid, server.address, target, lambda: feed.post({"changes": changes(1)})


@contextmanager
def _clients(address: str, target: str, polls: int) -> Iterator[Sequence[subprocess.Popen[str]]]:
    """Client processes, once all their polls wait."""
    shares = [polls // CLIENTS + (number < polls % CLIENTS) for number in range(CLIENTS)]
    command = [sys.executable, "-m", "bench.support.poll_clients", address, target]
    processes = [
        subprocess.Popen([*command, str(share)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for share in shares
    ]
    try:
        for process in processes:
            if _line(process) != "waiting":
                raise RuntimeError("a client process has failed")
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure(arm: str, polls: int) -> Figures:
    """Let the polls wait, look at the server's memory, then append one entry."""
    with _server(arm) as (pid, address, target, answer_all):
        before = _resident_kb(pid)
        with _clients(address, target, polls) as clients:
            waiting = _resident_kb(pid)
            begun = time.monotonic()
            answer_all()
            told = [json.loads(_line(process)) for process in clients]
            if any(one["bad"] for one in told):
                raise RuntimeError(f"polls were answered with errors: {told}")
            answered = _resident_kb(pid)
    return {
        "mb": (waiting - before) / 1000,
        "kb/poll": (waiting - before) / polls,
        "mb-after": (answered - before) / 1000,
        "last-answer-s": max(one["last"] for one in told) - begun,
    }


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None, "its output is a pipe"
    return process.stdout.readline().strip()


def _resident_kb(pid: int) -> int:
    """Memory of a process that is in RAM, in units of 1,024 bytes."""
    (line,) = [
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")
    ]
    return int(line.split()[1])


def main() -> None:
    """Measure both arms by turns, and print what was found."""
    parser = arguments(__doc__, seconds=0, rounds=3)
    parser.add_argument("--polls", type=int, default=5_000, help="polls that wait (default: %(default)s)")
    given = parser.parse_args()
    bench = Bench("idle_polls", ARMS, {"polls": given.polls, "client-processes": CLIENTS})
    bench.run(lambda arm: measure(arm, given.polls), given.rounds)
    publish([bench], ["mb", "kb/poll", "last-answer-s"], given.json)


if __name__ == "__main__":
    main()
