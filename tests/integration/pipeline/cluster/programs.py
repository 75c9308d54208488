"""Programs that run jobs on a cluster: started, watched and killed by the tests here."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headrace.pipeline.tables.ledger import read_published
from tests import forks
from tests.spark_cluster import SparkCluster

END_S_MAX: Final = 240.0
ROOT: Final = Path(__file__).parents[4]


@contextmanager
def running(words: list[str], folder: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs in ``folder``, its output in files there; killed with all that it started, if it still runs."""
    with (folder / "output").open("wb") as stdout, (folder / "errors").open("wb") as stderr:
        job = forks.start(
            words,
            stdout=stdout,
            stderr=stderr,
            cwd=folder,
            env=os.environ | environment,
            start_new_session=True,
        )
    try:
        yield job
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def published_up_to(to: str) -> int:
    found = read_published(Path(to))
    return found.sequence_id if found is not None else 0


def account(cluster: SparkCluster, folder: Path) -> str:
    """What everybody wrote, for the reader of a failure."""
    files = [folder / "output", folder / "errors", folder / "spark.log"]
    files += [folder / "there" / "_headrace" / "spark.log"]
    texts = [path.read_text(errors="replace")[-6000:] for path in files if path.exists()]
    return "\n".join([*texts, cluster.log()])
