"""Arrow columns: a type for each of MySQL's, exact values, and no null that the messages do not have."""

from __future__ import annotations

import sys
from datetime import UTC, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import SetupMissing, SimpleInvalid, SimpleUnsupported
from headrace.simple.arrow import ArrowRows
from headrace.simple.message import Dml, Timestamp
from headrace.simple.mysql_types import Family, family_of
from headrace.simple.schema import DataType, TableSchema
from headrace.simple.temporal import IrregularDate
from headrace.simple.values import Encoding, Image, RowTypes
from tests.scale import scaled, sized
from tests.simple import binary, dmls, moment, row_of, rows, schemas, table, text

U64 = (1 << 64) - 1
TYPES: list[tuple[DataType, pa.DataType]] = [
    (binary("tinyint"), pa.int8()),
    (binary("tinyint", unsigned=True), pa.uint8()),
    (binary("smallint"), pa.int16()),
    (binary("mediumint", unsigned=True), pa.uint32()),
    (binary("int"), pa.int32()),
    (binary("bigint"), pa.int64()),
    (binary("bigint", unsigned=True), pa.uint64()),
    (binary("year", length=4, unsigned=True, zerofill=True), pa.uint16()),
    (binary("bit", length=64, unsigned=True), pa.uint64()),
    (binary("float"), pa.float32()),
    (binary("double"), pa.float64()),
    (binary("decimal", length=38, decimal=2), pa.decimal128(38, 2)),
    (binary("decimal", length=39, decimal=30), pa.decimal256(39, 30)),
    (binary("date"), pa.date32()),
    (binary("datetime", length=26, decimal=6), pa.timestamp("us")),
    (binary("timestamp", length=19), pa.timestamp("us", "UTC")),
    (binary("time", length=10), pa.duration("us")),
    (text("longtext"), pa.string()),
    (binary("longblob"), pa.binary()),
    (binary("json"), pa.string()),
    (text("enum", elements=("a",)), pa.string()),
    (text("set", elements=("a",)), pa.list_(pa.string())),
    (binary("vector", length=2), pa.list_(pa.float32())),
]


@pytest.mark.parametrize(("kind", "arrow"), TYPES, ids=lambda one: str(getattr(one, "mysql_type", one)))
@pytest.mark.parametrize("nullable", [True, False])
def test_every_type_has_its_column(kind: DataType, arrow: pa.DataType, nullable: bool) -> None:
    made = ArrowRows(RowTypes(table(kind, nullable=nullable)))
    assert made.schema == pa.schema([pa.field("c0", arrow, nullable=nullable)])
    assert made.batch([]).num_rows == 0


def one(kind: DataType, raw: Any, **more: Any) -> Any:
    schema = table(kind, nullable=True)
    batch = ArrowRows(RowTypes(schema), **more).batch([row_of(schema, c0=raw), row_of(schema, c0=None)])
    batch.validate(full=True)
    cells = batch.column(0).to_pylist()
    assert cells[1] is None
    return cells[0]


@pytest.mark.parametrize(
    ("kind", "raw", "cell"),
    [
        (binary("bigint", unsigned=True), "18446744073709551615", U64),
        (binary("bit", length=64), "18446744073709551615", U64),
        (binary("decimal", length=65, decimal=30), "9" * 35 + "." + "9" * 30, Decimal("9" * 35 + "." + "9" * 30)),
        (binary("decimal", length=4, decimal=2), "5.00", Decimal("5.00")),
        (binary("time", length=10), "-838:59:59", -timedelta(hours=838, minutes=59, seconds=59)),
        (text("set", elements=("b", "a")), "3", ["b", "a"]),
        (text("enum", elements=("b",)), "0", ""),
        (binary("blob"), "AP8=", b"\x00\xff"),
        (
            binary("timestamp", length=26, decimal=6),
            Timestamp("Asia/Shanghai", "2020-02-20 10:20:20.000001"),
            moment(2020, 2, 20, 2, 20, 20, 1).replace(tzinfo=ZoneInfo("UTC")),
        ),
        (binary("datetime", length=26, decimal=6), "9999-12-31 23:59:59.999999", moment(9999, 12, 31, 23, 59, 59, 999999)),
    ],
    ids=lambda given: ascii(given)[:30],
)  # fmt: skip
def test_values_are_exact(kind: DataType, raw: Any, cell: Any) -> None:
    assert one(kind, raw) == cell


