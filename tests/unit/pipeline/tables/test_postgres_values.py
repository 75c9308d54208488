"""Values that PostgreSQL has and Python or JSON have no words for get their column's exact value, or are refused by name."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ValueUnfit
from headrace.pipeline.tables.folding import SEED, folded_batches
from headrace.pipeline.tables.moments import moment_text
from headrace.pipeline.tables.rows import spark_columns, typed_batches, unwrapped, wrapped
from headrace.pipeline.tables.schemas import Column, PlacedSchema, TableSchema
from headrace.wire.arrays import array_of
from tests.unit.pipeline.tables.test_rows import NAME, changes, one, placed, schema

MICROS_MAX = (1 << 63) - 1
DAYS_MAX = (1 << 31) - 1
NUMBERS = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp-ntz": pa.int64()}


def columns_of(table: TableSchema, *values: bytes) -> dict[str, list[Any]]:
    """Rows of JSON as columns; dates and timestamps as the numbers that the table holds."""
    rows = changes(*[(place, "put", value) for place, value in enumerate(values, start=1)])
    (batch,) = typed_batches(iter([rows]), [placed(table)], feed="f::1", table=NAME)
    batch.validate(full=True)
    found = {}
    for column in table.columns:
        array = batch.column(column.name)
        found[column.name] = array.view(NUMBERS.get(column.type, array.type)).to_pylist()
    return found


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [
        ("date", "2024-02-29", 19_782),
        ("date", "5874897-12-31", 2_145_042_905),
        ("date", "4714-11-24 BC", -2_440_588),
        ("date", "0044-03-15 BC", -735_160),
        ("date", "infinity", DAYS_MAX),
        ("date", "-infinity", -DAYS_MAX - 1),
        ("timestamp", "2024-01-02T03:04:05.123456+00:00", 1_704_164_645_123_456),
        ("timestamp", "294247-01-10T04:00:54.775806+00:00", MICROS_MAX - 1),
        ("timestamp", "4714-11-24T00:00:00+00:00 BC", -210_866_803_200_000_000),
        ("timestamp", "infinity", MICROS_MAX),
        ("timestamp", "-infinity", -MICROS_MAX - 1),
        ("timestamp-ntz", "2024-01-02T03:04:05.123456", 1_704_164_645_123_456),
        ("timestamp-ntz", "4714-11-24T00:00:00 BC", -210_866_803_200_000_000),
        ("timestamp-ntz", "infinity", MICROS_MAX),
    ],
)
def test_times_of_all_ages_are_numbers(kind: str, text: str, number: int) -> None:
    table = schema(Column("c", kind, nullable=False))
    assert columns_of(table, json.dumps({"c": text}).encode()) == {"c": [number]}


def test_odd_and_ordinary_rows_and_columns_stand_side_by_side() -> None:
    table = schema(
        Column("n", "int64"),
        Column("at", "timestamp"),
        Column("day", "date"),
        Column("hour", "time"),
        Column("key", "int64", nullable=False),
    )
    found = columns_of(
        table,
        b'{"key": 1, "at": "1970-01-01T00:00:00.5Z", "day": "1970-01-02", "hour": "04:05:06", "n": 7}',
        b'{"key": 2, "at": "infinity", "day": "1970-01-03", "hour": "04:05:06.7Z"}',
        b'{"key": 3, "at": null, "day": "-infinity", "hour": null, "n": 8}',
        b'{"key": 4, "at": "1970-01-01T01:00:00+01:00", "hour": "24:00:00"}',
    )
    assert found == {
        "n": [7, None, 8, None],
        "at": [500_000, MICROS_MAX, None, 0],
        "day": [1, 2, -DAYS_MAX - 1, None],
        "hour": ["04:05:06", "04:05:06.700000+00:00", None, "24:00:00"],
        "key": [1, 2, 3, 4],
    }


def test_what_is_wrong_beside_an_odd_value_is_named() -> None:
    table = schema(Column("n", "int64"), Column("at", "timestamp"))
    for value, named in ((b'{"at": "infinity", "n": "x"}', "n"), (b'{"n": 1, "at": "then"}', "at")):
        with pytest.raises(ValueUnfit, match=f"sequence id 1, table main.things, column {named}: "):
            columns_of(table, value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("date", "5881580-07-11"),
        ("date", "0000-01-01"),
        ("date", {"text": "infinity"}),
        ("timestamp", "294276-12-31T23:59:59.999999+00:00"),
        ("timestamp", "294247-01-10T04:00:54.775807+00:00"),
        ("timestamp", "2024-01-01T00:00:00.0000001Z"),
        ("timestamp-ntz", "4714-11-24T00:00:00+00:00 BC"),
        ("time", "24:00:01"),
        ("time", "23:59:59.9999999"),
        ("decimal", 1),
        ("decimal", "1e3"),
        ("decimal", "+1"),
        ("decimal", "01"),
        ("decimal", ".5"),
        ("decimal", "5."),
        ("decimal", "nan"),
        ("decimal", "\u0661"),
        ("decimal", ""),
        ("decimal(38,2)", "NaN"),
        ("decimal(38,2)", "Infinity"),
    ],
)
def test_what_no_column_holds_is_refused_by_name(kind: str, value: Any) -> None:
    with pytest.raises(ValueUnfit, match=r"feed f::1, sequence id 1, table main\.things, column c: "):
        one(Column("c", kind), value)


@pytest.mark.parametrize(
    "text",
    [
        "-1234567890123456789012345678901234567890.5000",
        "0",
        "-0.0",
        "1" * 2000 + "." + "0" * 500,
        "NaN",
        "Infinity",
        "-Infinity",
    ],
)
def test_a_decimal_without_bounds_is_its_text(text: str) -> None:
    assert spark_columns(schema(Column("c", "decimal"))) == {"c": "string"}
    assert one(Column("c", "decimal"), text) == text


@pytest.mark.parametrize("text", ["24:00:00", "23:59:59.999999", "00:00:00"])
def test_a_time_is_its_text(text: str) -> None:
    assert one(Column("c", "time"), text) == text
    assert one(Column("c", "time"), "24:00:00.000000") == "24:00:00"


@pytest.mark.parametrize(
    ("given_", "held"),
    [
        (b"null", None),
        (b'{"json": null}', "null"),
        (b'{"json":"null"}', '"null"'),
        (b'{ "json" : [1.10, 1E400, {"a": "\\u0000"}] }', '[1.10, 1E400, {"a": "\\u0000"}]'),
        (b'{"json": {"json": 5}}', '{"json": 5}'),
        (b'{"json": 1, "more": 2}', '{"json": 1, "more": 2}'),
        (b'{"more": 2, "json": 1}', '{"more": 2, "json": 1}'),
        (b'{"json": 1, "json": 1}', '{"json": 1, "json": 1}'),
        (b'{"json": "}"}', '"}"'),
        (b'{"json": "a", "b": "c"}', '{"json": "a", "b": "c"}'),
        (b'{"JSON": null}', '{"JSON": null}'),
        (b"{}", "{}"),
        ('["é", 123456789012345678901234567890.50]'.encode(), '["é", 123456789012345678901234567890.50]'),
    ],
)
def test_json_is_kept_as_its_text(given_: bytes, held: str | None) -> None:
    assert columns_of(schema(Column("c", "json")), b'{"c": ' + given_ + b"}") == {"c": [held]}


def test_json_null_is_a_value_where_null_is_none() -> None:
    column = Column("c", "json", nullable=False)
    assert one(column, {"json": None}) == "null"
    with pytest.raises(ValueUnfit, match="not nullable"):
        one(column, None)


def test_json_too_deep_for_anybody_is_refused_by_name() -> None:
    deep = b'{"c": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    with pytest.raises(ValueUnfit, match=r"sequence id 1, table main\.things: .*recursion"):
        columns_of(schema(Column("c", "json")), deep)


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["json", "a"]), inner, max_size=2)
    ),
    max_leaves=5,
)


@given(any_json)
def test_what_is_wrapped_is_unwrapped(value: Any) -> None:
    text = json.dumps(value).encode()
    assert unwrapped(wrapped(text)) == text
    assert unwrapped(b'{"json": ' + text + b"}") == text
    assert wrapped(text) != b"null"
    assert (wrapped(text) != text) == (value is None or (isinstance(value, dict) and list(value) == ["json"]))


def test_a_row_of_the_table_is_patched_without_harm_to_its_other_values() -> None:
    kinds = {"j": "json", "k": "json", "t": "timestamp", "u": "timestamp-ntz", "d": "date", "n": "int64"}
    table = schema(*[Column(name, kind) for name, kind in kinds.items()])
    versions = [PlacedSchema(0, table)]
    seed = {"j": "null", "k": '{"json": 1.50}', "t": MICROS_MAX, "u": -1, "d": -735_160, "n": 1}
    row = [
        {"sequence_id": 3, "op": SEED, "value": json.dumps(seed).encode()},
        {"sequence_id": 7, "op": "patch", "value": b'{"n": 2}'},
    ]
    batch = pa.RecordBatch.from_pylist([{"key": b"k", "changes": row}])
    (folded,) = folded_batches(iter([batch]), versions, feed="f::1", table=NAME)
    (typed,) = typed_batches(iter([folded]), versions, feed="f::1", table=NAME)
    found = {name: typed.column(name) for name in kinds}
    numbers = {name: found[name].view(NUMBERS[kinds[name]]).to_pylist() for name in ("t", "u", "d")}
    assert numbers == {"t": [MICROS_MAX], "u": [-1], "d": [-735_160]}
    assert [found[name].to_pylist() for name in ("j", "k", "n")] == [["null"], ['{"json": 1.50}'], [2]]


@given(st.lists(st.none() | st.integers(-MICROS_MAX - 1, MICROS_MAX), max_size=10))
def test_columns_of_any_timestamps_are_exact(micros: list[int | None]) -> None:
    table = schema(Column("z", "timestamp"), Column("n", "timestamp-ntz"))
    rows = [
        {"z": moment_text(number, zoned=True), "n": moment_text(number, zoned=False)}
        if number is not None
        else {}
        for number in micros
    ]
    found = columns_of(table, *[json.dumps(row).encode() for row in rows])
    assert found == {"z": micros, "n": micros}


def test_the_ends_of_pythons_calendar_in_other_zones() -> None:
    ends = [
        datetime.min.replace(tzinfo=timezone(timedelta(hours=23))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-23))),
    ]
    numbers = array_of(ends, pa.timestamp("us", tz="UTC")).view(pa.int64()).to_pylist()
    since = [end - datetime(1970, 1, 1, tzinfo=UTC) for end in ends]
    assert numbers == [one // timedelta(microseconds=1) for one in since]
