"""Simple events to a Delta table on local[2], with the server on the same processors: rows a second, and for months.

``throughput``: a feed of inserts and updates of random keys, 1,000 rows a transaction, ten columns, as ``headrace capture``
writes them. The bare limit is Delta alone: the same rows, typed, from Parquet, the last of each key merged in batches of the
same size. ``publish-lag-s`` is how long a batch takes from its start to its publish.

``batches``: many small batches on one table, one after the other: each a transaction of 500 rows, inserts and updates of
20,000 keys. ``first-ms`` and ``last-ms`` are medians of a batch, of the first and the last tenth; the ratio of the two and
the number of files of the table (at the end, and the most that were seen) say whether it stays healthy. ``log-files``: what
its ``_delta_log`` has at the end.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from bench.support.harness import Bench, Figures, arguments, publish
from bench.support.producing import make_feed
from headrace.capture.changes import TransactionEntries
from headrace.capture.control import schema_entry, watermark_entry
from headrace.capture.row_form import RowForm
from headrace.client.log_append import LogAppendClient, Writes
from headrace.pipeline.session import SessionSettings, open_session
from headrace.pipeline.source.feed import FORMAT
from headrace.pipeline.tables.batches import BatchDone, Batches
from headrace.pipeline.tables.job import read_tables, run_tables
from headrace.pipeline.tables.ledger import Ledger, read_published
from headrace.pipeline.tables.snapshot_files import snapshot_at
from headrace.wire.keyed import join_fields
from tests.servers import ServerProcess
from tests.simple_tables import column, table

FEED: Final = "bench"
PER_TRANSACTION: Final = 1_000
PER_WATERMARK: Final = 40
SMALL: Final = "small"
SMALL_ROWS: Final = 500
SMALL_KEYS: Final = 20_000
SEED: Final = 3
NAME: Final = ("shop", "bulk")
_TABLE: Final = table(
    ".".join(NAME),
    column("id", "bigint"),
    column("name", "varchar", length=255),
    column("email", "varchar", length=255),
    column("active", "tinyint"),
    column("balance", "decimal", length=12, decimal=2),
    column("born", "date"),
    column("changed", "datetime", decimal=6),
    column("note", "text", nullable=True),
    column("score", "double"),
    column("visits", "int", unsigned=True),
    key=("id",),
)
_folders = itertools.count(1)


class Subject:
    """The server, its feed, the session, and the rows in Parquet."""

    def __init__(self, folder: Path, rows: int, keys: int, batch: int) -> None:
        self.folder = folder
        self.rows = rows // PER_TRANSACTION * PER_TRANSACTION
        self.batch = batch
        self.server = ServerProcess(folder, grpc=True)
        self.server.start()
        appends = _appends(self.rows // PER_TRANSACTION, keys)
        self.entries = self._fill(FEED, appends)[-1]
        settings = SessionSettings(
            log_file=folder / "spark.log", master="local[2]", memory="3g", checkpoint=str(folder)
        )
        self.spark = open_session(settings)
        self.parquet = str(folder / "typed")

    def measure(self, arm: str) -> Figures:
        """Bring all rows into a new table."""
        to = self.folder / f"tables-{next(_folders)}"
        begun = time.perf_counter()
        if arm == "delta":
            self._merge_alone(to)
            return {"rows/s": self.rows / (time.perf_counter() - begun)}
        summary = run_tables(
            self.spark, feed=FEED, to=str(to), server=self.server.url, once=True, entries_max=self.batch
        )
        took = time.perf_counter() - begun
        return {"rows/s": self.rows / took, "publish-lag-s": took / summary.batches}

    def prepare(self) -> None:
        """Write the typed rows that Delta alone is given: every change, with its batch."""
        to = str(self.folder / "tables-0")
        run_tables(self.spark, feed=FEED, to=to, server=self.server.url, once=True, entries_max=self.batch)
        typed = read_tables(self.spark, to)[NAME]
        keyed = self.spark.read.format(FORMAT).options(endpoint=self.server.url, feeds=FEED).load()
        changes = keyed.where("control IS NULL").select(
            "sequence_id",
            F.get_json_object(F.col("value").cast("string"), "$.data.id").cast("bigint").alias("id"),
        )
        rows = changes.join(typed, "id").withColumn("batch", F.expr(f"sequence_id div {self.batch}"))
        rows.write.mode("overwrite").parquet(self.parquet)

    def _merge_alone(self, to: Path) -> None:
        rows = self.spark.read.parquet(self.parquet)
        empty = rows.limit(0).drop("batch")
        empty.write.format("delta").save(str(to))
        for number in range(self.entries // self.batch + 1):
            batch = rows.where(F.col("batch") == number).drop("batch")
            last = F.max_by(F.struct(*batch.columns), "sequence_id").alias("last")
            net = batch.groupBy("id").agg(last).select("last.*")
            merge = DeltaTable.forPath(self.spark, str(to)).alias("t").merge(net.alias("s"), "t.id = s.id")
            merge.whenMatchedUpdateAll("s.sequence_id > t.sequence_id").whenNotMatchedInsertAll().execute()

    def batches(self, count: int) -> Figures:
        """Merge ``count`` transactions into a new table, each a batch of its own."""
        ends = self._fill(SMALL, _appends(count, SMALL_KEYS, SMALL_ROWS, 1))
        to = self.folder / f"tables-{next(_folders)}"
        ledger = Ledger(to, SMALL, self.server.http.get(f"/feeds/{SMALL}").json()["incarnation"])
        took: list[float] = []
        files: list[int] = []

        def done(one: BatchDone) -> None:
            took.append(one.seconds * 1000)

        follow = Batches(ledger, done)
        frame = self.spark.read.format(FORMAT).options(endpoint=self.server.url, feeds=SMALL)
        # The schema, then a transaction and a WATERMARK at a time.
        for number, (before, last) in enumerate(zip([0, *ends[2::2]], ends[2::2], strict=False)):
            follow(frame.options(start=str(before + 1), end=str(last)).load(), number)
            files.append(_files(to))
        ledger.close()
        tenth = max(1, count // 10)
        # The first one makes the table.
        first_ms, last_ms = statistics.median(took[1 : tenth + 1]), statistics.median(took[-tenth:])
        return {
            "batches/s": 1000 / statistics.mean(took),
            "first-ms": first_ms,
            "last-ms": last_ms,
            "last/first": last_ms / first_ms,
            "files": float(files[-1]),
            "files-max": float(max(files)),
            "log-files": float(sum(1 for _ in to.glob("*/_delta_log/*"))),
        }

    def _fill(self, feed: str, appends: Iterator[list[bytes]]) -> list[int]:
        """Make a feed and append to it as capture does; returns the last sequence id of each append."""
        return asyncio.run(_append_all(self.server.grpc_address, make_feed(self.server, feed), appends))

    def close(self) -> None:
        """Stop both."""
        self.spark.stop()
        self.server.kill()


def _files(to: Path) -> int:
    moment = read_published(to)
    if moment is None:
        raise RuntimeError(f"nothing is published in {to}: the batches end inside a transaction")
    tables = [one for one in moment.tables if one.table]
    return sum(len(snapshot_at(to / one.path, one.version).files) for one in tables)


async def _append_all(address: str, writes: Writes, appends: Iterator[list[bytes]]) -> list[int]:
    ends = [0]
    async with LogAppendClient(address) as client, client.append_stream(writes) as stream:
        for fields in appends:
            future = await stream.send(join_fields(fields), expected_offset=ends[-1] + 1)
            ends.append(ends[-1] + len(fields))
            await future
    return ends[1:]


def _appends(
    transactions: int, keys: int, rows: int = PER_TRANSACTION, per_watermark: int = PER_WATERMARK
) -> Iterator[list[bytes]]:
    """The table's schema, then transactions of ``rows`` rows, with a WATERMARK after so many of them and at the end."""
    rng = random.Random(SEED)  # rows of a bench
    form = RowForm(_TABLE)
    now_ms = time.time_ns() // 1_000_000
    commit_ts = now_ms << 18
    yield [schema_entry(_TABLE, now_ms).alone()]
    there: set[int] = set()
    for number in range(1, transactions + 1):
        commit_ts += 1
        pairs = []
        for key in rng.sample(range(keys), rows):
            row = _row(key, number)
            pairs.append((_row(key, 0) if key in there else None, row))
            there.add(key)
        entries = TransactionEntries(f"0-1-{number}", commit_ts, now_ms, now_ms)
        entries.add_part(form, pairs)
        yield entries.end()
        if number % per_watermark == 0 or number == transactions:
            commit_ts += 1
            yield [watermark_entry(commit_ts, now_ms).alone()]


