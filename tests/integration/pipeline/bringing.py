"""Tables brought up to a feed's head as the job does it, batch by batch, without a query of Spark's around the batches.

Of what a small run of the job takes, that query is half: this is for tests of what becomes of the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from headrace.pipeline.source.feed import FORMAT, register
from headrace.pipeline.tables.batches import BatchDone, Batches
from headrace.pipeline.tables.ledger import Ledger
from tests.servers import ServerProcess


class Brought(NamedTuple):
    """What was done. ``stopped``: why tables are stopped, by their names without the schema."""

    batches: int
    entries: int
    stopped: dict[str, str]


Bring = Callable[..., Brought]


def bring_tables(
    spark: SparkSession, server: ServerProcess, feed: str, to: str, *, entries_max: int = 1_000_000
) -> Brought:
    """Bring the tables in ``to`` from where they are published up to the head of ``feed``."""
    register(spark)
    view = server.http.get(f"/feeds/{feed}").json()
    head = view["head-sequence-id"]
    ledger = Ledger(Path(to), feed, view["incarnation"])
    done: list[BatchDone] = []
    batches = Batches(ledger, done.append)
    try:
        first = (
            ledger.published.sequence_id + 1 if ledger.published is not None else view["oldest-sequence-id"]
        )
        while first <= head:
            last = min(first + entries_max - 1, head)
            options = {"endpoint": server.url, "feeds": feed, "start": str(first), "end": str(last)}
            batches(spark.read.format(FORMAT).options(**options).load(), last)
            first = last + 1
        stopped = {
            one.table[-1]: note.reason
            for one in ledger.known
            if (note := one.stopped) is not None and note.counts
        }
    finally:
        ledger.close()
    return Brought(len(done), sum(one.entries for one in done), stopped)
