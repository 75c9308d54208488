"""The whole query is killed (SIGKILL), and its tasks too: the feed has every row once, in order.

It dies at an edge of a batch that the dice choose: planned, appended, kept beside the checkpoint, done. In a soak, again and
again.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.pipeline.sink import kept
from tests.integration.pipeline.sink.folder_job import FolderJob
from tests.scale import SEED, scaled
from tests.servers import Feed
from tests.waiting import wait_until

ROWS = 50
LIVES = scaled(1)
BATCHES = 3 * LIVES + 6
EDGES = ("planned", "appended", "kept", "done")


@contextmanager
def living(folder: Path, feed: Feed) -> Iterator[subprocess.Popen[bytes]]:
    """The query in a process of its own, with its JVM and its tasks; all of it is killed at the end."""
    command = [sys.executable, "-m", "tests.integration.pipeline.sink.folder_job", str(folder)]
    command += [feed.server.url, feed.server.grpc_address, feed.name]
    with (folder / "query.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def head(feed: Feed) -> int:
    answer = feed.server.http.get(f"{feed.path}/tail")
    return int(answer.json()["next-sequence-id"]) - 1 if answer.status_code == 200 else 0


def newest(folder: Path) -> int:
    """The newest batch that has a file in a folder of the checkpoint; -1 if there is none."""
    return max((int(file.name) for file in folder.glob("*") if file.name.isdigit()), default=-1)


def has_come_to(edge: str, batch: int, job: FolderJob, feed: Feed, process: subprocess.Popen[bytes]) -> bool:
    """Whether the query has come to this edge of the batch, or has ended before."""
    if process.poll() is not None:
        return True
    checkpoint = job.folder / "checkpoint"
    match edge:
        case "planned":
            return newest(checkpoint / "offsets") >= batch
        case "appended":
            return head(feed) >= (batch + 1) * ROWS
        case "kept":
            file = checkpoint / kept.NAME
            return file.exists() and kept.decode(file.read_bytes(), "").feeds[feed.name].batch >= batch
    return newest(checkpoint / "commits") >= batch


def test_killed_queries_leave_every_row_once(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    dice = random.Random(SEED)
    job = FolderJob(tmp_path, feed.server.url, feed.server.grpc_address, feed.name)
    for number in range(BATCHES):
        job.batch(*dice.sample(range(number * ROWS, (number + 1) * ROWS), ROWS))
    died_at = []
    for _ in range(LIVES):
        edge = dice.choice(EDGES)
        batch = max(
            1, newest(tmp_path / "checkpoint" / "offsets") + dice.randint(1, 3)
        )  # a task has died by then
        with living(tmp_path, feed) as process:
            there = partial(has_come_to, edge, batch, job, feed, process)
            wait_until(there, 120, what=f"{edge} {batch}, seed {SEED}")
            assert process.poll() is None, (tmp_path / "query.log").read_text()
        died_at.append((edge, batch))
    assert "Lost task 0.0" in (tmp_path / "spark.log").read_text(), "no task died and ran again"
    assert head(feed) < BATCHES * ROWS
    assert job.run(spark) is None, f"seed {SEED}, died at {died_at}"
    assert [entry["changes"]["n"] for entry in feed.entries(limit=5000)] == list(range(BATCHES * ROWS)), (
        f"seed {SEED}, died at {died_at}"
    )