def _row(key: int, turn: int) -> list[str | None]:
    return [
        str(key),
        f"Customer number {key}",
        f"customer{key}@example.org",
        str(key % 2),
        f"{(key + turn) / 4:.2f}",
        f"{1950 + key % 50}-01-{1 + key % 28:02}",
        f"2024-02-26 05:00:00.{turn % 1_000_000:06}",
        None,
        f"{key / 8:.3f}".rstrip("0").rstrip("."),
        str(turn % 1_000),
    ]


def main() -> None:
    """Run the bench."""
    parser = arguments(__doc__, seconds=0, rounds=3)
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows of the feed (default: %(default)s)")
    parser.add_argument("--keys", type=int, default=2_000_000, help="different keys (default: %(default)s)")
    parser.add_argument(
        "--batch", type=int, default=1_000_000, help="entries of a batch (default: %(default)s)"
    )
    parser.add_argument("--batches", type=int, default=2_000, help="small batches (default: %(default)s)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        subject = Subject(Path(folder), given.rows, given.keys, given.batch)
        try:
            subject.prepare()
            conditions = {"rows": subject.rows, "keys": given.keys, "batch": given.batch}
            throughput = Bench("pipeline_tables", ["delta", "tables"], conditions)
            throughput.run(subject.measure, given.rounds)
            months = Bench("pipeline_tables_batches", ["batches"], {"batches": given.batches})
            months.run(lambda arm: subject.batches(given.batches), 1)
        finally:
            subject.close()
    figures = [
        "rows/s",
        "publish-lag-s",
        "batches/s",
        "first-ms",
        "last-ms",
        "last/first",
        "files",
        "files-max",
        "log-files",
    ]
    publish([throughput, months], figures, given.json)


if __name__ == "__main__":
    main()
