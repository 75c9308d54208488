"""Rows get the types that the feed's schema names, exactly; what doesn't fit is refused by name."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import ValueUnfit
from headrace.pipeline.tables.folding import CHANGE_SCHEMA
from headrace.pipeline.tables.rows import (
    GONE,
    KEY,
    SEQUENCE_ID,
    spark_columns,
    typed_batches,
    typed_ddl,
    typed_schema,
)
from headrace.pipeline.tables.schemas import Column, PlacedSchema, TableSchema

NAME = ("main", "things")


def schema(*columns: Column, version: int = 1) -> TableSchema:
    return TableSchema("main", "things", version, columns)


def placed(table: TableSchema, at: int = 0) -> PlacedSchema:
    return PlacedSchema(sequence_id=at, schema=table)


def changes(*rows: tuple[int, str, bytes]) -> pa.RecordBatch:
    """Net changes as (sequence id, op, value); the key is the sequence id's text."""
    return pa.RecordBatch.from_pylist(
        [
            {"key": str(sequence_id).encode(), "sequence_id": sequence_id, "op": op, "value": value}
            for sequence_id, op, value in rows
        ],
        schema=CHANGE_SCHEMA,
    )


def typed(versions: list[PlacedSchema], *rows: tuple[int, str, bytes]) -> list[dict[str, Any]]:
    (batch,) = typed_batches(iter([changes(*rows)]), versions, feed="f::1", table=NAME)
    batch.validate(full=True)
    assert batch.schema.equals(typed_schema(versions[-1].schema))
    return batch.to_pylist()  # type: ignore[no-any-return]  # pyarrow ships no types


def one(column: Column, value: Any) -> Any:
    """What a value of JSON becomes in a column."""
    (row,) = typed([placed(schema(column))], (1, "put", json.dumps({column.name: value}).encode()))
    return row[column.name]


@pytest.mark.parametrize(
    ("kind", "given_", "wanted"),
    [
        ("int64", -(1 << 63), -(1 << 63)),
        ("int64", (1 << 63) - 1, (1 << 63) - 1),
        ("float64", 1.5, 1.5),
        ("float64", 3, 3.0),
        ("float64", "-Infinity", -math.inf),
        ("string", "äöü ☃\n", "äöü ☃\n"),
        ("binary", base64.b64encode(b"\x00\xff").decode(), b"\x00\xff"),
        ("boolean", True, True),
        ("decimal(10,2)", "12345678.90", Decimal("12345678.90")),
        ("decimal(10,2)", 1.5, Decimal("1.50")),
        ("decimal(38,10)", "-" + "9" * 28 + ".0123456789", Decimal("-" + "9" * 28 + ".0123456789")),
        ("decimal(5,2)", "1.5000", Decimal("1.50")),
        ("date", "2024-02-29", date(2024, 2, 29)),
        ("date", "0001-01-01", date(1, 1, 1)),
        ("time", "23:59:59.5", "23:59:59.500000"),
        (
            "timestamp",
            "2024-02-29T12:00:00.123456+02:00",
            datetime(2024, 2, 29, 10, 0, 0, 123456, tzinfo=UTC),
        ),
        ("timestamp", "1901-01-01T00:00:00Z", datetime(1901, 1, 1, tzinfo=UTC)),
        ("timestamp-ntz", "2024-02-29T12:00:00.123", datetime.fromisoformat("2024-02-29T12:00:00.123")),
        ("json", {"a": [1.10, None]}, '{"a": [1.1, null]}'),
        ("json", "text", '"text"'),
    ],
)
def test_values_get_their_exact_type(kind: str, given_: Any, wanted: Any) -> None:
    assert one(Column("c", kind), given_) == wanted
    assert one(Column("c", kind), None) is None


def test_nan_is_a_number_that_is_none() -> None:
    assert math.isnan(one(Column("c", "float64"), "NaN"))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int64", 1 << 63),
        ("int64", 1.0),
        ("int64", "1"),
        ("int64", True),
        ("int64", {"text": "abc"}),
        ("float64", "nan"),
        ("string", 1),
        ("binary", "no base64!"),
        ("boolean", 1),
        ("decimal(5,2)", "1.005"),
        ("decimal(5,2)", "1000"),
        ("decimal(5,2)", "NaN"),
        ("date", "2023-02-29"),
        ("date", "Infinity"),
        ("timestamp", "2024-01-01T00:00:00"),
        ("timestamp-ntz", "2024-01-01T00:00:00Z"),
        ("time", "25:00:00"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(kind: str, value: Any) -> None:
    with pytest.raises(ValueUnfit) as caught:
        one(Column("c", kind), value)
    assert "feed f::1, sequence id 1, table main.things, column c: " in caught.value.detail
    assert caught.value.members == {
        "change-feed-id": "f::1",
        "sequence-id": 1,
        "table": ["main", "things"],
        "column": "c",
    }


@pytest.mark.parametrize(
    ("value", "column"),
    [
        (b"{}", "id"),
        (b'{"id": null}', "id"),
        (b'{"id": 1, "more": 1}', "more"),
        (b"[1]", None),
        (b"\xff", None),
        (b'{"id": 1', None),
    ],
)
def test_rows_that_are_none_are_refused(value: bytes, column: str | None) -> None:
    with pytest.raises(ValueUnfit, match="sequence id 7") as caught:
        typed([placed(schema(Column("id", "int64", nullable=False)))], (7, "put", value))
    assert caught.value.members.get("column") == column


def test_null_in_a_json_column_that_has_none_is_refused() -> None:
    with pytest.raises(ValueUnfit, match="not nullable"):
        one(Column("c", "json", nullable=False), None)


def test_a_lone_surrogate_is_no_text() -> None:
    with pytest.raises(ValueUnfit):
        typed([placed(schema(Column("c", "string")))], (1, "put", b'{"c": "\\ud800"}'))


def test_deletes_need_no_value() -> None:
    versions = [placed(schema(Column("id", "int64", nullable=False)))]
    assert typed(versions, (3, "delete", b"not even JSON")) == [
        {KEY: b"3", SEQUENCE_ID: 3, GONE: True, "id": None}
    ]


def test_each_row_is_read_by_the_schema_before_it() -> None:
    versions = [
        placed(schema(Column("a", "int64"), Column("b", "string"), Column("c", "int64")), 1),
        placed(
            schema(
                Column("a", "int64"),
                Column("bee", "string", renamed_from="b"),
                Column("d", "json"),
                version=2,
            ),
            5,
        ),
    ]
    rows = typed(
        versions,
        (4, "put", b'{"a": 1, "b": "old", "c": 3}'),
        (6, "put", b'{"a": 2, "bee": "new", "d": {}}'),
    )
    assert [[row[name] for name in ("a", "bee", "d")] for row in rows] == [[1, "old", None], [2, "new", "{}"]]
    with pytest.raises(ValueUnfit, match="no schema entry of this table stands before this row"):
        typed(versions, (1, "put", b"{}"))
    with pytest.raises(ValueUnfit, match="unknown field `b`"):
        typed(versions, (6, "put", b'{"b": "x"}'))


def test_an_unknown_type_is_refused() -> None:
    for kind in ("hstore", "decimal(39,2)", "decimal(2,3)"):
        with pytest.raises(ValueUnfit, match="no type that this version knows"):
            spark_columns(schema(Column("c", kind)))


def test_odd_names_are_quoted() -> None:
    table = schema(Column("a `b`", "int64"), Column("c,d", "decimal(5,2)"))
    assert typed_ddl(table).endswith("`a ``b``` bigint, `c,d` decimal(5,2)")
