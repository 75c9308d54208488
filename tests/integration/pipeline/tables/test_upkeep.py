"""Files of a table are put together and old ones removed, and readers of any moment of the last day see what they saw."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from headrace.pipeline.tables.batches import publish_again
from headrace.pipeline.tables.delta_log import newest_version
from headrace.pipeline.tables.job import read_tables
from headrace.pipeline.tables.ledger import Ledger, PublishedFile, PublishedTable, read_published
from headrace.pipeline.tables.reader import iter_rows
from headrace.pipeline.tables.snapshot_files import snapshot_at
from headrace.pipeline.tables.states import LeftFolder
from headrace.pipeline.tables.upkeep import ALARMING, Terms, Upkeep
from tests.integration.pipeline.bringing import Bring
from tests.integration.pipeline.source_tables import ID, SourceTables
from tests.integration.pipeline.tables.delta_tables import DeltaTables
from tests.unit.pipeline.tables.simple.history import INT, schema_of

DAY_S = 86_400
SCHEMA = schema_of({"id": INT, "a": INT})


def aged(path: Path, days: int) -> Path:
    """A file that was written so many days ago, in no version of its table."""
    path.write_bytes(b"")
    os.utime(path, (time.time() - days * DAY_S,) * 2)
    return path


def ago(days: float) -> str:
    """A time so many days ago, as the ledger has it."""
    return (datetime.now(UTC) - timedelta(days=days)).isoformat()


def test_files_are_put_together_and_what_moments_need_stays(
    spark: SparkSession, source: SourceTables, to: str, bring: Bring
) -> None:
    source.schema("t", ID)
    for number in range(3):
        source.put("t", {"id": number})
        source.commit()
    bring(entries_max=2)
    folder = Path(to) / "main.t"
    incarnation = source.feed.server.http.get(source.feed.path).json()["incarnation"]
    before, version = read_tables(spark, to)["main", "t"], newest_version(folder)
    assert version is not None
    assert len(snapshot_at(folder, version).files) > 1
    ledger = Ledger(Path(to), source.feed.name, incarnation)
    upkeep = Upkeep(ledger, Terms(commits_between=1, files_max=1, clean_every_s=0.0))
    # As an older program made it.
    spark.sql(f"ALTER TABLE delta.`{folder}` UNSET TBLPROPERTIES ('delta.enableExpiredLogCleanup')")
    assert upkeep.work(spark)
    properties = {
        row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES delta.`{folder}`").collect()
    }
    assert properties["delta.enableExpiredLogCleanup"] == "false"
    publish_again(ledger)
    moment = read_published(Path(to))
    assert moment is not None
    assert moment.tables[0].version > version
    assert len(snapshot_at(folder, moment.tables[0].version).files) == 1
    assert {row["id"] for _, row in iter_rows(to)} == set(range(3))

    # Nothing is removed before a day of publishes is known; then what no moment of that day needs.
    young, old = aged(folder / "young.parquet", 1), aged(folder / "old.parquet", 4)
    gone = Path(to) / "main.gone"
    gone.mkdir()
    ledger.keep(left=[LeftFolder("main.gone", ago(5))], cleaned={"main.t": ago(1)})
    assert not upkeep.work(spark)
    assert old.exists()
    assert gone.exists()
    ledger.keep(publishes=[ago(1.5)])
    made = newest_version(folder)
    assert not upkeep.work(spark)
    assert (young.exists(), old.exists(), gone.exists()) == (True, False, False)
    assert newest_version(folder) == made
    assert before.count() == 3

    # After a week without the job, what left the tables during that week may still be seen.
    kept = aged(folder / "kept.parquet", 10)
    ledger.keep(publishes=[ago(9)], cleaned={"main.t": ago(1)})
    assert not upkeep.work(spark)
    assert kept.exists()
    ledger.close()


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Iterator[DeltaTables]:
    """A table of one row."""
    made = DeltaTables(spark, tmp_path / "tables")
    made.feed.schema(SCHEMA)
    made.feed.row(SCHEMA, {"id": 1, "a": 1})
    made.take()
    yield made
    made.ledger.close()


def publish(tables: DeltaTables) -> int:
    """Publish the table as it is; returns its version."""
    ledger, version = tables.ledger, tables.version()
    table = PublishedTable(["shop", "t"], tables.folder().name, version)
    ledger.publish(
        PublishedFile(
            feed=ledger.feed,
            incarnation=ledger.incarnation,
            sequence_id=1,
            lsn="",
            published_at=ago(0),
            tables=[table],
        )
    )
    return version


def shown(tables: DeltaTables) -> list[int]:
    """The values that readers see."""
    return sorted(row["a"] for _, row in iter_rows(str(tables.ledger.to)))


def shown_by_spark(tables: DeltaTables) -> list[int]:
    """The values that readers in Spark see, both readers the same."""
    path = str(tables.ledger.to)
    by_delta = read_tables(tables.spark, path)["shop", "t"]
    by_files = tables.spark.read.format("headrace.tables").option("table", '["shop","t"]').load(path)
    values = sorted(row["a"] for row in by_delta.collect())
    assert sorted(row["a"] for row in by_files.collect()) == values
    return values


def test_the_log_of_a_quiet_table_stays_as_long_as_its_moment(tables: DeltaTables) -> None:
    spark, log = tables.spark, tables.folder() / "_delta_log"
    # With each commit a checkpoint, and with each checkpoint Delta looks for commits that are too old.
    spark.sql(f"ALTER TABLE delta.`{tables.folder()}` SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    quiet = publish(tables)
    for path in log.glob("*.*"):
        os.utime(path, (time.time() - 9 * DAY_S,) * 2)
    tables.feed.row(SCHEMA, {"id": 1, "a": 2}, {"id": 1, "a": 1})
    tables.take()
    assert (quiet, tables.version()) == (2, 3)
    assert shown(tables) == [1]  # the batch is merged, and not published yet

    upkeep = Upkeep(tables.ledger, Terms(clean_every_s=0.0))
    tables.ledger.keep(publishes=[ago(1.5)], cleaned={tables.folder().name: ago(1)})
    assert not upkeep.work(spark)
    assert sorted(int(path.stem) for path in log.glob("0*.json")) == [2, 3]
    assert shown_by_spark(tables) == [1]
    assert publish(tables) == 3
    assert shown(tables) == [2]


@pytest.mark.soak(sibling="test_files_are_put_together_and_what_moments_need_stays")
def test_a_table_of_an_older_program_is_given_what_tables_have_now(tables: DeltaTables) -> None:
    named = f"delta.`{tables.folder()}`"
    tables.spark.sql(f"ALTER TABLE {named} UNSET TBLPROPERTIES ('delta.enableExpiredLogCleanup')")
    publish(tables)
    upkeep = Upkeep(tables.ledger, Terms(commits_between=1))
    assert upkeep.work(tables.spark)
    publish(tables)
    assert not upkeep.work(tables.spark)
    properties = {
        row["key"]: row["value"] for row in tables.spark.sql(f"SHOW TBLPROPERTIES {named}").collect()
    }
    assert properties["delta.enableExpiredLogCleanup"] == "false"


def test_files_that_cannot_be_put_together_end_no_batch(tables: DeltaTables) -> None:
    tables.feed.row(SCHEMA, {"id": 2, "a": 2})
    tables.take()
    version = publish(tables)
    broken = Path(snapshot_at(tables.folder(), version).files[0].path)
    data = broken.read_bytes()
    broken.write_bytes(b"this is no Parquet")
    (tables.folder() / f".{broken.name}.crc").unlink()
    upkeep = Upkeep(tables.ledger, Terms(commits_between=0, files_max=1))
    with capture_logs() as logged:
        for _ in range(ALARMING):
            assert not upkeep.work(tables.spark)
    assert [one["log_level"] for one in logged] == ["warning", "warning", "error"]
    assert [one["failures"] for one in logged] == [1, 2, 3]
    assert {one["path"] for one in logged} == {"shop.t"}
    assert tables.version() == version
    broken.write_bytes(data)
    assert upkeep.work(tables.spark)
    assert shown(tables) == [1, 2]