@given(st.sampled_from(Encoding), st.data())
@settings(max_examples=sized(scaled(30), soak=scaled(100)), deadline=None)
def test_rows_are_the_same_in_columns(encoding: Encoding, data: st.DataObject) -> None:
    schema = data.draw(schemas())
    types = RowTypes(schema, encoding)
    drawn = data.draw(st.lists(rows(schema).filter(_is_regular), max_size=4))
    messages = [row_of(schema, **types.write(row, "a row")) for row in drawn]
    batch = ArrowRows(types).batch(messages)
    batch.validate(full=True)
    for column, cells in zip(schema.columns, batch.columns, strict=True):
        expected = [_cell(column.data_type, row[column.name]) for row in drawn]
        assert cells.to_pylist() == expected


def _cell(kind: DataType, value: Any) -> Any:
    match family_of(kind):
        case Family.TIMESTAMP if value is not None:
            return value.astimezone(UTC)
        case Family.VECTOR if value is not None:
            return list(value)
        case Family.SET if value is not None:
            return [label for label in kind.elements if label in value]
        case _:
            return value


def _is_regular(row: dict[str, Any]) -> bool:
    return not any(isinstance(value, IrregularDate) for value in row.values())


def test_the_image_before_the_change() -> None:
    schema = table(binary("int"))
    update = msgspec.structs.replace(row_of(schema, c0="2"), type="UPDATE", old={"c0": "1"})
    made = ArrowRows(RowTypes(schema))
    assert made.batch([update]).to_pydict() == {"c0": [2]}
    assert made.batch([update, update], Image.OLD).to_pydict() == {"c0": [1, 1]}
    with pytest.raises(SimpleInvalid, match="old must be an object"):
        made.batch([row_of(schema, c0="2")], Image.OLD)


def test_columns_can_be_chosen() -> None:
    schema = table(binary("int"), binary("int"))
    messages = [row_of(schema, c1="1")]
    chosen = ArrowRows(RowTypes(schema), columns=["c1"])
    assert chosen.batch(messages).to_pydict() == {"c1": [1]}
    with pytest.raises(
        SimpleInvalid, match=r"data\.c0 must be present, or the column not asked for"
    ) as caught:
        ArrowRows(RowTypes(schema)).batch(messages)
    assert caught.value.members["field"] == "data.c0"
    for wrong in ({"columns": ["c2"]}, {"as_text": ["c2"]}):
        with pytest.raises(SimpleInvalid, match=r"column c2 must be a column of the table"):
            ArrowRows(RowTypes(schema), **wrong)


def test_irregular_dates_are_refused_or_text() -> None:
    for kind, raw, regular, regular_text in (
        (binary("date"), "0000-00-00", "2020-02-20", "2020-02-20"),
        (binary("datetime", decimal=1), "2020-00-00 00:00:00.0", "2020-02-20 10:20:20.0", "2020-02-20 10:20:20.0"),
        (
            binary("timestamp"),
            Timestamp("UTC", "0000-00-00 00:00:00"),
            Timestamp("Asia/Shanghai", "2020-02-20 10:20:20"),
            "2020-02-20 02:20:20",
        ),
    ):  # fmt: skip
        with pytest.raises(
            SimpleInvalid, match="a date that Arrow can hold, or the column asked for as text"
        ):
            one(kind, raw)
        assert one(kind, raw, as_text=["c0"]) == (raw.value if isinstance(raw, Timestamp) else raw)
        assert one(kind, regular, as_text=["c0"]) == regular_text


@pytest.mark.parametrize(
    ("kind", "error", "more"),
    [
        (binary("geometry"), SimpleUnsupported, {}),
        (binary("decimal", length=0), SimpleInvalid, {}),
        (binary("decimal", length=77), SimpleInvalid, {}),
        (binary("decimal", length=5, decimal=6), SimpleInvalid, {}),
        (binary("int"), SimpleInvalid, {"as_text": ["c0"]}),
    ],
    ids=["geometry", "no digits", "too many digits", "scale", "no date"],
)
def test_columns_that_arrow_cannot_have(kind: DataType, error: type[Exception], more: dict[str, Any]) -> None:
    with pytest.raises(error, match=r"^db\.t version 9: column c0"):
        ArrowRows(RowTypes(table(kind)), **more)


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SetupMissing, match="pyarrow") as caught:
        ArrowRows(RowTypes(table(binary("int"))))
    assert "headrace[arrow]" in caught.value.advice


@given(dmls(Encoding.JSON))
@settings(max_examples=sized(scaled(25), soak=scaled(50)), deadline=None)
def test_any_message_is_a_batch_or_a_clear_error(found: tuple[TableSchema, Dml]) -> None:
    schema, message = found
    image = Image.DATA if message.data is not None else Image.OLD
    try:
        batch = ArrowRows(RowTypes(schema)).batch([message], image)
    except SimpleInvalid as error:
        assert error.members["expected"].startswith("a date that Arrow can hold")  # noqa: PT017  # there may be none
    else:
        batch.validate(full=True)
        assert batch.num_rows == 1
