"""One column of a row: which bytes are its own, and what they are as a raw value of a Simple message."""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from headrace.capture.binlog.charsets import is_utf8, reader_of
from headrace.capture.binlog.event import BinlogColumn
from headrace.capture.binlog.fields import Malformed, inflated
from headrace.capture.binlog.network import SIZES, Form, form_text
from headrace.capture.binlog.numeric import decimal_bytes, decimal_reader, double_text, float_text
from headrace.capture.binlog.table_map import ColumnType
from headrace.capture.binlog.temporal import (
    date_text,
    datetime_reader,
    fraction_bytes,
    time_reader,
    timestamp_reader,
)
from headrace.simple.message import Timestamp

RawValue = str | Timestamp | None
"""A value as rows of the JSON form have it."""

FRACTION_DIGITS_MAX: Final = 6
_T = ColumnType
_ONE_BYTE_LENGTH_MAX: Final = 255
_YEAR_ZERO: Final = 1900
_OLD_TEMPORAL: Final = frozenset({_T.TIMESTAMP, _T.DATETIME, _T.TIME})
_STRINGS: Final = frozenset({_T.VARCHAR, _T.VAR_STRING, _T.STRING, _T.VARCHAR_COMPRESSED})
_BLOBS: Final = frozenset({_T.BLOB, _T.BLOB_COMPRESSED, _T.GEOMETRY, _T.JSON})
_COMPRESSED: Final = frozenset({_T.VARCHAR_COMPRESSED, _T.BLOB_COMPRESSED})
_INTEGERS: Final = {_T.TINY: "b", _T.SHORT: "h", _T.INT24: "3s", _T.LONG: "i", _T.LONGLONG: "q"}
_SET_LAYOUTS: Final = {1: "B", 2: "H", 3: "3s", 4: "I", 8: "Q"}
_NO_VALUE: Final = "values of this type are not read"


class Unreadable(Exception):
    """A column's values can't be told; the text says why."""


class Shape(NamedTuple):
    """How a column's bytes stand in a row.

    ``layout``: what :mod:`struct` reads as one value (little-endian). Empty for bytes behind their length, a number of
    ``prefix`` bytes (1 to 4).
    """

    layout: str
    prefix: int = 0


class Conversion(NamedTuple):
    """What makes a raw value of what the shape reads.

    ``inline``: the same as an expression in which ``$`` stands for it, where that saves a call; else empty.
    ValueError, IndexError or Malformed: the bytes are no value of the type.
    """

    function: Callable[[Any], RawValue]
    inline: str = ""


def shape_of(column: BinlogColumn) -> Shape:
    """Return where a column's bytes end. Unreadable: the binlog doesn't tell it, or not in a way that this version knows."""
    type_, meta = column.type, column.meta
    if type_ in _INTEGERS:
        layout = _INTEGERS[_T(type_)]
        return Shape(layout.upper() if column.unsigned and len(layout) == 1 else layout)
    if type_ in _STRINGS:
        return Shape("", 2 if meta > _ONE_BYTE_LENGTH_MAX else 1)
    if type_ in _BLOBS and 1 <= meta <= 4:
        return Shape("", meta)
    match type_:
        case _T.FLOAT:
            return Shape("f")
        case _T.DOUBLE:
            return Shape("d")
        case _T.YEAR:
            return Shape("B")
        case _T.DATE | _T.NEWDATE:
            return Shape("3s")
        case _T.NEWDECIMAL:
            return Shape(f"{decimal_bytes(meta >> 8, meta & 0xFF)}s")
        case _T.BIT if 1 <= meta <= 64:
            return Shape(f"{(meta + 7) // 8}s")
        case _T.ENUM if meta in {1, 2}:
            return Shape(_SET_LAYOUTS[meta])
        case _T.SET if meta in _SET_LAYOUTS:
            return Shape(_SET_LAYOUTS[meta])
        case _T.DATETIME2 | _T.TIMESTAMP2 | _T.TIME2 if meta <= FRACTION_DIGITS_MAX:
            whole = {_T.DATETIME2: 5, _T.TIMESTAMP2: 4, _T.TIME2: 3}[_T(type_)]
            return Shape(f"{whole + fraction_bytes(meta)}s")
        case _ if type_ in _OLD_TEMPORAL:
            raise Unreadable(
                "it has the form of dates and times from before MariaDB 10.1, of which the binlog does not tell the size; "
                "ALTER TABLE ... FORCE with mysql56_temporal_format = ON gives it the present one"
            )
        case _:
            raise Unreadable(_NO_VALUE)


