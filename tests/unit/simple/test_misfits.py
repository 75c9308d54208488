"""Values that do not fit their column, in either direction: each is named, none becomes null or another value."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import SimpleInvalid
from headrace.simple.message import Float32, Raw, Timestamp, UnsignedBigint
from headrace.simple.schema import DataType
from headrace.simple.temporal import IrregularDate
from headrace.simple.textual import INVALID_LABEL
from headrace.simple.values import Encoding, Image, RowTypes
from tests.scale import scaled, sized
from tests.simple import binary, data_types, moment, row_of, table, text

J, A = Encoding.JSON, Encoding.AVRO
ABC = ("a", "b", "c")
MIDNIGHT = "2020-02-20 00:00:00"


def misfits(kind: DataType, encoding: Encoding, *raws: Raw) -> Iterator[tuple[DataType, Encoding, Raw]]:
    return ((kind, encoding, raw) for raw in raws)


def unwritable(kind: DataType, *values: Any) -> Iterator[tuple[DataType, Any]]:
    return ((kind, value) for value in values)


MISFITS: list[tuple[DataType, Encoding, Raw]] = [
    *misfits(
        binary("int"), J, "", "-", "+1", "1.0", "1e3", " 1", "1_0", "0x1", "\u0661", "2147483648", "9" * 5000
    ),
    (binary("int"), J, Timestamp("UTC", "1")),
    (binary("int", unsigned=True), J, "-1"),
    (binary("bigint", unsigned=True), J, "18446744073709551616"),
    *misfits(binary("int"), A, "1", 1.0, True, 1 << 31, UnsignedBigint(1)),
    *misfits(binary("bigint", unsigned=True), A, -1, UnsignedBigint(1 << 64), UnsignedBigint(-1), "x", 1.0),
    *misfits(binary("year"), J, "1900", "2156", "-1"),
    *misfits(binary("bit", length=3), J, "8", "-1", "b'1'"),
    *misfits(binary("bit", length=3), A, 8, -1, "8", b"\x01"),
    *misfits(binary("float"), J, "", "NaN", "inf", "1e39", "0x1p3", "1,5", ".5", "1_0.5", "9" * 401),
    *misfits(binary("float"), A, 0.1, float("nan"), float("inf"), 1, "1"),
    *misfits(binary("double"), J, "nan", "Infinity", "1e999", "-", "1."),
    *misfits(binary("double"), A, float("nan"), float("-inf"), 1, "1"),
    *misfits(
        binary("decimal", length=5, decimal=2), J, "1000", "1.005", "1e2", "NaN", "", "+1", "1.", "9" * 300
    ),
    (binary("decimal", length=5, decimal=2), A, 1.5),
    *misfits(text("varchar"), A, b"x", 1, Float32(1)),
    (text("varchar"), J, Timestamp("UTC", "x")),
    *misfits(binary("blob"), J, "a", "YQ", "YQ=", "Y Q==", "YQ==\n", "é", "YQ==YQ==", "-_=="),
    (binary("blob"), A, "YQ=="),
    *misfits(
        binary("date"),
        J,
        "",
        "2020-2-20",
        "2020-13-01",
        "2020-01-32",
        "20200220",
        "2020-02-20 00:00:00",
        "today",
    ),
    *misfits(
        binary("datetime"),
        J,
        "2020-02-20",
        "2020-02-20T00:00:00",
        "2020-02-20 24:00:00",
        "2020-02-20 00:60:00",
    ),
    *misfits(
        binary("datetime"), J, "2020-02-20 00:00:00.1234567", "2020-02-20 00:00:00Z", "0000-13-00 00:00:00"
    ),
    *misfits(
        binary("timestamp"),
        J,
        "2020-02-20 00:00:00",
        Timestamp("UTC", "x"),
        Timestamp("", "2020-02-20 00:00:00"),
    ),
    *misfits(
        binary("timestamp"),
        J,
        *(Timestamp(zone, MIDNIGHT) for zone in ("Local", "../etc/passwd", "No/Where", "\x00", "America")),
    ),
    *misfits(
        binary("time"), J, "", "1:00:00", "00:60:00", "839:00:00", "00:00:00.1234567", "+01:00:00", "00:00"
    ),
    *misfits(text("enum", elements=ABC), J, "4", "-1", "a", ""),
    *misfits(text("enum", elements=ABC), A, 4, -1, "a"),
    *misfits(text("set", elements=ABC), J, "8", "-1", "a,b"),
    *misfits(text("set", elements=ABC), A, 8, -1, "5"),
    *misfits(binary("json"), J, "", "{", "{'a':1}", "1 2", "[" * 100_000),
    *misfits(
        binary("vector", length=2), J, "", "1,2", "[1]", "[1,2,3]", "[1,nan]", "[1,]", "[[1],2]", "[1,1e39]"
    ),
]


@pytest.mark.parametrize(("kind", "encoding", "raw"), MISFITS, ids=lambda one: ascii(one)[:40])
def test_what_does_not_fit_is_named(kind: DataType, encoding: Encoding, raw: Raw) -> None:
    types = RowTypes(table(kind), encoding)
    with pytest.raises(SimpleInvalid) as caught:
        types.read(row_of(types.schema, c0=raw))
    members = caught.value.members
    assert members["message"] == "INSERT of db.t at commitTs 5"
    assert members["field"] == "data.c0"
    assert members["expected"] == types.columns[0].kind.expected
    assert len(caught.value.detail) < 300


UNWRITABLE: list[tuple[DataType, Any]] = [
    *unwritable(binary("int"), "1", 1.0, True, 1 << 31, None),
    *unwritable(binary("float"), 0.1, float("nan"), 1, "1", 1e300),
    *unwritable(binary("double"), float("inf"), 1, Decimal(1)),
    *unwritable(
        binary("decimal", length=5, decimal=2), Decimal("1.005"), Decimal(1000), Decimal("NaN"), 1, 1.5
    ),
    (binary("decimal", length=65, decimal=30), Decimal("1e5000")),
    *unwritable(text("text"), b"x", 1, INVALID_LABEL),
    *unwritable(binary("blob"), "x", bytearray(b"x")),
    *unwritable(
        binary("date"), moment(2020, 1, 1), "2020-01-01", IrregularDate("2020-01-01"), IrregularDate("x")
    ),
    *unwritable(
        binary("datetime"), date(2020, 1, 1), moment(2020, 1, 1, 0, 0, 0, 1), datetime(2020, 1, 1, tzinfo=UTC)
    ),
    (binary("datetime"), IrregularDate("2020-01-01 00:00:00")),
    (binary("datetime"), IrregularDate("0000-00-00 00:00:00", "UTC")),
    *unwritable(binary("timestamp"), moment(2020, 1, 1), IrregularDate("0000-00-00 00:00:00")),
    (binary("timestamp"), IrregularDate("2020-01-01 00:00:00", "UTC")),
    (binary("timestamp"), datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=8)))),  # no year in UTC
    *unwritable(binary("time"), timedelta(hours=839), timedelta(microseconds=1), "00:00:00"),
    *unwritable(text("enum", elements=ABC), "d", 1, None),
    *unwritable(text("set", elements=ABC), {"d"}, "a", ["a"]),
    *unwritable(binary("json"), {}, "{"),
    *unwritable(binary("vector", length=2), [1.0, 2.0], (1.0,), (1.0, 0.1), (1, 2)),
]


@pytest.mark.parametrize(("kind", "value"), UNWRITABLE, ids=lambda one: ascii(one)[:40])
@pytest.mark.parametrize("encoding", Encoding)
def test_what_cannot_be_written_is_named(kind: DataType, value: Any, encoding: Encoding) -> None:
    with pytest.raises(SimpleInvalid) as caught:
        RowTypes(table(kind), encoding).write({"c0": value}, "row 5", Image.OLD)
    assert (caught.value.members["message"], caught.value.members["field"]) == ("row 5", "old.c0")
    assert caught.value.members["expected"]


texts = st.one_of(
    st.text(max_size=8),
    st.from_regex(r"-?[0-9]{1,22}(\.[0-9]{0,8})?(e[0-9]{1,4})?", fullmatch=True),
    st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{0,7})?)?", fullmatch=True),
    st.from_regex(r"-?[0-9]{1,4}:[0-9]{2}:[0-9]{2}(\.[0-9]{0,7})?", fullmatch=True),
    st.from_regex(r"\[[0-9.,e-]{0,9}\]", fullmatch=True),
)
zones = st.sampled_from(
    ["UTC", "Local", "Asia/Shanghai", "Asia", "x" * 5000, "\x00", "/etc/passwd"]
) | st.text(max_size=4)
raws = st.one_of(
    texts,
    st.none(),
    st.integers(),
    st.floats(),
    st.floats(width=32).map(Float32),
    st.binary(max_size=6),
    st.builds(Timestamp, zones, texts),
    st.builds(UnsignedBigint, st.integers()),
)


@given(data_types, st.sampled_from(Encoding), raws)
@settings(max_examples=sized(scaled(300), soak=scaled(1000)), deadline=None)
def test_any_raw_value_is_a_value_or_a_clear_error(kind: DataType, encoding: Encoding, raw: Raw) -> None:
    types = RowTypes(table(kind), encoding)
    try:
        value = types.read(row_of(types.schema, c0=raw))["c0"]
    except SimpleInvalid as error:
        assert error.members["field"] == "data.c0"  # noqa: PT017  # it may be no error
        return
    assert value is not None
    try:
        written = types.write({"c0": value}, "a row")
    except SimpleInvalid:
        # More digits of a fraction than the column has: they are read, but not cut to be written.
        assert kind.mysql_type in {"datetime", "timestamp", "time"}  # it may be no error
        return
    assert types.read(row_of(types.schema, **written))["c0"] == value
