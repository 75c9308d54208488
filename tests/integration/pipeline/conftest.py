"""One Spark session and one server for all tests here; each test has its own feed and folders."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline import jars, session
from headrace.pipeline.java import find_java
from headrace.pipeline.session import SessionSettings, open_session
from headrace.pipeline.tables.job import Summary, run_tables
from tests.integration.pipeline.bringing import Bring, Brought, bring_tables
from tests.integration.pipeline.source_tables import SourceTables
from tests.servers import Feed, ServerProcess, serving

Run = Callable[..., Summary]
_numbers = itertools.count(1)
_ONE_TASK: Final = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.files.minPartitionNum": "1",
}
"""Settings that make one task of a few rows: where it matters that there are several, ``several_tasks`` is asked for."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as commands open it, on two cores; the jars are fetched if they are not there."""
    jars.fetch(jars.jars_folder(), find_java(), say=lambda line: None)
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    made = open_session(
        SessionSettings(
            log_file=log,
            name="tests",
            master="local[2]",
            kafka=True,
            short_lived=True,
            more=_ONE_TASK | {"spark.sql.warehouse.dir": str(log.parent / "warehouse")},
        )
    )
    yield made
    made.stop()


@pytest.fixture(scope="module")
def several_tasks(spark: SparkSession) -> Iterator[None]:
    """Rows are spread over two tasks, as in the session of a command on two cores."""
    for name in _ONE_TASK:
        spark.conf.set(name, "2")
    yield
    for name, value in _ONE_TASK.items():
        spark.conf.set(name, value)


@pytest.fixture
def shared_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a command that is run in this process take the session of all tests, rather than start a Java of its own."""
    monkeypatch.setattr(session, "open_session", lambda settings: spark)
    monkeypatch.setattr(session, "stop_session", lambda opened: None)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A running server; it must not be stopped, and each test keeps to its own feed."""
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def feed(server: ServerProcess) -> Feed:
    """A feed that nobody else uses, its publisher registered."""
    made = Feed(server, f"tables::feed-{next(_numbers)}")
    assert made.register().status_code == 200
    return made


@pytest.fixture
def source(feed: Feed) -> SourceTables:
    """Tables whose changes go to the feed."""
    return SourceTables(feed)


@pytest.fixture
def to(tmp_path: Path) -> str:
    """An empty folder for tables."""
    return str(tmp_path / "tables")


@pytest.fixture
def bring(spark: SparkSession, feed: Feed, to: str) -> Bring:
    """Bring the tables of the feed up to its head without a query of Spark's around the batches."""

    def once(*, to: str = to, entries_max: int = 1_000_000) -> Brought:
        return bring_tables(spark, feed.server, feed.name, to, entries_max=entries_max)

    return once


@pytest.fixture
def run(spark: SparkSession, feed: Feed, to: str) -> Run:
    """Bring the tables of the feed up to its head."""

    def once(*, server: str = "", to: str = to, entries_max: int = 1_000_000) -> Summary:
        return run_tables(
            spark,
            feed=feed.name,
            to=to,
            server=server or feed.server.url,
            once=True,
            entries_max=entries_max,
            retry_s=20,
        )

    return once
