"""A Spark job of ours as a process that is killed, its Java and its workers with it, and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headrace.pipeline.session import SHORT_LIVED
from tests import forks
from tests.waiting import wait_until

STEP_S_MAX = 600.0
"""How long a job may take to get anywhere, on a busy machine."""

MASTER = (
    *("--master", "local[2]"),
    *(word for name, value in SHORT_LIVED.items() for word in ("--conf", f"{name}={value}")),
)
"""Jobs that are killed after some seconds never get back what they spend on becoming quick."""


def pipeline(*words: str) -> list[str]:
    """The command line of a command of ``headrace pipeline``."""
    return [*forks.HEADRACE, "pipeline", *words]


class SparkProcess:
    """``headrace pipeline`` with ``words``. What it prints goes to ``folder/NAME.err``, and ``spark_log`` is Spark's own."""

    def __init__(
        self, folder: Path, words: Sequence[str], *, running: Sequence[str] = (), spark_log: Path
    ) -> None:
        """``running``: words besides, for as long as it runs until it is killed."""
        self._process: subprocess.Popen[bytes] | None = None
        self._command = pipeline(*words)
        self._running = list(running)
        self._said = folder / f"{words[0]}.err"
        self._logs = (self._said, spark_log)

    def start(self) -> None:
        """Let it run until it is killed."""
        with self._said.open("ab") as errors:
            self._process = forks.start(
                [*self._command, *self._running],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL of the driver, its Java and its workers, whatever they are doing."""
        process, self._process = self._process, None
        assert process is not None
        assert process.poll() is None, self.errors()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(STEP_S_MAX)

    def end(self) -> None:
        """Leave nothing running behind."""
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(STEP_S_MAX)

    def stop(self) -> int:
        """SIGTERM: it ends in order. Returns the exit code."""
        process, self._process = self._process, None
        assert process is not None
        process.terminate()
        return process.wait(STEP_S_MAX)

    def wait(self, is_done: Callable[[], bool], *, what: str) -> None:
        """Wait until ``is_done`` says so; fails at once if the job ends by itself."""
        try:
            wait_until(lambda: self._has_ended() or is_done(), STEP_S_MAX, what=what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.errors()}") from None
        assert not self._has_ended(), self.errors()

    def finish(self) -> dict[str, Any]:
        """Run it once, up to what the feed has now; returns what it says."""
        with self._said.open("ab") as errors:
            done = forks.run(
                [*self._command, "--once"],
                stdout=subprocess.PIPE,
                stderr=errors,
                timeout=STEP_S_MAX,
                check=False,
            )
        assert done.returncode == 0, self.errors()
        said: dict[str, Any] = json.loads(done.stdout)
        return said

    def errors(self) -> str:
        """The end of what was logged, and of Spark's own output."""
        texts = [path.read_text(errors="replace")[-4000:] for path in self._logs if path.exists()]
        return "\n".join(texts)

    def _has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None
