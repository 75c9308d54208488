"""Schema entries: what is read, what is refused, and how a table follows a newer version."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import ValueUnfit
from headrace.pipeline.tables.rows import spark_columns
from headrace.pipeline.tables.schemas import (
    Column,
    Evolution,
    PlacedSchema,
    SchemaHistory,
    TableSchema,
    evolution,
    read_schema,
)


def document(*names: str, **members: Any) -> bytes:
    columns = [{"name": name, "type": "int64", "source-type": "INTEGER", "nullable": True} for name in names]
    return json.dumps(
        {"database": "main", "table": "t", "version": 1, "columns": columns, "key": ["id"], **members}
    ).encode()


def schema(*columns: Column | str, version: int = 1) -> TableSchema:
    made = [column if isinstance(column, Column) else Column(column, "int64") for column in columns]
    return TableSchema("main", "t", version, tuple(made))


def test_a_schema_entry_is_read() -> None:
    found = read_schema(document("id", "n", comment="newer"), feed="f::1", sequence_id=3)
    assert found.name == ("main", "t")
    assert found.columns[1] == Column("n", "int64", nullable=True, source_type="INTEGER")
    assert found.key == ("id",)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"{}", "can't be read"),
        (document("id", "ID"), "differ in case alone"),
        (document("id", 'a"b'), "may not be named"),
        (document("id", "a\\b"), "may not be named"),
        (document("_headrace_key"), "may not be named"),
        (document("id", ""), "may not be named"),
    ],
    ids=["empty", "case", "quote", "backslash", "ours", "nameless"],
)
def test_what_no_table_can_have_is_refused(value: bytes, problem: str) -> None:
    with pytest.raises(ValueUnfit, match=f"feed f::1, sequence id 3.*{problem}"):
        read_schema(value, feed="f::1", sequence_id=3)


def test_the_history_knows_each_once_and_in_feed_order() -> None:
    history = SchemaHistory()
    first, second = PlacedSchema(1, schema("a")), PlacedSchema(9, schema("a", "b", version=2))
    assert history.add([second])
    assert history.add([first, second])
    assert not history.add([first, second])
    assert history.of(("main", "t")) == [first, second]
    assert history.of(("main", "t"), 8) == [first]
    assert history.of(("main", "other")) == []
    assert history.tables() == [("main", "t")]


def changed(actual: dict[str, str], *versions: TableSchema) -> Evolution:
    return evolution(actual, spark_columns(versions[-1]), versions)


def test_columns_come_and_go() -> None:
    assert not changed({"a": "bigint"}, schema("a"))
    assert changed({"a": "bigint", "b": "bigint"}, schema("a", Column("c", "json"))) == Evolution(
        drops=("b",), adds=(Column("c", "json"),)
    )


def test_a_renamed_column_keeps_its_values() -> None:
    versions = [
        schema("a", "b"),
        schema("a", Column("c", "int64", renamed_from="b"), version=2),
        schema("a", Column("d", "int64", renamed_from="c"), version=3),
    ]
    assert changed({"a": "bigint", "b": "bigint"}, *versions[:2]).renames == (("b", "c"),)
    assert changed({"a": "bigint", "c": "bigint"}, *versions).renames == (("c", "d"),)
    # Half done when the job died: the rest is done, nothing twice.
    assert not changed({"a": "bigint", "d": "bigint"}, *versions)


def test_a_type_that_changes_can_not_be_followed() -> None:
    with pytest.raises(
        ValueUnfit, match=r"table main\.t, column a: schema version 2 makes it string"
    ) as caught:
        changed({"a": "bigint"}, schema(Column("a", "string"), version=2))
    assert "copy the table again" in caught.value.advice


def test_a_type_that_changes_makes_the_column_anew_where_all_rows_come_again() -> None:
    versions = [schema(Column("a", "string"), "b", version=2)]
    change = evolution({"a": "bigint", "c": "bigint"}, spark_columns(versions[-1]), versions, recopied=True)
    assert (change.drops, [one.name for one in change.adds]) == (("a", "c"), ["a", "b"])
    # Dropped when the job died: only added then.
    assert evolution({"b": "bigint"}, spark_columns(versions[-1]), versions, recopied=True) == Evolution(
        adds=(Column("a", "string"),)
    )
