"""A source whose feed soon forgets its beginning, and an agent that serves snapshots of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace.pipeline.tables.job import Summary, run_tables
from headrace.pipeline.tables.reader import iter_rows, published_moment
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.attaching import attach_tables
from headrace.runtime.dsn import parse_dsn
from tests.agents import AgentProcess
from tests.ports import free_port
from tests.servers import ServerProcess, serving
from tests.unit.publisher.outboxes import application
from tests.waiting import wait_until

FEED = "shop"
FAST = ("--retention", "1ms", "--retention-every", "100ms", "--segment-size", "4k")


class Source:
    """An SQLite database whose tables go to the feed, and the job that keeps them."""

    def __init__(self, spark: SparkSession, server: ServerProcess, folder: Path) -> None:
        self.spark = spark
        self.server = server
        self.to = str(folder / "tables")
        self.spool = folder / "spool"
        self.agent: AgentProcess | None = None
        self.path = folder / "app.db"
        self.sql(
            "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)",
            "CREATE TABLE note (id INTEGER PRIMARY KEY)",
        )
        self.sql("CREATE TABLE bare (id INTEGER PRIMARY KEY)")
        tables = ("item", "note", "bare")
        attach_tables(parse_dsn(f"sqlite:///{self.path}"), AttachRequest(feed=FEED, tables=tables))

    def sql(self, *statements: str) -> None:
        with application(self.path) as app:
            for statement in statements:
                app.execute(statement)

    def fill(self, first: int, last: int) -> None:
        """Write rows, some of which replace the first one."""
        for number in range(first, last + 1):
            row = 1 if number % 3 == 0 else number
            self.sql(f"INSERT OR REPLACE INTO item VALUES ({row}, '{'x' * 200}{number}')")
            self.sql(f"INSERT INTO note VALUES ({number})")

    def feed(self) -> dict[str, Any]:
        answer = self.server.http.get(f"/feeds/{FEED}")
        found: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
        return found

    def settle(self) -> None:
        """Wait until all is in the feed."""
        with application(self.path) as app:
            wait_until(
                lambda: (
                    app.execute("SELECT count(*) FROM headrace_outbox WHERE NOT processed").fetchone() == (0,)
                ),
                60,
                what="the agent to have posted everything",
            )

    def forget_beginning(self) -> None:
        """Wait until retention has dropped the feed's beginning."""
        number = 1000

        def is_gone() -> bool:
            nonlocal number
            self.fill(number, number + 3)
            number += 4
            self.settle()
            return int(self.feed().get("oldest-sequence-id", 1)) > 40

        wait_until(is_gone, 90, what="retention to drop the first entries")

    def run(self) -> Summary:
        return run_tables(self.spark, feed=FEED, to=self.to, server=self.server.url, once=True, retry_s=20)

    def check(self) -> None:
        """The tables hold what the source has."""
        shown: dict[str, list[Any]] = {one.table[-1]: [] for one in published_moment(self.to).tables}
        for name, row in iter_rows(self.to):
            shown[name[-1]].append(tuple(row.values()))
        for table in ("item", "note", "bare"):
            with application(self.path) as app:
                wanted = sorted(app.execute(f"SELECT * FROM {table}").fetchall())
            assert sorted(shown[table]) == wanted


@contextmanager
def serving_snapshots(spark: SparkSession, folder: Path, *, grpc: bool = False) -> Iterator[Source]:
    """Run the source's agent, which serves snapshots, and a server that soon forgets."""
    port = free_port()
    allowed = ("--snapshot-allow", f"http://127.0.0.1:{port}")
    with serving(folder / "log", grpc=grpc, args=(*FAST, *allowed)) as server:
        made = Source(spark, server, folder)
        settings = {
            "snapshot_listen": f"127.0.0.1:{port}",
            "snapshot_url": f"http://127.0.0.1:{port}/snapshot",
            "snapshot_dir": str(made.spool),
        }
        with AgentProcess(
            folder / "agent", server.url, f"sqlite:///{made.path}", FEED, **settings
        ) as made.agent:
            yield made
