"""A real ``headrace listen`` for scenarios: start, kill, restart it; its lines, one list for each of its lives."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from tests import forks
from tests.servers import Feed, changes

STOP_S_MAX = 30.0
LISTENER = "tcns"


class ListenProcess:
    """A listener of ``feed`` at ``url``, with its bookmark in ``folder``."""

    def __init__(self, folder: Path, feed: str, url: str, *words: str, listener_id: str = LISTENER) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self._lives = 0
        self._words = ["listen", feed, "--ndjson", "--server", url, "--listener-id", listener_id]
        self._words += ["--bookmark", str(folder / "bookmark"), *words]
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> ListenProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Begin a new life."""
        assert self.process is None, "the listener runs already"
        with self._out(self._lives).open("wb") as out, (self.folder / "listen.err").open("ab") as errors:
            self.process = forks.start(
                [*forks.HEADRACE, *self._words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
            )
        self._lives += 1

    def kill(self) -> None:
        """SIGKILL, whatever it is doing; nothing happens if it doesn't run."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and wait; returns the exit code."""
        return self._end(signal.SIGTERM)

    def lives(self) -> list[list[dict[str, Any]]]:
        """The whole lines of each life so far. A line that a kill tore is left out."""
        return [
            [
                json.loads(line)
                for line in self._out(life).read_bytes().splitlines(keepends=True)
                if line[-1] == 10
            ]
            for life in range(self._lives)
        ]

    def lines(self) -> list[dict[str, Any]]:
        """The whole lines of all its lives."""
        return [line for life in self.lives() for line in life]

    def last(self) -> int:
        """The sequence id of its newest line; 0 before the first, and in the middle of a snapshot's rows."""
        lines = self.lines()
        return int(lines[-1].get("sequence-id", 0)) if lines else 0

    def errors(self) -> str:
        """What it wrote to stderr so far, all its lives together."""
        return (self.folder / "listen.err").read_text(encoding="utf-8", errors="replace")

    def waits(self) -> list[float]:
        """The seconds of each wait after a failure that it told of so far."""
        lines = [
            line
            for line in self.errors().splitlines(keepends=True)
            if line.startswith("{") and line[-1] == "\n"
        ]
        return [float(said["seconds"]) for said in map(json.loads, lines) if said["event"] == "waiting"]

    def _out(self, life: int) -> Path:
        return self.folder / f"life-{life}.ndjson"

    def _end(self, number: signal.Signals) -> int:
        if self.process is None:
            return 0
        process, self.process = self.process, None
        process.send_signal(number)
        return process.wait(STOP_S_MAX)


def post(feed: Feed, first: int, last: int) -> None:
    """Append entries ``first`` … ``last``, as many in a request as the server takes well."""
    for start in range(first, last + 1, 250):
        entries = [{"changes": changes(number)} for number in range(start, min(last, start + 249) + 1)]
        answer = feed.post(*entries)
        assert answer.status_code == 200, answer.text


def content(feed: Feed) -> list[dict[str, Any]]:
    """All that the feed retains, read from the server itself."""
    view = feed.server.http.get(feed.path).json()
    head, following = view["head-sequence-id"], view["oldest-sequence-id"]
    found: list[dict[str, Any]] = []
    while following <= head:
        found += feed.entries(following, head)
        following = found[-1]["sequence-id"] + 1
    return found


def told(feed: Feed, listener_id: str = LISTENER) -> int:
    """The position that the server was told of this listener; 0 before it was."""
    views: list[dict[str, Any]] = feed.server.http.get(feed.path).json()["listeners"]
    return sum(int(view["sequence-id"] or 0) for view in views if view["listener-id"] == listener_id)
