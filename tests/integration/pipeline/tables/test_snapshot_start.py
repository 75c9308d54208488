"""Tables of a feed whose beginning is gone begin with its publisher's snapshot, or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.errors import SequenceNotAvailable
from headrace.pipeline.connection import Endpoint
from headrace.pipeline.tables import hydrating
from headrace.pipeline.tables.job import Summary, read_tables, run_tables
from headrace.pipeline.tables.ledger import read_published
from headrace.pipeline.tables.merge import apply_batch
from headrace.pipeline.tables.standing import read_standing
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


class Killed(BaseException):
    """The process is gone."""


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
        frames = read_tables(self.spark, self.to)
        for table in ("item", "note", "bare"):
            with application(self.path) as app:
                wanted = sorted(app.execute(f"SELECT * FROM {table}").fetchall())
            assert sorted(tuple(row) for row in frames["main", table].collect()) == wanted


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Iterator[Source]:
    """A source with an agent that serves snapshots, and a server that soon forgets."""
    port = free_port()
    allowed = ("--snapshot-allow", f"http://127.0.0.1:{port}")
    with serving(tmp_path / "log", args=(*FAST, *allowed)) as server:
        made = Source(spark, server, tmp_path)
        settings = {
            "snapshot_listen": f"127.0.0.1:{port}",
            "snapshot_url": f"http://127.0.0.1:{port}/snapshot",
            "snapshot_dir": str(tmp_path / "spool"),
        }
        with AgentProcess(
            tmp_path / "agent", server.url, f"sqlite:///{made.path}", FEED, **settings
        ) as made.agent:
            yield made


def test_tables_begin_with_the_snapshot_where_the_feed_does_not_reach_back(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.fill(1, 20)
    source.settle()
    source.forget_beginning()

    def first_only(spark: SparkSession, path: Path, batch: Any) -> None:
        apply_batch(spark, path, batch)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(hydrating, "apply_batch", first_only)
        with pytest.raises(Killed):
            source.run()
    assert read_published(Path(source.to)) is None
    # What the first attempt brought, and is gone since, must not stay: the next one gets another snapshot.
    assert source.agent is not None
    source.agent.kill()
    shutil.rmtree(source.spool)
    source.agent.start()
    source.sql("DELETE FROM item", "DELETE FROM note WHERE id < 9")
    source.settle()
    summary = source.run()
    assert summary.started_from == "snapshot"
    source.check()
    standing = read_standing(Path(source.to), Endpoint(source.server.url))
    assert {one.started_from for one in standing.tables} == {"snapshot"}
    assert not (Path(source.to) / "_headrace" / "snapshot").exists()
    assert source.feed()["hydrations"] == []
    source.sql("DELETE FROM item WHERE id = 1", "CREATE TABLE late (id INTEGER PRIMARY KEY)")
    source.fill(5000, 5005)
    source.settle()
    assert source.run().batches
    source.check()


def test_without_anything_that_reaches_back_the_start_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with serving(tmp_path / "log", args=FAST) as server:
        made = Source(spark, server, tmp_path)
        with AgentProcess(tmp_path / "agent", server.url, f"sqlite:///{made.path}", FEED):
            made.fill(1, 20)
            made.settle()
            made.forget_beginning()
        with pytest.raises(SequenceNotAvailable, match=r"begins with entry \d+ now") as refused:
            made.run()
        assert "no-snapshot" in refused.value.detail
        assert "--archive" in refused.value.advice
        assert read_published(Path(made.to)) is None
