"""``headrace capture run`` as a process that is killed and started again, behind proxies that can be cut."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx

from tests import forks
from tests.mariadb import Database
from tests.proxy import Proxy
from tests.servers import Feed, ServerProcess
from tests.waiting import wait_until

PROGRESS_S_MAX = 90.0
STOP_S_MAX = 60.0
_COMMAND = (*forks.HEADRACE, "capture")


class CaptureProcess:
    """One capture of ``database`` into the feed ``feed``; what it logs goes to ``folder/capture.err``.

    ``config`` is its capture.toml, which needs ``environment``.
    ``source``, ``http`` and ``grpc`` are the proxies through which it reaches the database and the server.
    """

    feed = "shop"

    def __init__(
        self,
        folder: Path,
        database: Database,
        server: ServerProcess,
        *,
        source: Proxy,
        http: Proxy,
        grpc: Proxy,
        lines: tuple[str, ...] = (),
    ) -> None:
        self.folder = folder
        self._server = server
        self.config = folder / "capture.toml"
        self._process: subprocess.Popen[bytes] | None = None
        dsn = database.dsn.replace(f":{database.server.port}/", f":{source.port}/")
        self.environment = os.environ | {"HEADRACE_DSN": dsn}
        self.config.write_text(
            "\n".join(
                [
                    f'feed = "{self.feed}"',
                    f'server = "http://127.0.0.1:{http.port}"',
                    f'grpc = "127.0.0.1:{grpc.port}"',
                    f'state-dir = "{folder / "state"}"',
                    *lines,
                ]
            )
        )

    def start(self) -> None:
        """Start the process; it has to begin where the feed ends."""
        with (self.folder / "capture.err").open("ab") as errors:
            command = [*_COMMAND, "run", "--config", str(self.config)]
            self._process = forks.start(
                command, env=self.environment, stdin=subprocess.DEVNULL, stderr=errors
            )

    def kill(self) -> None:
        """SIGKILL, whatever it is doing."""
        self._end(signal.SIGKILL)

    def stop(self) -> int | None:
        """SIGTERM, and wait; returns the exit code."""
        return self._end(signal.SIGTERM)

    def command(self, *words: str) -> str:
        """Run another command of ``headrace capture`` with the same settings, and return what it prints."""
        done = forks.run(
            [*_COMMAND, *words, "--config", str(self.config)],
            env=self.environment,
            timeout=PROGRESS_S_MAX,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def progress(self, chance: random.Random, entries_max: int) -> None:
        """Wait until the feed has grown by some entries; how many, chance says."""
        wanted = self.head() + chance.randint(1, entries_max)
        self.wait(lambda: self.head() >= wanted, what=f"entry {wanted}")

    def wait(self, is_done: Callable[[], bool], *, what: str) -> None:
        """Wait until ``is_done`` says so; fails at once if the capture ends by itself."""
        try:
            wait_until(lambda: self._has_ended() or is_done(), PROGRESS_S_MAX, what=what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.errors()[-4000:]}") from None
        assert not self._has_ended(), self.errors()[-4000:]

    def head(self) -> int:
        """The feed's newest sequence id, 0 while there is none."""
        try:
            answer = self._server.http.get(Feed(self._server, self.feed).path)
        except httpx.HTTPError:
            return 0
        return int(answer.json()["head-sequence-id"]) if answer.status_code == 200 else 0

    def errors(self) -> str:
        """What was logged so far."""
        return (self.folder / "capture.err").read_text(encoding="utf-8", errors="replace")

    def _has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _end(self, number: signal.Signals) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        process.send_signal(number)
        return process.wait(STOP_S_MAX)
