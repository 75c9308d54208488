"""Rows out of the bytes of made-up tables, and what is said where a value can't be told."""

import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.capture.binlog.columns import conversion_of, shape_of
from headrace.capture.binlog.event import BinlogColumn, RowsChanged, RowsKind, TableMap
from headrace.capture.binlog.numeric import decimal_bytes, decimal_reader, float_text
from headrace.capture.binlog.rows import RowDecoder, Values
from headrace.capture.binlog.table_map import ColumnType
from headrace.capture.binlog.temporal import time_reader
from headrace.errors import BinlogInvalid, BinlogUnsupported, TableStopped
from headrace.simple.numeric import single_text

T = ColumnType


def column(type_: ColumnType, meta: int = 0, **more: Any) -> BinlogColumn:
    return BinlogColumn(more.pop("name", "c"), type_, meta, nullable=more.pop("nullable", True), **more)


def text(meta: int = 20, charset: str = "utf8mb4", **more: Any) -> BinlogColumn:
    return column(T.VARCHAR, meta, charset=charset, **more)


def shape(*columns: BinlogColumn) -> TableMap:
    named = tuple(replace(column, name=f"c{place}") for place, column in enumerate(columns))
    return TableMap(1, "shop", "t", named, (), (), b"")


def inserted(count: int, data: bytes) -> RowsChanged:
    return RowsChanged(0, 1, 99, RowsKind.INSERT, 1, count, None, b"\xff" * ((count + 7) // 8), data, True)


def decoded(data: bytes, *columns: BinlogColumn, **options: Any) -> list[Values | None]:
    return [after for _, after in RowDecoder(shape(*columns), **options).rows(inserted(len(columns), data))]


def _sized(data: bytes) -> bytes:
    return bytes([len(data)]) + data


def test_fixed_and_sized_columns_with_and_without_null() -> None:
    columns = (column(T.LONG), text(), column(T.SHORT, unsigned=True), column(T.LONGLONG), text(300))
    whole = b"\xe0" + struct.pack("<i", -5) + b"\2hi" + struct.pack("<Hq", 65535, -1) + b"\3\0you"
    sparse = b"\xea" + struct.pack("<i", 7) + struct.pack("<H", 1) + b"\0\0"
    assert decoded(whole + sparse + b"\xff", *columns) == [
        ("-5", "hi", "65535", "-1", "you"),
        ("7", None, "1", None, ""),
        (None,) * 5,
    ]


def test_each_kind_of_change_has_its_images() -> None:
    decoder, bits = RowDecoder(shape(column(T.TINY))), b"\x01"
    event = inserted(1, b"\0\1\0\2")
    assert decoder.rows(event) == [(None, ("1",)), (None, ("2",))]
    assert decoder.rows(replace(event, kind=RowsKind.DELETE, before=bits)) == [(("1",), None), (("2",), None)]
    assert decoder.rows(replace(event, kind=RowsKind.UPDATE, before=bits)) == [(("1",), ("2",))]


def test_skipped_columns_may_be_of_any_type() -> None:
    columns = (
        column(T.GEOMETRY, 4),
        column(T.TINY),
        column(T.DOUBLE),
        column(T.JSON, 2),
        text(charset="dec8"),
        text(),
    )
    row = b"\5\0\0\0point" + b"\7" + bytes(8) + b"\3\0{}}" + b"\1x" + b"\1y"
    assert decoded(b"\xc0" + row, *columns, skip={0, 2, 3, 4}) == [(None, "7", None, None, None, "y")]
    assert decoded(b"\xc4" + row.replace(bytes(8), b""), *columns, skip={0, 2, 3, 4}) == [
        (None, "7", None, None, None, "y")
    ]
    for place in (0, 3, 4):
        with pytest.raises(TableStopped, match=rf"shop\.t, column c{place}: .* not read"):
            RowDecoder(shape(*columns), skip={0, 2, 3, 4} - {place})


@pytest.mark.parametrize("type_", [T.TIMESTAMP, T.DATETIME, T.TIME])
def test_times_of_the_old_form_are_refused_even_where_skipped(type_: ColumnType) -> None:
    with pytest.raises(TableStopped, match="mysql56_temporal_format = ON"):
        RowDecoder(shape(column(type_)), skip={0})


def test_labels_that_are_not_known_stop_the_table() -> None:
    with pytest.raises(TableStopped, match="labels with the character set 'dec8' are not read"):
        RowDecoder(shape(column(T.ENUM, 1, charset="dec8")))


def test_a_form_has_to_fit_the_column() -> None:
    binary = column(T.STRING, 16, charset="binary")
    assert decoded(b"\xfe\x10" + bytes(15) + b"\1", binary, forms={0: "inet6"}) == [("::1",)]
    for other in (
        replace(binary, meta=4),
        replace(binary, type=T.BLOB, meta=2),
        replace(binary, charset="latin1"),
    ):
        with pytest.raises(
            TableStopped, match=r"shop\.t, column c0: the catalogue calls it uuid, but in the binlog"
        ):
            RowDecoder(shape(other), {0: "uuid"})


def test_a_value_that_is_no_text_stops_its_table() -> None:
    with pytest.raises(
        TableStopped, match=r"shop\.t, column c1: a value in rows of shop\.t before offset 99 can't be told"
    ):
        decoded(b"\xfc\1\1\xff", column(T.TINY), text())


@pytest.mark.parametrize("sign", ["", "-"])
def test_the_longest_time(sign: str) -> None:
    number = 838 << 12 | 59 << 6 | 59
    data = ((1 << 23) + (-number if sign else number)).to_bytes(3, "big")
    assert time_reader(0)(data) == f"{sign}838:59:59"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (column(T.DATETIME2), bytes(5)),
        (column(T.DATETIME2), b"\xff" * 5),
        (column(T.DATE), b"\xff\xff\xff"),
        (column(T.DATE), b"\xa1\x01\x00"),
        (column(T.DATE), (16383 << 9 | 1 << 5 | 1).to_bytes(3, "little")),
        (column(T.TIME2, 2), b"\x80\0\0\xff"),
        (column(T.NEWDECIMAL, 9 << 8), b"\xff\xff\xff\xff"),
        (column(T.NEWDECIMAL, 9 << 8), (1 << 31 | 10**9).to_bytes(4, "big")),
        (column(T.FLOAT), struct.pack("<f", float("nan"))),
        (column(T.DOUBLE), struct.pack("<d", float("-inf"))),
        (column(T.VARCHAR_COMPRESSED, 100, charset="utf8mb4"), b"\4\x11abc"),
        (column(T.BLOB_COMPRESSED, 1, charset="binary"), b"\5\x81\3abc"),
        (
            column(T.BLOB_COMPRESSED, 1, charset="binary"),
            _sized(b"\x89\x06" + zlib.compress(b"abcde", wbits=-15)),
        ),
        (column(T.BLOB_COMPRESSED, 1, charset="binary"), b"\x0a\x89\x05\x4b\x4c\x4a\x06\0abc"),
    ],
)
def test_bytes_that_no_server_writes_stop_their_table(kind: BinlogColumn, data: bytes) -> None:
    with pytest.raises(TableStopped, match=r"shop\.t, column c0: a value"):
        decoded(b"\xfe" + data, kind)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xf8\1\2hi", "c2 goes beyond the event's end"),
        (b"\xf8\1\3hi", "c1 goes beyond the event's end"),
        (b"\xf8\1", "c1 goes beyond the event's end"),
        (b"\xf8", "c0 goes beyond the event's end"),
        (b"\xf9\2hi\1", "c0 is NULL, which it can't be"),
        (b"\xf8\1\2hi\1\xf8", "c0 goes beyond the event's end"),
    ],
)
def test_rows_that_are_cut_or_impossible(data: bytes, why: str) -> None:
    with pytest.raises(BinlogInvalid, match=rf"rows of shop\.t before offset 99: {why}"):
        decoded(data, column(T.TINY, nullable=False), text(), column(T.YEAR))


