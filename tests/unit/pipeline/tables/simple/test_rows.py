"""Messages of rows become typed columns, exactly, or an error that names where."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from headrace.errors import ValueUnfit
from headrace.pipeline.tables.simple.dates import text_of
from headrace.pipeline.tables.simple.rows import typed_batches, typed_ddl, typed_schema
from headrace.pipeline.tables.simple.spark_types import spark_kind
from headrace.pipeline.tables.simple.steps import Reading, TableColumn
from headrace.simple.schema import DataType, TableSchema
from headrace.simple.temporal import IrregularDate
from headrace.simple.textual import INVALID_LABEL
from tests.unit.pipeline.tables.simple.history import INT, POINT, WORD, Feed, labels, schema_of, versioned
from tests.unit.pipeline.tables.simple.steps_folded import numbered

OWN = ("_headrace_sequence_id", "_headrace_commit_ts", "_headrace_gone")


def reading_of(*schemas: TableSchema, kinds: dict[str, str] | None = None) -> Reading:
    columns = [
        TableColumn(column.name, (kinds or {}).get(column.name, kind))
        for column in schemas[-1].columns
        if (kind := spark_kind(column.data_type)) is not None
    ]
    return Reading("shop", schemas, tuple(columns), schemas[-1].handle_key)


def typed(reading: Reading, feed: Feed) -> list[dict[str, Any]]:
    wanted = [one for one in feed.entries if not one.change.control]
    batch = pa.record_batch(
        {
            "sequence_id": pa.array([at for at, _ in wanted], pa.int64()),
            "value": pa.array([change.value for _, change in wanted], pa.binary()),
        }
    )
    # Workers get it pickled.
    carried: Reading = pickle.loads(pickle.dumps(reading))
    (out,) = typed_batches(iter([batch]), carried)
    assert out.schema == typed_schema(reading)
    return sorted(numbered(out), key=lambda row: (row[OWN[0]], not row[OWN[2]]))


def plain(name: str, **members: Any) -> DataType:
    return DataType(name, "binary", "binary", **members)


VALUES: list[tuple[DataType, str, Any, Any]] = [
    (plain("tinyint"), "tinyint", -128, -128),
    (plain("tinyint", unsigned=True), "smallint", 255, 255),
    (plain("smallint", unsigned=True), "int", 65_535, 65_535),
    (plain("mediumint", unsigned=True), "int", 16_777_215, 16_777_215),
    (plain("int", unsigned=True), "bigint", 4_294_967_295, 4_294_967_295),
    (plain("bigint"), "bigint", -(1 << 63), -(1 << 63)),
    (plain("bigint", unsigned=True), "decimal(20,0)", (1 << 64) - 1, Decimal((1 << 64) - 1)),
    (plain("year", unsigned=True), "int", 2155, 2155),
    (plain("bit", length=63, unsigned=True), "bigint", (1 << 63) - 1, (1 << 63) - 1),
    (plain("bit", length=64, unsigned=True), "decimal(20,0)", (1 << 64) - 1, Decimal((1 << 64) - 1)),
    (plain("float"), "float", 0.10000000149011612, 0.10000000149011612),
    (plain("double"), "double", 1e-300, 1e-300),
    (plain("decimal", length=38, decimal=9), "decimal(38,9)", Decimal("-1.5"), Decimal("-1.500000000")),
    (plain("decimal", length=65, decimal=2), "string", Decimal("1.5"), "1.50"),
    (plain("date"), "date", date(1970, 1, 3), 2),
    (plain("date"), "date", IrregularDate("0000-00-00"), -10_000_000),
    (plain("datetime", decimal=6), "timestamp_ntz", datetime(1970, 1, 1, 0, 0, 1, 5), 1_000_005),  # noqa: DTZ001  # of a column without a zone
    (plain("datetime"), "timestamp_ntz", IrregularDate("2021-02-31 00:00:01"), -791_352_201_599_000_000),
    (plain("timestamp"), "timestamp", datetime(1970, 1, 1, 9, tzinfo=ZoneInfo("Asia/Tokyo")), 0),
    (plain("timestamp"), "timestamp", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1_000_000),
    (plain("timestamp"), "timestamp", IrregularDate("0000-00-00 00:00:00", "UTC"), -864_000_000_000_000_000),
    (plain("time", decimal=3), "string", timedelta(hours=-838, seconds=-1, milliseconds=-500), "-838:00:01.5"),
    (plain("time"), "string", timedelta(0), "00:00:00"),
    (WORD, "string", "né\0", "né\0"),
    (plain("blob"), "binary", b"\x00\xff", b"\x00\xff"),
    (plain("json"), "string", '{"a": 1.50}', '{"a": 1.50}'),
    (labels("a", "b"), "string", "b", "b"),
    (labels("a", "b"), "string", INVALID_LABEL, ""),
    (DataType("set", "utf8mb4", "", 0, 0, ("x", "yy", "z")), "string", frozenset({"z", "x"}), "x,z"),
    (plain("vector", length=2), "string", (1.0, 2.5), "[1,2.5]"),
]  # fmt: skip


@pytest.mark.parametrize(("data_type", "kind", "value", "held"), VALUES)
def test_a_value_of_each_type(data_type: DataType, kind: str, value: Any, held: Any) -> None:
    schema, feed = schema_of({"id": INT, "c": data_type}), Feed()
    feed.row(schema, {"id": 1, "c": value})
    feed.row(schema, {"id": 2, "c": None})
    reading = reading_of(schema)
    assert spark_kind(data_type) == kind
    assert f"`c` {kind}" in typed_ddl(reading)
    assert [row["c"] for row in typed(reading, feed)] == [held, None]
    if isinstance(value, IrregularDate):
        assert text_of(held, kind) == value.text


@pytest.mark.parametrize(
    ("data_type", "value", "kind", "held"),
    [
        (INT, 5, "bigint", 5),
        (INT, 5, "decimal(20,0)", Decimal(5)),
        (INT, 5, "decimal(12,2)", Decimal("5.00")),
        (INT, 5, "double", 5.0),
        (plain("float"), 0.5, "double", 0.5),
        (plain("decimal", length=5, decimal=1), Decimal("1.5"), "decimal(9,3)", Decimal("1.500")),
        (plain("date"), date(1970, 1, 2), "timestamp_ntz", 86_400_000_000),
        (plain("date"), IrregularDate("0000-00-00"), "timestamp_ntz", -864_000_000_000_000_000),
    ],
)
def test_a_column_may_be_wider_than_its_values(data_type: DataType, value: Any, kind: str, held: Any) -> None:
    schema, feed = schema_of({"id": INT, "c": data_type}), Feed()
    feed.row(schema, {"id": 1, "c": value})
    (row,) = typed(reading_of(schema, kinds={"c": kind}), feed)
    assert row["c"] == held


def test_where_a_row_comes_from() -> None:
    schema, feed = schema_of({"id": INT, "c": WORD}), Feed()
    feed.row(schema, {"id": 1, "c": "x"})
    feed.row(schema, {"id": 1, "c": "y"}, {"id": 1, "c": "x"})
    at = feed.commit_ts
    feed.row(schema, {"id": 2, "c": "y"}, {"id": 1, "c": "y"})
    feed.row(schema, None, {"id": 2, "c": "y"})
    found = [tuple(row.values()) for row in typed(reading_of(schema), feed)]
    second = 1000 << 18
    assert found == [
        (1, at - second, False, 1, "x"),
        (2, at, False, 1, "y"),
        (3, at + second, True, 1, None),
        (3, at + second, False, 2, "y"),
        (4, at + 2 * second, True, 2, None),
    ]


def test_rows_of_several_versions() -> None:
    first = schema_of({"id": INT, "c": labels("a", "b")})
    second = schema_of({"c": labels("b", "a"), "ID": INT}, version=2, key=("ID",))
    feed = Feed()
    feed.row(first, {"id": 1, "c": "b"})
    feed.row(second, {"ID": 2, "c": "b"})
    found = typed(Reading("shop", (first, second), reading_of(first).columns, ("id",)), feed)
    assert [(row["id"], row["c"]) for row in found] == [(1, "b"), (2, "b")]


def test_a_column_that_messages_leave_out_is_null() -> None:
    schema, feed = schema_of({"id": INT, "c": WORD, "g": POINT}, required=("c",)), Feed()
    feed.row(schema, {"id": 1})
    assert [row["c"] for row in typed(reading_of(schema), feed)] == [None]


def test_no_row_at_all() -> None:
    assert typed(reading_of(schema_of({"id": INT, "c": WORD})), Feed()) == []


GOOD = b'{"version":1,"database":"shop","table":"t","tableID":7,"type":"INSERT","commitTs":5,"buildTs":1,"schemaVersion":1,'
BAD: list[tuple[bytes, str, str]] = [
    (GOOD + b'"data":{"id":"x","c":"y"}}', "column id", "an integer"),
    (GOOD + b'"data":{"id":" 1","c":"y"}}', "column id", "an integer"),
    (GOOD + b'"data":{"id":"1_0","c":"y"}}', "column id", "an integer"),
    (GOOD + b'"data":{"id":"2147483648","c":"y"}}', "column id", "an integer"),
    (GOOD + b'"data":{"id":"1","c":null}}', "column c", "text"),
    (GOOD + b'"data":{"id":"1","c":5}}', "column c", "a string"),
    (GOOD + b'"data":{"c":"y"}}', "column id", "no value"),
    (GOOD + b'"data":{"id":null,"c":"y"}}', "column id", "an integer"),
    (GOOD + b'"data":{"id":"1","c":"y","z":"1"}}', "column z", "unknown"),
    (GOOD + b'"data":{"id":"1","c":"y","g":""}}', "column g", "geometry"),
    (GOOD + b'"old":{"id":"1","c":"y"}}', "table shop.t", "data must be"),
    (GOOD.replace(b"INSERT", b"DELETE") + b'"data":{"id":"1","c":"y"}}', "table shop.t", "data must be"),
    (GOOD.replace(b"INSERT", b"DELETE") + b'"old":{"c":"y"}}', "column id", "no value"),
    (GOOD.replace(b'schemaVersion":1', b'schemaVersion":9') + b'"data":{"id":"1","c":"y"}}', "table shop.t", "version 9"),
    (GOOD.replace(b'"version":1', b'"version":2') + b'"data":{"id":"1","c":"y"}}', "table shop.t", "version"),
    (GOOD + b'"handleKeyOnly":true,"data":{"id":"1","c":"y"}}', "table shop.t", "only its key"),
    (GOOD.replace(b'commitTs":5', b'commitTs":9223372036854775808') + b'"data":{"id":"1"}}', "table shop.t", "above"),
    (b'{"version":1,"type":"WATERMARK","commitTs":5,"buildTs":1}', "table shop.t", "no row"),
    (b"{", "table shop.t", "whole JSON object"),
    (b"\xff", "table shop.t", "JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "place", "problem"), BAD)
def test_what_does_not_fit_is_refused(message: bytes, place: str, problem: str) -> None:
    schema, feed = schema_of({"id": INT, "c": WORD, "g": POINT}, required=("c",)), Feed()
    feed.row(schema, {"id": 1, "c": "good"})
    feed.raw(schema, message)
    with pytest.raises(ValueUnfit) as refused:
        typed(reading_of(schema), feed)
    assert refused.value.detail.startswith("feed shop, sequence id 2, table shop.t")
    assert place in refused.value.detail
    assert problem in refused.value.detail
    assert refused.value.members["sequence-id"] == 2


def test_names_of_any_kind() -> None:
    names = ['a"b', "back\\slash", "tick`", "sp ace", "ü.x"]
    schema, feed = schema_of({"id": INT, **dict.fromkeys(names, WORD)}), Feed()
    feed.row(schema, {"id": 1, **{name: name for name in names}})
    (row,) = typed(reading_of(schema), feed)
    assert [row[name] for name in names] == names
    assert "`tick``` string" in typed_ddl(reading_of(schema))


def test_a_renamed_table_has_its_own_schema() -> None:
    schema = versioned(schema_of({"id": INT}), table="other")
    feed = Feed()
    feed.row(schema, {"id": 1})
    with pytest.raises(ValueUnfit, match=r"it is of shop\.other version 1; the schema before it is 1"):
        typed(reading_of(schema_of({"id": INT})), feed)
