"""``format("headrace.tables")`` reads exactly what is published, whatever the job does meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import VersionGone
from headrace.pipeline.failures import error_of
from headrace.pipeline.tables.job import read_tables
from headrace.pipeline.tables.ledger import newest_version
from headrace.pipeline.tables.snapshot_files import snapshot_at
from tests.integration.pipeline.bringing import Bring
from tests.integration.pipeline.source_tables import ID, SourceTables, column


def read(spark: SparkSession, to: str, table: str, **options: str) -> DataFrame:
    return spark.read.format("headrace.tables").options(table=table, **options).load(to)


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_the_moment_is_read_whatever_comes_later(
    spark: SparkSession, source: SourceTables, to: str, bring: Bring
) -> None:
    source.schema("t", ID, column("gone", "string"), column("n", "decimal(10,2)"), column("at", "timestamp"))
    for number in range(30):
        source.put("t", {"id": number, "gone": "x", "n": "1.50", "at": "2024-02-29T12:00:00.5Z"})
    source.commit()
    bring()
    old = read(spark, to, "main.t")
    before = rows(old)
    assert len(before) == 30
    assert before == rows(read_tables(spark, to)["main", "t"])
    spark.sql(
        f"ALTER TABLE delta.`{Path(to) / 'main.t'}` SET TBLPROPERTIES ('delta.checkpointInterval' = '2')"
    )
    for number in range(8):
        source.put("t", {"id": number, "gone": None, "n": None, "at": None})
        source.delete("t", 20 + number)
    source.commit()
    bring()
    assert list(Path(to).glob("main.t/_delta_log/*.checkpoint*.parquet")), "it is read by way of a checkpoint"
    source.schema("t", ID, column("number", "decimal(10,2)", was="n"), column("odd, name", "json"))
    source.put("t", {"id": 5, "number": "7", "odd, name": {"a": 1}})
    source.commit()
    bring()
    new = read(spark, to, "main.t")
    assert new.columns == ["id", "number", "odd, name"]
    found = rows(new)
    assert found == rows(read_tables(spark, to)["main", "t"])
    assert len(found) == 22
    assert new.where("number = 7").count() == 1
    named = spark.read.format("headrace.tables").schema("`odd, name` STRING, id BIGINT")
    assert named.options(path=to, table="main.t").load().columns == ["odd, name", "id"]
    # The frame that was loaded first still is of its moment.
    assert rows(old) == before
    # A plain reader of Delta may be further: what is not published is not read.
    table = DeltaTable.forPath(spark, str(Path(to) / "main.t"))
    table.delete("id = 5")
    # Delta refuses versions that are older than its files are kept for; what is published has all its files.
    keeps = "SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours')"
    spark.sql(f"ALTER TABLE delta.`{Path(to) / 'main.t'}` {keeps}")
    assert rows(read_tables(spark, to)["main", "t"]) == rows(read(spark, to, '["main", "t"]')) == found


def test_what_can_not_be_read_is_said(
    spark: SparkSession, source: SourceTables, to: str, bring: Bring
) -> None:
    source.object("put", "k", {"a": 1})
    source.commit()
    for options, problem in (
        ({"table": "main.t"}, "has no published tables"),
        ({"table": "[1]"}, "has no published tables"),
        ({"version": "3"}, "has no option 'version'"),
    ):
        with pytest.raises(PySparkException) as caught:
            spark.read.format("headrace.tables").options(**options).load(to)
        assert problem in error_of(caught.value).detail
    bring()
    assert [row["value"] for row in spark.read.format("headrace.tables").load(to).collect()] == ['{"a":1}']
    with pytest.raises(PySparkException) as caught:
        read(spark, to, "main.t")
    assert (
        "no table main.t is published; there are: (entries without a table)" in error_of(caught.value).detail
    )
    folder = Path(to) / "entries"
    version = newest_version(folder)
    assert version is not None
    with pytest.raises(VersionGone, match=f"version {version + 1}"):
        snapshot_at(folder, version + 1)
    for file in snapshot_at(folder, version).files:
        Path(file.path).unlink()
    with pytest.raises(PySparkException) as caught:
        spark.read.format("headrace.tables").load(to).collect()
    assert "is not there any more" in error_of(caught.value).detail
