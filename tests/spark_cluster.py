"""A real Spark cluster on this machine: one master and several workers, for ``--master spark://``.

``with SparkCluster() as cluster: ... cluster.url ... cluster.kill_worker(0)``. A worker dies with all that it started, as a
machine does. Each has an address of its own, 127.0.0.1, 127.0.0.2 …: Spark tells machines apart by these.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import httpx

from headrace.client.tls import NO_TLS
from headrace.pipeline.java import find_java
from headrace.pipeline.spark_home import spark_home
from tests.java_classes import quick_options
from tests.ports import free_port
from tests.waiting import wait_until

START_S_MAX: Final = 120.0
STOP_S_MAX: Final = 60.0
WORKER_MEMORY: Final = "1800m"
EXECUTOR_MEMORY: Final = "1000m"
SECOND_EXECUTOR_MEMORY: Final = "700m"
"""One executor of each of two sessions fits a worker, but no two of the first, so that each worker gets one of it."""


class SparkCluster:
    """``workers`` workers of two cores each: a session that takes one core of each leaves the others to a second one."""

    def __init__(self, workers: int = 2) -> None:
        self.folder = Path()
        self.url = ""
        self._page = ""
        self._count = workers
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SparkCluster:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-spark-"))
        port, page = free_port(), free_port()
        self.url, self._page = f"spark://127.0.0.1:{port}", f"http://127.0.0.1:{page}/json/"
        try:
            words = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]
            self._master = self._start("master", "org.apache.spark.deploy.master.Master", *words)
            wait_until(lambda: self._state() is not None, START_S_MAX, what="Spark's master to answer")
            self._workers = [self._start_worker(number) for number in range(self._count)]
            self.mend()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def alive(self) -> int:
        """How many workers the master counts on."""
        state = self._state() or {}
        return sum(worker["state"] == "ALIVE" for worker in state.get("workers", []))

    def used(self) -> int:
        """How many workers that are alive have an executor."""
        state = self._state() or {}
        return sum(
            worker["state"] == "ALIVE" and worker["coresused"] > 0 for worker in state.get("workers", [])
        )

    def executors(self) -> list[Path]:
        """The folders of the executors that were started so far; each has its ``stderr``."""
        return sorted(self.folder.glob("work-*/app-*/*"))

    def kill_worker(self, number: int) -> None:
        """SIGKILL one worker, its executors and their Python processes' parent: nothing is finished."""
        self._kill(self._workers[number])

    def restart_worker(self, number: int) -> None:
        """Start a worker that was killed: it takes part again, as a new one."""
        self._workers[number] = self._start_worker(number)

    def mend(self) -> None:
        """Start the workers that were killed; returns when the master counts on all, and on none that is dead."""
        for number, worker in enumerate(self._workers):
            if worker.poll() is not None:
                self.restart_worker(number)
        wait_until(lambda: self.alive() == self._count, START_S_MAX, what="Spark's workers to register")

    def log(self) -> str:
        """What master, workers and executors wrote last."""
        files = [*self.folder.glob("*.log"), *(folder / "stderr" for folder in self.executors())]
        return "\n".join(f"{path}:\n{path.read_text(errors='replace')[-3000:]}" for path in files)

    def _start_worker(self, number: int) -> subprocess.Popen[bytes]:
        words = [
            "--host",
            f"127.0.0.{number + 1}",
            "--port",
            str(free_port()),
            "--webui-port",
            str(free_port()),
        ]
        words += ["--cores", "2", "--memory", WORKER_MEMORY]
        words += ["--work-dir", str(self.folder / f"work-{number}"), self.url]
        return self._start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *words)

    def _start(self, name: str, kind: str, *words: str) -> subprocess.Popen[bytes]:
        home = spark_home()
        assert home is not None
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYTHON"))},
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(find_java().home),
            "JAVA_TOOL_OPTIONS": quick_options(),  # workers hand it on to their executors
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(self.folder),
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [str(home / "bin" / "spark-class"), kind, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=environment,
                start_new_session=True,
            )

    def _state(self) -> dict[str, Any] | None:
        for process in (self._master, *self._workers):
            assert process is None or process.poll() in {None, -signal.SIGKILL}, f"it ended:\n{self.log()}"
        try:
            answer = httpx.get(self._page, timeout=5, trust_env=False, verify=NO_TLS)
        except httpx.HTTPError:
            return None
        # While the master starts, every path shows the page for people.
        is_state = answer.status_code == 200 and "json" in answer.headers.get("content-type", "")
        found: dict[str, Any] | None = answer.json() if is_state else None
        return found

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(STOP_S_MAX)

    def _end(self) -> None:
        for process in (*self._workers, *([self._master] if self._master is not None else [])):
            self._kill(process)
        shutil.rmtree(self.folder)