def conversion_of(column: BinlogColumn, form: Form | None = None) -> Conversion:
    """Return how the column's values are told. ``form``: what the catalogue says of a binary column.

    Unreadable: this version can't tell values of the type or of the character set.
    """
    type_, meta = column.type, column.meta
    if type_ in _INTEGERS or type_ in {_T.ENUM, _T.SET}:
        return _integer(column)
    if type_ in _STRINGS or type_ in {_T.BLOB, _T.BLOB_COMPRESSED}:
        return _bytes(column, form)
    match type_:
        case _T.FLOAT:
            return Conversion(float_text)
        case _T.DOUBLE:
            return Conversion(double_text)
        case _T.YEAR:
            return Conversion(
                lambda year: str(year + _YEAR_ZERO) if year else "0", f'f"{{$ + {_YEAR_ZERO}}}" if $ else "0"'
            )
        case _T.DATE | _T.NEWDATE:
            return Conversion(date_text)
        case _T.DATETIME2:
            return Conversion(datetime_reader(meta))
        case _T.TIMESTAMP2:
            return Conversion(timestamp_reader(meta))
        case _T.TIME2:
            return Conversion(time_reader(meta))
        case _T.NEWDECIMAL:
            return Conversion(decimal_reader(meta >> 8, meta & 0xFF))
        case _T.BIT:
            return Conversion(lambda data: str(int.from_bytes(data, "big")))
        case _:
            raise Unreadable(_NO_VALUE)


def _integer(column: BinlogColumn) -> Conversion:
    if column.type in {_T.ENUM, _T.SET} and not column.labels:
        raise Unreadable(f"labels with the character set {column.charset!r} are not read")
    if shape_of(column).layout != "3s":
        return Conversion(str, 'f"{$}"')
    if column.unsigned or column.type == _T.SET:
        return Conversion(lambda data: str(int.from_bytes(data, "little")))
    return Conversion(lambda data: str(int.from_bytes(data, "little", signed=True)))


def _bytes(column: BinlogColumn, form: Form | None) -> Conversion:
    if column.charset == "binary":
        return _binary(column, form)
    if form is not None:
        raise Unreadable(
            f"the catalogue calls it {form}, but in the binlog it has the character set {column.charset}"
        )
    read = reader_of(column.charset)
    if read is None:
        raise Unreadable(f"text with the character set {column.charset!r} is not read")
    if column.type in _COMPRESSED:
        return Conversion(lambda data: read(_plain(data)))
    return Conversion(read, "$.decode()" if is_utf8(column.charset) else "")


def _binary(column: BinlogColumn, form: Form | None) -> Conversion:
    size = column.meta
    if form is not None:
        if column.type != _T.STRING or size != SIZES[form]:
            raise Unreadable(f"the catalogue calls it {form}, but in the binlog it has {size} bytes")
        return Conversion(lambda data: form_text(form, data.ljust(size, b"\0")))
    if column.type in _COMPRESSED:
        return Conversion(lambda data: _base64(_plain(data)))
    if column.type == _T.STRING:
        return Conversion(
            lambda data: _base64(data.ljust(size, b"\0"))
        )  # the binlog leaves NULs at the end out
    return Conversion(_base64)


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def _plain(data: bytes) -> bytes:
    """What a value of a COMPRESSED column holds: one byte that says how, then the bytes, or their length and a stream."""
    if not data:
        return b""
    head = data[0]
    if not head:
        return data[1:]
    size = head & 0x07
    if head & 0xF0 != 0x80 or not 1 <= size <= 4:
        raise Malformed("a compressed value", f"begins with {head:#x}")
    window_bits = -zlib.MAX_WBITS if head & 0x08 else zlib.MAX_WBITS
    length = int.from_bytes(data[1 : 1 + size], "big")
    return inflated(data[1 + size :], length, window_bits, "a compressed value")