def test_a_last_value_that_is_cut_is_not_taken_for_a_shorter_one() -> None:
    with pytest.raises(BinlogInvalid, match="c1 goes beyond the event's end"):
        decoded(b"\xfc\1\3hi", column(T.TINY), text())


def test_half_an_update_is_refused() -> None:
    event = replace(inserted(1, b"\0\1\0\2\0\3"), kind=RowsKind.UPDATE, before=b"\1")
    with pytest.raises(BinlogInvalid, match="they end within a row"):
        RowDecoder(shape(column(T.TINY))).rows(event)


def test_rows_without_all_columns_name_the_variable() -> None:
    decoder = RowDecoder(shape(column(T.TINY), column(T.TINY)))
    with pytest.raises(BinlogUnsupported, match="have not all columns") as caught:
        decoder.rows(replace(inserted(2, b"\0\1"), after=b"\1"))
    assert "binlog_row_image = FULL" in caught.value.advice
    with pytest.raises(BinlogInvalid, match="have 3 columns, not 2"):
        decoder.rows(inserted(3, b""))


def test_a_table_of_as_many_columns_as_there_can_be() -> None:
    count = 4096
    data = bytes(count // 8) + struct.pack(f"<{count}i", *range(count))
    nulls = b"\xff" * (count // 8 - 1) + b"\x7f" + struct.pack("<i", 5)
    assert decoded(data + nulls, *[column(T.LONG)] * count) == [
        tuple(map(str, range(count))),
        (*[None] * (count - 1), "5"),
    ]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (column(T.TINY), [-128, 0, 127]),
        (column(T.YEAR), [0, 1, 255]),
        (column(T.ENUM, 2, labels=("a",), charset="latin1"), [0, 1, 300]),
        (text(), [b"", b"a", "é".encode()]),
    ],
)
def test_expressions_say_the_same_as_the_functions(kind: BinlogColumn, values: list[object]) -> None:
    conversion = conversion_of(kind)
    assert conversion.inline
    layout = shape_of(kind).layout
    for value in values:
        data = struct.pack(f"<{layout}", value) if layout else bytes([len(value)]) + value  # type: ignore[arg-type,operator]  # bytes then
        assert decoded(b"\xfe" + data, kind) == [(conversion.function(value),)]


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_floats_are_as_the_other_writers_have_them(value: float) -> None:
    assert float_text(value) == single_text(value)


