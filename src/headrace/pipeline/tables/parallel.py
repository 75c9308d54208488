"""Several tables at once: most of a small merge is planning on the driver, which leaves the cores idle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pyspark.sql import SparkSession
from pyspark.util import inheritable_thread_target

TABLES_AT_ONCE: Final = 4
"""Tables merged at the same time."""


def run_all(spark: SparkSession, jobs: Sequence[Callable[[], None]]) -> None:
    """Run the jobs, several at once, and raise the first failure after all have ended."""
    if len(jobs) < 2:
        for job in jobs:
            job()
        return
    with ThreadPoolExecutor(min(TABLES_AT_ONCE, len(jobs)), thread_name_prefix="tables") as pool:
        # Spark's thread-local properties say which query a job belongs to, so that it is cancelled with it.
        running = [pool.submit(inheritable_thread_target(spark)(job)) for job in jobs]
    for one in running:
        one.result()
