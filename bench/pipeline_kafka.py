"""``headrace pipeline kafka`` on local[2], with the server and a Kafka broker on the same processors: rows a second.

A feed of rows with ten columns, 1,000 a transaction, as ``headrace capture`` writes them (some 400 bytes a message), goes to
eight partitions of a topic. The bare limit is Spark's own connector: the same values from the same feed to the same broker,
neither placed nor sorted. ``first-watermark-s`` is how long after the start of the query the first WATERMARK was
acknowledged.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.support.harness import Bench, Figures, arguments, publish
from bench.support.producing import make_feed
from headrace.capture.changes import TransactionEntries
from headrace.capture.control import schema_entry, watermark_entry
from headrace.capture.row_form import RowForm
from headrace.client.log_append import LogAppendClient, Writes
from headrace.pipeline.kafka.client import connector_options
from headrace.pipeline.kafka.job import Progress, run_kafka
from headrace.pipeline.kafka.sink import parse_sink
from headrace.pipeline.session import SessionSettings, open_session
from headrace.simple.schema import TableSchema
from headrace.wire.keyed import join_fields
from tests.kafka import Broker
from tests.servers import ServerProcess
from tests.simple_tables import column, table

FEED: Final = "bench"
PARTITIONS: Final = 8
PER_TRANSACTION: Final = 1_000
PER_WATERMARK: Final = 50
"""Transactions between two WATERMARKs: one a second at 50,000 rows a second."""
ARMS: Final = {
    "connector": "",
    "json-by-table": "partition = 'table'",
    "json-by-key": "partition = 'index-value'",
    "avro-by-key": "partition = 'index-value'",
}
_TABLE: Final = table(
    "shop.bulk",
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
_topics = itertools.count(1)


class Subject:
    """The server, its feed, the broker, and the session."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder = folder
        self.rows = rows // PER_TRANSACTION * PER_TRANSACTION
        self.server = ServerProcess(folder, grpc=True)
        self.server.start()
        asyncio.run(_fill(self.server.grpc_address, make_feed(self.server, FEED), self.rows))
        self.broker = Broker()
        self.broker.__enter__()
        settings = SessionSettings(
            log_file=folder / "spark.log", master="local[2]", checkpoint=str(folder), kafka=True
        )
        self.spark = open_session(settings)

    def measure(self, arm: str) -> Figures:
        """Send the whole feed once, to a new topic."""
        topic = f"bench-{next(_topics)}"
        rule = f"[sink]\ndispatchers = [{{matcher = ['*.*'], {ARMS[arm]}}}]" if ARMS[arm] else ""
        encoding = "avro" if arm.startswith("avro") else "json"
        uri = f"kafka://{self.broker.address}/{topic}?partition-num={PARTITIONS}&encoding-format={encoding}"
        sink = parse_sink(uri, rule)
        begun = time.perf_counter()
        if arm == "connector":
            admin = AdminClient({"bootstrap.servers": self.broker.address})
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
            entries = self.spark.read.format("headrace").options(endpoint=self.server.url, feeds=FEED)
            values = entries.schema("value BINARY").load()
            writer = values.write.format("kafka").options(**connector_options(sink))
            writer.option("topic", topic).save()
            return {"rows/s": self.rows / (time.perf_counter() - begun)}
        first: list[float] = []

        def look(now: Progress) -> None:
            if now.watermark is not None and not first:
                first.append(time.perf_counter() - begun)

        checkpoint = str(self.folder / topic)
        summary = run_kafka(
            self.spark,
            feed=FEED,
            sink=sink,
            checkpoint=checkpoint,
            server=self.server.url,
            once=True,
            progress=look,
        )
        assert summary.rows == self.rows
        took = time.perf_counter() - begun
        return {"rows/s": self.rows / took, "first-watermark-s": first[0] if first else took}

    def close(self) -> None:
        """Stop all of them."""
        self.spark.stop()
        self.broker.__exit__(None, None, None)
        self.server.kill()


async def _fill(address: str, writes: Writes, rows: int) -> None:
    """Append the rows as capture does, with WATERMARKs between them."""
    place = 1
    async with LogAppendClient(address) as client, client.append_stream(writes) as stream:
        for fields in _appends(_TABLE, rows):
            future = await stream.send(join_fields(fields), expected_offset=place)
            place += len(fields)
            await future


def _appends(schema: TableSchema, rows: int) -> Iterator[list[bytes]]:
    form = RowForm(schema)
    now_ms = time.time_ns() // 1_000_000
    commit_ts = now_ms << 18
    yield [schema_entry(schema, now_ms).alone()]
    for number, start in enumerate(range(0, rows, PER_TRANSACTION), 1):
        commit_ts += 1
        entries = TransactionEntries(f"0-1-{number}", commit_ts, now_ms, now_ms)
        entries.add_part(form, [(None, _row(at)) for at in range(start, start + PER_TRANSACTION)])
        yield entries.end()
        if number % PER_WATERMARK == 0 or start + PER_TRANSACTION >= rows:
            commit_ts += 1
            yield [watermark_entry(commit_ts, now_ms).alone()]


def _row(number: int) -> list[str | None]:
    return [
        str(number),
        f"Customer number {number}",
        f"customer{number}@example.org",
        str(number % 2),
        f"{number / 4:.2f}",
        f"{1950 + number % 50}-01-{1 + number % 28:02}",
        f"2024-02-26 05:00:00.{number % 1_000_000:06}",
        None,
        f"{number / 8:.3f}".rstrip("0").rstrip("."),
        str(number % 1_000),
    ]


def main() -> None:
    """Run the bench."""
    parser = arguments(__doc__, seconds=0, rounds=3)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the feed (default: %(default)s)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        subject = Subject(Path(folder), given.rows)
        try:
            subject.measure("json-by-key")  # compiles what all arms use
            bench = Bench("pipeline_kafka", list(ARMS), {"rows": subject.rows, "partitions": PARTITIONS})
            bench.run(subject.measure, given.rounds)
        finally:
            subject.close()
    publish([bench], ["rows/s", "first-watermark-s"], given.json)


if __name__ == "__main__":
    main()
