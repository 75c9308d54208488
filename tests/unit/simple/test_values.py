"""Values of every type, in both encodings: examples as real writers have them, round trips, and what does not fit."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import SimpleInvalid, SimpleUnsupported
from headrace.simple.json_codec import decode, encode
from headrace.simple.message import Dml, Float32, MessageType, Raw, Timestamp, UnsignedBigint
from headrace.simple.schema import DataType
from headrace.simple.temporal import IrregularDate
from headrace.simple.textual import INVALID_LABEL
from headrace.simple.values import Encoding, Image, Row, RowTypes
from tests.scale import scaled, sized
from tests.simple import binary, dmls, moment, row_of, rows, schemas, single, table, text

U64 = (1 << 64) - 1
MILLI = timedelta(milliseconds=1)
ABC = ("a", "b", "c")
ELEMENTS_64 = tuple(f"e{number}" for number in range(64))
SHANGHAI = ZoneInfo("Asia/Shanghai")


# (type, Python value, JSON, Avro)
EXAMPLES: list[tuple[DataType, Any, Raw, Raw]] = [
    (binary("tinyint", length=4), -128, "-128", -128),
    (binary("tinyint", length=3, unsigned=True), 255, "255", 255),
    (binary("smallint"), -32768, "-32768", -32768),
    (binary("mediumint", unsigned=True), 16777215, "16777215", 16777215),
    (binary("int"), 2147483647, "2147483647", 2147483647),
    (binary("int", unsigned=True, zerofill=True), 7, "7", 7),
    (binary("bigint"), -(1 << 63), "-9223372036854775808", -(1 << 63)),
    (binary("bigint", unsigned=True), U64, "18446744073709551615", UnsignedBigint(U64)),
    (binary("bigint", unsigned=True), 1, "1", UnsignedBigint(1)),
    (binary("bool"), 1, "1", 1),
    (binary("year", length=4, unsigned=True, zerofill=True), 2020, "2020", 2020),
    (binary("year", length=4), 0, "0", 0),
    (binary("bit", length=1, unsigned=True), 1, "1", "1"),
    (binary("bit", length=64), U64, "18446744073709551615", "18446744073709551615"),
    (binary("bit", length=10), 682, "682", "682"),
    (binary("float"), 90.5, "90.5", Float32(90.5)),
    (binary("float"), single(0.1), "0.1", Float32(single(0.1))),
    (binary("float"), single(1e20), "100000000000000000000", Float32(single(1e20))),
    (binary("float"), 95.0, "95", Float32(95.0)),
    (binary("double"), 2.71, "2.71", 2.71),
    (binary("double"), 5e-324, f"0.{'0' * 323}5", 5e-324),
    (binary("double"), 1e22, "10000000000000000000000", 1e22),
    (binary("double"), 0.0, "0", 0.0),
    (binary("decimal", length=10, decimal=2), Decimal("5.00"), "5.00", "5.00"),
    (binary("decimal", length=65, decimal=30), Decimal("9" * 35 + "." + "9" * 30), "9" * 35 + "." + "9" * 30, None),
    (binary("decimal", length=10), Decimal(-7), "-7", "-7"),
    (binary("decimal", length=2, decimal=2), Decimal("0.05"), "0.05", "0.05"),
    (text("char"), "héé", "héé", "héé"),
    (text("varchar", length=255), "", "", ""),
    (DataType("text", "gbk", "gbk_bin", 65535), "你好\x00<😀>", "你好\x00<😀>", "你好\x00<😀>"),
    (binary("varbinary"), b"\x00\xff<", "AP88", b"\x00\xff<"),
    (binary("binary", length=4), b"a\x00\x00\x00", "YQAAAA==", b"a\x00\x00\x00"),
    (binary("longblob"), b"", "", b""),
    (binary("date"), date(2020, 2, 20), "2020-02-20", "2020-02-20"),
    (binary("date"), date(9999, 12, 31), "9999-12-31", "9999-12-31"),
    (binary("date"), IrregularDate("0000-00-00"), "0000-00-00", "0000-00-00"),
    (binary("date"), IrregularDate("2020-00-10"), "2020-00-10", "2020-00-10"),
    (binary("date"), IrregularDate("2021-02-31"), "2021-02-31", "2021-02-31"),
    (binary("datetime", length=19), moment(2020, 2, 20, 2, 20, 20), "2020-02-20 02:20:20", None),
    (binary("datetime", length=26, decimal=6), moment(2020, 2, 20, 2, 20, 20, 123000), "2020-02-20 02:20:20.123000", None),
    (binary("datetime", length=21), moment(2020, 2, 20, 2, 20, 20, 100000), "2020-02-20 02:20:20.1", None),
    (binary("datetime", length=23, decimal=3), moment(9999, 12, 31, 23, 59, 59, 999000), "9999-12-31 23:59:59.999", None),
    (binary("datetime"), IrregularDate("0000-00-00 00:00:00"), "0000-00-00 00:00:00", None),
    (
        binary("timestamp", length=26, decimal=6),
        datetime(2020, 2, 20, 10, 20, 20, 5, tzinfo=UTC),
        Timestamp("UTC", "2020-02-20 10:20:20.000005"),
        None,
    ),
    (
        binary("timestamp", length=19),
        datetime(2020, 2, 20, 10, 20, 20, tzinfo=SHANGHAI),
        Timestamp("Asia/Shanghai", "2020-02-20 10:20:20"),
        None,
    ),
    (
        binary("timestamp"),
        IrregularDate("0000-00-00 00:00:00", "Local"),
        Timestamp("Local", "0000-00-00 00:00:00"),
        None,
    ),
    (binary("time", length=10), timedelta(hours=838, minutes=59, seconds=59), "838:59:59", "838:59:59"),
    (binary("time", length=10), timedelta(0), "00:00:00", "00:00:00"),
    (binary("time", length=14, decimal=3), -(timedelta(hours=1) + 5 * MILLI), "-01:00:00.005", "-01:00:00.005"),
    (binary("time", length=14), timedelta(seconds=1), "00:00:01.000", "00:00:01.000"),
    (text("enum", elements=ABC), "b", "2", 2),
    (text("enum", elements=ABC), INVALID_LABEL, "0", 0),
    (text("enum", elements=("", "a")), "", "1", 1),
    (text("set", elements=ABC), frozenset({"a", "c"}), "5", 5),
    (text("set", elements=ABC), frozenset(), "0", 0),
    (text("set", elements=ELEMENTS_64), frozenset(ELEMENTS_64), "18446744073709551615", -1),
    (binary("json"), '{"a": 1, "b": "<"}', '{"a": 1, "b": "<"}', '{"a": 1, "b": "<"}'),
    (binary("vector", length=3), (1.0, 2.5, single(0.1)), "[1,2.5,0.1]", "[1,2.5,0.1]"),
    (binary("vector", length=-1), (), "[]", "[]"),
]  # fmt: skip


def _shown(one: object) -> str:
    return str(sorted(one) if isinstance(one, frozenset) else one)[:40]


@pytest.mark.parametrize(("kind", "value", "in_json", "in_avro"), EXAMPLES, ids=_shown)
def test_examples_of_every_type(kind: DataType, value: Any, in_json: Raw, in_avro: Raw) -> None:
    for encoding, raw in ((Encoding.JSON, in_json), (Encoding.AVRO, in_json if in_avro is None else in_avro)):
        types = RowTypes(table(kind), encoding)
        written = types.write({"c0": value}, "a row")["c0"]
        assert (written, type(written)) == (raw, type(raw))
        read = types.read(row_of(types.schema, c0=raw))["c0"]
        assert (read, type(read)) == (value, type(value))


def test_forms_that_are_read_but_not_written() -> None:
    readable: list[tuple[DataType, Encoding, Raw, Any]] = [
        (binary("bit", length=64), Encoding.AVRO, -1, U64),
        (binary("bit", length=8), Encoding.AVRO, 5, 5),
        (binary("bigint", unsigned=True), Encoding.AVRO, "18446744073709551615", U64),
        (binary("bigint", unsigned=True), Encoding.AVRO, 5, 5),
        (binary("float"), Encoding.AVRO, 1.5, 1.5),
        (binary("double"), Encoding.AVRO, Float32(1.5), 1.5),
        (binary("double"), Encoding.JSON, "-1.5E+3", -1500.0),
        (binary("double"), Encoding.JSON, "-0", -0.0),
        (binary("datetime"), Encoding.JSON, "2020-02-20 02:20:20.5", moment(2020, 2, 20, 2, 20, 20, 500000)),
        (binary("vector"), Encoding.JSON, "[1, 2]", (1.0, 2.0)),
        (DataType("var_string", "utf8mb4", "utf8mb4_bin"), Encoding.JSON, "x", "x"),
    ]
    for kind, encoding, raw, value in readable:
        schema = table(kind)
        found = RowTypes(schema, encoding).read(row_of(schema, c0=raw))["c0"]
        assert (found, type(found)) == (value, type(value))


def test_an_invalid_label_is_not_an_empty_one() -> None:
    types = RowTypes(table(text("enum", elements=("", "a"))))
    invalid, empty = (types.read(row_of(types.schema, c0=raw))["c0"] for raw in ("0", "1"))
    assert invalid == empty == ""
    assert types.write({"c0": invalid}, "a row") == {"c0": "0"}
    assert types.write({"c0": empty}, "a row") == {"c0": "1"}


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("16777217", 16777216.0),  # halfway between two singles: to the even one
        ("16777217.0000000000000000001", 16777218.0),  # above it by less than a double can tell
        ("16777218.9999999999999999999", 16777218.0),
        ("340282346638528859811704183484516925440", 3.4028234663852886e38),
        ("0.000000000000000000000000000000000000000000001", 1.401298464324817e-45),
        ("-0", -0.0),
    ],
)
def test_singles_are_rounded_once(number: str, expected: float) -> None:
    types = RowTypes(table(binary("float")))
    value = types.read(row_of(types.schema, c0=number))["c0"]
    assert isinstance(value, float)
    assert struct.pack("<d", value) == struct.pack("<d", expected)


@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False) | st.integers(-149, 127).map(lambda n: 2.0**n)
)
@settings(max_examples=sized(scaled(150), soak=scaled(500)))
def test_singles_are_written_in_as_few_digits_as_tell_them(number: float) -> None:
    types = RowTypes(table(binary("float")))
    written = types.write({"c0": number}, "a row")["c0"]
    assert isinstance(written, str)
    assert "e" not in written
    assert types.read(row_of(types.schema, c0=written)) == {"c0": number}
    assert written == np.format_float_positional(np.float32(number), unique=True, trim="-")


@pytest.mark.parametrize("encoding", Encoding)
@given(st.data())
@settings(max_examples=sized(scaled(60), soak=scaled(200)), deadline=None)
def test_rows_go_through_both_ways(encoding: Encoding, data: st.DataObject) -> None:
    schema, message = data.draw(dmls(encoding))
    types = RowTypes(schema, encoding)
    for image, raw in ((Image.DATA, message.data), (Image.OLD, message.old)):
        if raw is None:
            continue
        row = types.read(message, image)
        assert types.write(row, "a row", image) == raw
        for other in Encoding:
            others = RowTypes(schema, other)
            recoded = msgspec.structs.replace(message, **{image: others.write(row, "a row", image)})
            assert others.read(recoded, image) == row


@given(st.data())
@settings(max_examples=sized(scaled(60), soak=scaled(200)), deadline=None)
def test_rows_survive_the_bytes(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    row = data.draw(rows(schema))
    types = RowTypes(schema)
    message = Dml(
        MessageType.INSERT, schema.schema, schema.table, 7, 5, 6, schema.version, types.write(row, "a row")
    )
    read = types.read(decode(encode(message)))  # type: ignore[arg-type]  # a row comes back as one
    assert read == row
    assert list(read) == [column.name for column in schema.columns]
    assert [type(value) for value in read.values()] == [type(value) for value in row.values()]


def test_null_is_only_where_the_schema_allows_it() -> None:
    loose, strict = (RowTypes(table(binary("int"), nullable=nullable)) for nullable in (True, False))
    assert loose.read(row_of(loose.schema, c0=None)) == {"c0": None}
    assert loose.write({"c0": None}, "a row") == {"c0": None}
    with pytest.raises(SimpleInvalid, match=r"data\.c0 must be an integer from .*, not null"):
        strict.read(row_of(strict.schema, c0=None))


def test_columns_that_the_schema_does_not_have() -> None:
    types = RowTypes(table(binary("int")))
    with pytest.raises(SimpleInvalid, match=r"data\.more must be a column of db\.t version 9") as caught:
        types.read(row_of(types.schema, c0="1", more="2"))
    assert caught.value.members["field"] == "data.more"
    with pytest.raises(SimpleInvalid, match=r"old\.more must be a column of db\.t version 9"):
        types.write({"more": 1}, "a row", Image.OLD)


def test_a_virtual_column_is_left_out_not_null() -> None:
    types = RowTypes(table(binary("int"), binary("int"), nullable=True))
    assert types.read(row_of(types.schema, c1="1")) == {"c1": 1}


def test_a_row_of_another_schema_is_refused() -> None:
    types = RowTypes(table(binary("int")))
    row = row_of(types.schema, c0="1")
    for other in ({"schema_version": 10}, {"table": "u"}, {"database": "x"}):
        with pytest.raises(SimpleInvalid, match=r"schemaVersion must be db\.t version 9"):
            types.read(msgspec.structs.replace(row, **other))
    with pytest.raises(SimpleInvalid, match="old must be an object with a value for each column, not absent"):
        types.read(row, Image.OLD)


@pytest.mark.parametrize(
    "kind",
    [
        binary("geometry"),
        DataType("unspecified", "", ""),
        DataType("blob", "utf8mb4", "utf8mb4_bin"),
        binary("varchar"),
        binary(""),
        binary("INT"),
    ],
    ids=lambda kind: f"{kind.mysql_type} {kind.charset}",
)
def test_types_that_no_reader_knows(kind: DataType) -> None:
    types = RowTypes(table(kind, nullable=True))
    assert types.read(row_of(types.schema, c0=None)) == {"c0": None}
    with pytest.raises(SimpleUnsupported) as caught:
        types.read(row_of(types.schema, c0="1"))
    assert caught.value.members["field"] == "data.c0"
    assert caught.value.members["expected"] == "of a type that is read"


def test_moments_of_other_zones_are_written_in_utc() -> None:
    types = RowTypes(table(binary("timestamp")))
    fixed = datetime(2020, 2, 20, 10, 20, 20, tzinfo=timezone(timedelta(hours=8)))
    again = datetime(2021, 11, 7, 1, 30, tzinfo=ZoneInfo("America/New_York"), fold=1)
    assert types.write({"c0": fixed}, "a row") == {"c0": Timestamp("UTC", "2020-02-20 02:20:20")}
    # Wall time that the zone has a second time can't be told from the first one by its name.
    assert types.write({"c0": again}, "a row") == {"c0": Timestamp("UTC", "2021-11-07 06:30:00")}


def test_the_caller_knows_what_local_means() -> None:
    schema = table(binary("timestamp"))
    types = RowTypes(schema, zone_of={"Local": SHANGHAI}.__getitem__)
    row = types.read(row_of(schema, c0=Timestamp("Local", "2020-02-20 10:20:20")))
    assert row["c0"] == datetime(2020, 2, 20, 2, 20, 20, tzinfo=UTC)
    with pytest.raises(SimpleInvalid, match="a known zone as location"):
        types.read(row_of(schema, c0=Timestamp("UTC", "2020-02-20 10:20:20")))


def test_a_row_is_in_the_order_of_the_schema() -> None:
    types = RowTypes(table(binary("int"), binary("int"), binary("int")))
    row: Row = types.read(row_of(types.schema, c2="2", c0="0", c1="1"))
    assert list(row.items()) == [("c0", 0), ("c1", 1), ("c2", 2)]
