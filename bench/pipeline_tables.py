"""Simple events to a Delta table on local[2], with the server on the same processors: rows a second, and for months.

``throughput``: a feed of inserts and updates of random keys, 1,000 rows a transaction, ten columns, as ``headrace capture``
writes them. The bare limit is Delta alone: the same rows, typed, from Parquet, the last of each key merged in batches of the
same size. ``publish-lag-s`` is how long a batch takes from its start to its publish.

``batches``: many small batches on one table, one after the other. The table has 200,000 rows to begin with; each batch is a
transaction of 100 rows with new keys, which Delta puts into files of their own, and every eighth updates old rows too. So
the table has tens of files before they are put together. Eight times in a run it is made to seem that three days pass: what
left the table may be removed then. ``first-ms`` and ``last-ms`` are medians of a batch, of the first and the last tenth.
Healthy is a table whose ``last/first`` is at most 1.5, and of which these are bounded: ``files`` of the newest version
(``files-max``: the most that were seen), ``on-disk`` (``on-disk-max``), the Parquet files that are there in all, and
``log-files``, what ``_delta_log`` has at the end. ``compactions`` and ``removals`` say how often each was done: with none of
them, nothing was shown.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
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
from headrace.pipeline.tables.batches import Batches
from headrace.pipeline.tables.delta_log import commits_after
from headrace.pipeline.tables.job import read_tables, run_tables
from headrace.pipeline.tables.ledger import Ledger, PublishedTable
from headrace.pipeline.tables.snapshot_files import snapshot_at
from headrace.wire.keyed import join_fields
from tests.servers import ServerProcess
from tests.simple_tables import column, table

FEED: Final = "bench"
PER_TRANSACTION: Final = 1_000
PER_WATERMARK: Final = 40
SMALL: Final = "small"
SMALL_BEGUN_WITH: Final = 200_000
"""Rows of the table before the small batches, whose new keys are as many in 2,000 of them."""
SMALL_ROWS: Final = 100
SMALL_UPDATES: Final = 20
UPDATES_EVERY: Final = 8
"""A batch with updates writes the files anew that have these rows, its own ones with them: they get no more by it."""
AGEINGS: Final = 8
AGED: Final = timedelta(days=3)
"""More than the two days for which a file stays that left a table."""
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
Row = list[str | None]
Pairs = list[tuple[Row | None, Row]]
"""Rows of a transaction, each before (None: it was not there) and after."""


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
        """Merge ``count`` transactions into a table that has many rows, each a batch of its own."""
        ends = self._fill(SMALL, _growing(count))
        to = self.folder / f"tables-{next(_folders)}"
        ledger = Ledger(to, SMALL, self.server.http.get(f"/feeds/{SMALL}").json()["incarnation"])
        took: list[float] = []
        follow = Batches(ledger, lambda one: took.append(one.seconds * 1000))
        frame = self.spark.read.format(FORMAT).options(endpoint=self.server.url, feeds=SMALL)
        health = Health(ledger)
        # All rows that it begins with, then a transaction and a WATERMARK at a time.
        marks = ends[-2 * count - 1 :: 2]
        for number, (before, last) in enumerate(zip([0, *marks], marks, strict=False)):
            follow(frame.options(start=str(before + 1), end=str(last)).load(), number)
            if number == 0:
                self._forget_at_once(health.table())
            elif number % max(1, count // AGEINGS) == 0:
                health.age()
            health.look()
        ledger.close()
        tenth = max(1, count // 10)
        # The first one makes the table.
        first_ms, last_ms = statistics.median(took[1 : tenth + 1]), statistics.median(took[-tenth:])
        return {
            "batches/s": 1000 / statistics.mean(took[1:]),
            "first-ms": first_ms,
            "last-ms": last_ms,
            "last/first": last_ms / first_ms,
            **health.figures(),
        }

    def _forget_at_once(self, path: Path) -> None:
        """Let Delta's log not tell when a file left the table: the file's own time does, which can be set back."""
        retention = "'delta.deletedFileRetentionDuration' = 'interval 0 hours'"
        self.spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({retention})")

    def _fill(self, feed: str, appends: Iterator[list[bytes]]) -> list[int]:
        """Make a feed and append to it as capture does; returns the last sequence id of each append."""
        return asyncio.run(_append_all(self.server.grpc_address, make_feed(self.server, feed), appends))

    def close(self) -> None:
        """Stop both."""
        self.spark.stop()
        self.server.kill()


class Health:
    """The files of the one table of a ledger, looked at after each batch."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._files: list[int] = []
        self._on_disk: list[int] = []
        self._version = 0
        self._compactions = self._removals = 0

    def table(self) -> Path:
        """Return the folder of the table."""
        return self._ledger.to / self._published().path

    def look(self) -> None:
        """Count."""
        one, path = self._published(), self.table()
        self._files.append(len(snapshot_at(path, one.version).files))
        on_disk = sum(1 for _ in path.glob("*.parquet"))
        self._removals += bool(self._on_disk) and on_disk < self._on_disk[-1]
        self._on_disk.append(on_disk)
        self._compactions += sum(
            commit.operation == "OPTIMIZE" for commit in commits_after(path, self._version)
        )
        self._version = one.version

    def age(self) -> None:
        """Make it seem that :data:`AGED` passed, with a publish in the last day but one: old files may be removed."""
        path, now = self.table(), datetime.now(UTC)
        for file in (*path.glob("*.parquet"), *path.glob("_delta_log/*")):
            os.utime(file, times=((now - AGED).timestamp(),) * 2)
        self._ledger.keep(
            publishes=[(now - timedelta(hours=30)).isoformat()],
            cleaned={path.name: (now - AGED).isoformat()},
        )

    def figures(self) -> Figures:
        """Return what was counted."""
        return {
            "files": float(self._files[-1]),
            "files-max": float(max(self._files)),
            "on-disk": float(self._on_disk[-1]),
            "on-disk-max": float(max(self._on_disk)),
            "compactions": float(self._compactions),
            "removals": float(self._removals),
            "log-files": float(sum(1 for _ in self.table().glob("_delta_log/*"))),
        }

    def _published(self) -> PublishedTable:
        moment = self._ledger.published
        if moment is None:
            raise RuntimeError("nothing is published: the batches end inside a transaction")
        (table,) = [one for one in moment.tables if one.table]
        return table