@given(st.data())
def test_decimals_keep_every_digit(data: st.DataObject) -> None:
    precision = data.draw(st.integers(1, 65))
    scale = data.draw(st.integers(0, min(precision, 38)))
    digits = data.draw(st.text("0123456789", min_size=precision, max_size=precision))
    minus = data.draw(st.booleans()) and digits.strip("0") != ""
    whole, fraction = digits[: precision - scale], digits[precision - scale :]
    stored = _stored(whole, fraction, minus)
    assert len(stored) == decimal_bytes(precision, scale)
    text = (whole.lstrip("0") or "0") + (f".{fraction}" if fraction else "")
    assert decimal_reader(precision, scale)(stored) == ("-" if minus else "") + text


def _stored(whole: str, fraction: str, minus: bool) -> bytes:
    """A decimal as MySQL packs it, digit group by digit group."""
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    cut = len(whole) % 9
    groups = [whole[:cut], *(whole[at : at + 9] for at in range(cut, len(whole), 9))]
    groups += [fraction[at : at + 9] for at in range(0, len(fraction), 9)]
    data = bytearray(b"".join(int(group).to_bytes(sizes[len(group)], "big") for group in groups if group))
    data[0] ^= 0x80
    return bytes(byte ^ 0xFF for byte in data) if minus else bytes(data)
