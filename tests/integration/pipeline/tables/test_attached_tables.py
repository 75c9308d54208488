"""Attached tables are shown whole or not at all, and one that can't be followed stands still alone, until it is copied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace.errors import StaleTable, TableNotPublished
from headrace.pipeline.connection import Endpoint
from headrace.pipeline.tables.ledger import read_published
from headrace.pipeline.tables.reader import iter_rows
from headrace.pipeline.tables.standing import TableStanding, read_standing
from tests.integration.pipeline.bringing import Bring
from tests.integration.pipeline.source.queries import failing
from tests.integration.pipeline.source_tables import ID, SourceTables, column


def shown(to: str) -> dict[str, dict[Any, Any]]:
    """The published rows that are not of stopped tables, by table and id."""
    found: dict[str, dict[Any, Any]] = {}
    for table, row in iter_rows(to):
        found.setdefault(table[-1], {})[row["id"]] = row
    return found


def standing(source: SourceTables, to: str) -> dict[str, TableStanding]:
    return {one.table[-1]: one for one in read_standing(Path(to), Endpoint(source.feed.server.url)).tables}


def names(to: str) -> list[str]:
    found = read_published(Path(to))
    assert found is not None
    return [one.table[-1] for one in found.tables]


def copy(source: SourceTables, table: str) -> None:
    """Copy what there is, as the agent does: begin and end in transactions of their own."""
    source.control("copy-begin", table)
    source.commit()
    for row in list(source.rows[table].values()):
        source.put(table, row, copy=True)
    source.control("copy-end", table)
    source.commit()


def test_a_table_is_shown_once_its_copy_has_ended(
    spark: SparkSession, source: SourceTables, to: str, bring: Bring
) -> None:
    source.schema("good", ID)
    source.put("good", {"id": 1})
    source.schema("large", ID, column("n", "int64"))
    source.control("copy-begin", "large")
    source.commit()
    source.put("large", {"id": 0, "n": 0}, copy=True)
    source.commit()
    bring()
    assert names(to) == ["good"]
    assert standing(source, to)["large"].state == "copying"
    load = spark.read.format("headrace.tables").option("path", to).option("table", "main.large").load
    assert isinstance(failing(load), TableNotPublished)
    source.put("large", {"id": 1, "n": 1}, copy=True)
    source.control("copy-end", "large")
    source.commit()
    bring()
    assert shown(to) == source.rows
    assert standing(source, to)["large"].state == "running"

    source.control("copy-begin", "large")  # an operator's, of what is whole already
    source.commit()
    bring()
    assert names(to) == ["good", "large"]
    source.truncate("large")
    source.control("copy-begin", "large")
    source.commit()
    bring()
    assert names(to) == ["good"]


def test_columns_that_get_another_type_or_name_come_with_the_copy(
    source: SourceTables, to: str, bring: Bring
) -> None:
    source.schema("t", ID, column("price", "decimal(10,2)"), column("code", "int64"), column("old", "string"))
    source.put("t", {"id": 1, "price": "1.25", "code": 7, "old": "a"})
    source.put("t", {"id": 2, "price": "2.50", "code": 8, "old": "b"})
    source.commit()
    bring()
    # What the application wrote before the agent saw that the columns are others: it comes once more.
    source.put("t", {"id": 3, "price": "3.75", "code": {"text": "x3"}, "old": "c"})
    source.put("t", {"id": 4, "price": "9.00", "code": 4, "old": "d"})
    source.delete("t", 4)
    source.delete("t", 1)
    source.commit()
    source.schema(
        "t", ID, column("price", "decimal(12,2)"), column("code", "string"), column("new", "string")
    )
    source.control("copy-begin", "t")
    source.commit()
    assert not bring().stopped
    assert names(to) == []
    source.rows["t"] = {
        2: {"id": 2, "price": "2.50", "code": "8", "new": "b"},
        3: {"id": 3, "price": "3.75", "code": "x3", "new": "c"},
    }
    for row in list(source.rows["t"].values()):
        source.put("t", row, copy=True)
    source.control("copy-end", "t")
    source.put("t", {"id": 5, "price": "1234567890.12", "code": "y", "new": None})
    source.commit()
    assert not bring().stopped
    found = shown(to)["t"]
    assert {key: row | {"price": str(row["price"])} for key, row in found.items()} == source.rows["t"]


def test_a_table_that_can_not_be_followed_stands_still_alone_until_it_is_copied(
    spark: SparkSession, source: SourceTables, to: str, bring: Bring
) -> None:
    source.schema("good", ID)
    source.schema("t", ID, column("n", "int64"))
    source.put("t", {"id": 1, "n": 1})
    source.put("t", {"id": 2, "n": 2})
    first = source.commit()
    bring()
    assert names(to) == ["good", "t"]  # an empty table, too
    source.put("good", {"id": 1})
    source.put("t", {"id": 3, "n": {"text": "no number"}})
    last = source.commit()
    assert f"sequence id {last}, table main.t, column n: " in bring().stopped["t"]
    assert shown(to) == {"good": source.rows["good"]}
    old = {
        row["id"]: row["n"]
        for row in spark.read.format("headrace.tables")
        .option("path", to)
        .option("table", "main.t")
        .option("stopped", "accept")
        .load()
        .collect()
    }
    assert old == {1: 1, 2: 2}
    load = spark.read.format("headrace.tables").option("path", to).option("table", "main.t").load
    assert isinstance(failing(load), StaleTable)
    stopped = standing(source, to)["t"]
    assert (stopped.state, stopped.code, stopped.sequence_id) == ("stopped", "value-unfit", first)
    assert stopped.next == "headrace publisher copy DSN --table main.t"

    source.delete("t", 2)  # while it stands still
    source.put("t", {"id": 3, "n": 3})
    source.commit()
    copy(source, "t")
    assert not bring().stopped
    assert shown(to) == source.rows
    assert standing(source, to)["t"].state == "running"


def test_what_no_copy_follows_is_a_stop_too(source: SourceTables, to: str, bring: Bring) -> None:
    source.schema("good", ID)
    source.schema("other type", ID, column("n", "int64"))
    source.put("other type", {"id": 1, "n": 1})
    source.commit()
    bring()
    source.schema("other type", ID, column("n", "string"))
    source.rows["no schema"] = {}
    source.put("no schema", {"id": 1})
    source.put("good", {"id": 1})
    source.commit()
    found = bring().stopped
    assert "schema version 2 makes it string" in found["other type"]
    assert "no schema entry of this table" in found["no schema"]
    assert shown(to) == {"good": source.rows["good"]}