async def _append_all(address: str, writes: Writes, appends: Iterator[list[bytes]]) -> list[int]:
    ends = [0]
    async with LogAppendClient(address) as client, client.append_stream(writes) as stream:
        for fields in appends:
            future = await stream.send(join_fields(fields), expected_offset=ends[-1] + 1)
            ends.append(ends[-1] + len(fields))
            await future
    return ends[1:]


def _appends(transactions: int, keys: int) -> Iterator[list[bytes]]:
    """The table's schema, then transactions of rows with random keys, and WATERMARKs."""
    rng = random.Random(SEED)  # rows of a bench
    there: set[int] = set()

    def changes() -> Iterator[Pairs]:
        for number in range(1, transactions + 1):
            pairs = []
            for key in rng.sample(range(keys), PER_TRANSACTION):
                pairs.append((_row(key, 0) if key in there else None, _row(key, number)))
                there.add(key)
            yield pairs

    return _captured(changes(), PER_WATERMARK)


def _growing(batches: int) -> Iterator[list[bytes]]:
    """The table's schema and the rows that it begins with, then a transaction of new keys and a WATERMARK for each batch."""
    rng = random.Random(SEED)  # rows of a bench

    def changes() -> Iterator[Pairs]:
        for first in range(0, SMALL_BEGUN_WITH, PER_TRANSACTION):
            yield [(None, _row(key, 0)) for key in range(first, first + PER_TRANSACTION)]
        for number in range(1, batches + 1):
            first = SMALL_BEGUN_WITH + (number - 1) * SMALL_ROWS
            pairs: Pairs = [(None, _row(key, number)) for key in range(first, first + SMALL_ROWS)]
            if number % UPDATES_EVERY == 0:
                old = rng.sample(range(SMALL_BEGUN_WITH), SMALL_UPDATES)
                pairs += [(_row(key, 0), _row(key, number)) for key in old]
            yield pairs

    return _captured(changes(), 1)


def _captured(transactions: Iterator[Pairs], per_watermark: int) -> Iterator[list[bytes]]:
    """The table's schema, then the transactions, with a WATERMARK after so many of them and at the end."""
    form = RowForm(_TABLE)
    now_ms = time.time_ns() // 1_000_000
    commit_ts = now_ms << 18
    yield [schema_entry(_TABLE, now_ms).alone()]
    number = 0
    for number, pairs in enumerate(transactions, start=1):
        commit_ts += 1
        entries = TransactionEntries(f"0-1-{number}", commit_ts, now_ms, now_ms)
        entries.add_part(form, pairs)
        yield entries.end()
        if number % per_watermark == 0:
            commit_ts += 1
            yield [watermark_entry(commit_ts, now_ms).alone()]
    if number % per_watermark:
        yield [watermark_entry(commit_ts + 1, now_ms).alone()]


def _row(key: int, turn: int) -> Row:
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
        "on-disk",
        "on-disk-max",
        "compactions",
        "removals",
        "log-files",
    ]
    publish([throughput, months], figures, given.json)


if __name__ == "__main__":
    main()
