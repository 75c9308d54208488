"""The whole query is killed again and again (SIGKILL), and its tasks too: the feed has every row once, in order."""

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

from tests.integration.pipeline.sink.folder_job import FolderJob
from tests.servers import Feed
from tests.waiting import wait_until

BATCHES = 12
ROWS = 50
LIVES = 2


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


def has_come_to(feed: Feed, place: int, process: subprocess.Popen[bytes]) -> bool:
    return head(feed) >= place or process.poll() is not None


def test_killed_queries_leave_every_row_once(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    job = FolderJob(tmp_path, feed.server.url, feed.server.grpc_address, feed.name)
    for number in range(BATCHES):
        job.batch(*dice.sample(range(number * ROWS, (number + 1) * ROWS), ROWS))
    for _ in range(LIVES):
        lives_until = head(feed) + dice.randint(1, 3) * ROWS
        with living(tmp_path, feed) as process:
            # The append is there: Spark then still has to see its task die, run it again, and commit the batch.
            wait_until(partial(has_come_to, feed, lives_until, process), 120, what="the query to write")
            assert process.poll() is None, (tmp_path / "query.log").read_text()
    assert "Lost task 0.0" in (tmp_path / "spark.log").read_text(), "no task died and ran again"
    assert head(feed) < BATCHES * ROWS
    assert job.run(spark) is None
    assert [entry["changes"]["n"] for entry in feed.entries(limit=5000)] == list(range(BATCHES * ROWS)), (
        f"seed {seed}"
    )
