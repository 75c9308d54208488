"""Programs that run jobs on a cluster: started, watched and killed by the tests here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from headrace.pipeline.tables.ledger import read_published
from tests import forks
from tests.integration.pipeline.cluster.cluster_job import BUSY, Plan, Settings
from tests.s3 import S3Server
from tests.spark_cluster import EXECUTOR_MEMORY, SparkCluster
from tests.waiting import wait_until

END_S_MAX: Final = 240.0
BUSY_REPORTS: Final = 10
ROOT: Final = Path(__file__).parents[4]


@contextmanager
def running(words: list[str], folder: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs in ``folder``, its output in files there; killed with all that it started, if it still runs."""
    with (folder / "output").open("wb") as stdout, (folder / "errors").open("wb") as stderr:
        job = forks.start(words, stdout=stdout, stderr=stderr, cwd=folder, start_new_session=True, **options)
    try:
        yield job
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


class Program:
    """``cluster_job`` in ``folder``: one session, for one plan after the other."""

    def __init__(self, cluster: SparkCluster, s3: S3Server, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self._s3 = s3
        self._jobs: tuple[str, ...] = ()
        self._stack = ExitStack()
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        (self.folder / "fsspec").mkdir()
        (self.folder / "fsspec" / "s3.json").write_text(json.dumps({"s3": self._s3.config}))
        settings = Settings(
            master=self.cluster.url,
            executor_memory=EXECUTOR_MEMORY,
            cores_max=2,
            fsspec=str(self.folder / "fsspec"),
        )
        (self.folder / "settings.json").write_bytes(msgspec.json.encode(settings))
        words = [sys.executable, "-m", "tests.integration.pipeline.cluster.cluster_job", "settings.json"]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        env = self._s3.env | {"PYTHONPATH": path}
        self._process = self._stack.enter_context(running(words, self.folder, env=env, stdin=subprocess.PIPE))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._stack.close()

    def start(self, plan: Plan) -> None:
        """Have the jobs of a plan run."""
        self._jobs = plan.jobs
        (self.folder / "plan.json").write_bytes(msgspec.json.encode(plan))
        assert self._process.stdin is not None
        self._process.stdin.write(b"plan.json\n")
        self._process.stdin.flush()

    def comes(self, to: Callable[[], object], *, what: str) -> None:
        """Wait until it has come to this; fails at once if it ends by itself."""
        wait_until(lambda: to() or self._process.poll() is not None, END_S_MAX, what=what)
        assert to(), account(self.cluster, self.folder)

    def is_done(self, job: str) -> bool:
        """Whether a job of the plan is done."""
        return (self.folder / f"{job}.json").exists()

    def done(self) -> dict[str, Any]:
        """Wait for all jobs of the plan; returns what each of them says."""
        for job in self._jobs:
            self.comes(lambda: self.is_done(job), what=job)  # noqa: B023  # called at once
        return {job: json.loads((self.folder / f"{job}.json").read_text()) for job in self._jobs}

    def executors(self) -> int:
        """How many executors the driver has."""
        return int(self._busy()["executors"])

    def _busy(self) -> dict[str, Any]:
        """What the program said last of its executors."""
        file = self.folder / BUSY
        said: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"at": 0.0, "executors": 0}
        return said

    def busy_worker(self) -> int:
        """Wait until one worker has tasks for good, and return its number.

        Spark says late that a task has ended, so it must have said several times that one is running.
        """
        began = time.time()
        reports: dict[float, set[str]] = {}
        busy: set[str] = set()

        def is_busy() -> bool:
            found = self._busy()
            if found["at"] > began:
                reports[found["at"]] = set(found["hosts"])
            last = list(reports.values())[-BUSY_REPORTS:]
            if not busy and len(last) == BUSY_REPORTS:
                busy.update(set.intersection(*last))
            return bool(busy)

        self.comes(is_busy, what="a worker that is busy")
        return int(min(busy).rpartition(".")[2]) - 1

    def log(self) -> str:
        """What Spark has logged so far."""
        return (self.folder / "spark.log").read_text()

    def kill_worker(self, number: int, *, before: str) -> None:
        """Kill a worker before a job is done; returns when Spark has missed it."""
        lost = self.log().count("Lost executor")
        self.cluster.kill_worker(number)
        assert not self.is_done(before), "the worker died too late"
        self.comes(lambda: self.log().count("Lost executor") > lost, what="the executor to be missed")


def published_up_to(to: str) -> int:
    found = read_published(Path(to))
    return found.sequence_id if found is not None else 0


def account(cluster: SparkCluster, folder: Path) -> str:
    """What everybody wrote, for the reader of a failure."""
    files = [folder / "output", folder / "errors", folder / "spark.log"]
    texts = [path.read_text(errors="replace")[-6000:] for path in files if path.exists()]
    return "\n".join([*texts, cluster.log()])
