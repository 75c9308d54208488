"""How a column is read by SELECT so that its raw value is the one that the binlog gives for the same row. Pure.

The session must be in UTC, with an empty ``sql_mode`` and ``character_set_results = NULL``: text then comes in the bytes in
which it is stored, and is read as rows of the binlog are.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from typing import Final, NamedTuple

from headrace.capture.binlog.charsets import reader_of
from headrace.capture.binlog.numeric import double_text, float_text
from headrace.capture.mariadb.key_parts import SERVER_FORMS, quoted
from headrace.simple.faults import Misfit
from headrace.simple.message import Timestamp
from headrace.simple.mysql_types import Family, family_of
from headrace.simple.schema import Column

Read = Callable[[bytes], str | Timestamp]
"""Returns the raw value of what the server sent; UnicodeDecodeError where that is no text of the column's character set."""


class SelectForm(NamedTuple):
    """What stands in the SELECT list for a column, and what reads the answer."""

    sql: str
    read: Read


def select_form(column: Column, form: str | None = None) -> SelectForm:
    """Return how ``column`` is read; ``form``: its own type, if that is one of MariaDB's that messages carry as text.

    Misfit for a type or a character set whose values are not read.
    """
    name = quoted(column.name)
    kind = column.data_type
    if form in SERVER_FORMS:
        return SelectForm(name, _ascii)
    match family_of(kind):
        case Family.INTEGER | Family.YEAR:
            return SelectForm(name, _digits)
        case Family.DECIMAL:
            return SelectForm(name, _fixed)
        case Family.DATE | Family.DATETIME | Family.TIME:
            return SelectForm(name, _ascii)
        case Family.ENUM | Family.SET:
            return SelectForm(f"CAST({name} AS UNSIGNED)", _ascii)
        case Family.FLOAT:
            return SelectForm(f"CAST({name} AS DOUBLE)", _single)
        case Family.DOUBLE:
            return SelectForm(f"CAST({name} AS DOUBLE)", _double)
        case Family.BIT:
            return SelectForm(name, _bits)
        case Family.TIMESTAMP:
            return SelectForm(name, _timestamp)
        case Family.BINARY:
            return SelectForm(name, _base64)
        case Family.TEXT:
            return SelectForm(name, _text(kind.charset))
        case Family.JSON:
            return SelectForm(name, _text(_JSON_CHARSET))
        case _:
            raise Misfit


_JSON_CHARSET: Final = "utf8mb4"


def _text(charset: str) -> Read:
    read = reader_of(charset)
    if read is None:
        raise Misfit
    return read


def _ascii(sent: bytes) -> str:
    return sent.decode("ascii")


def _digits(sent: bytes) -> str:
    return str(int(sent))  # without the zeros of a ZEROFILL column, or of the year 0000


def _fixed(sent: bytes) -> str:
    text = sent.decode("ascii")
    if text.startswith("0"):
        text = text.lstrip("0")
        return text if text[:1].isdigit() else f"0{text}"
    return text


def _single(sent: bytes) -> str:
    return float_text(float(sent))


def _double(sent: bytes) -> str:
    return double_text(float(sent))


def _bits(sent: bytes) -> str:
    return str(int.from_bytes(sent, "big"))


def _timestamp(sent: bytes) -> Timestamp:
    return Timestamp("UTC", sent.decode("ascii"))


def _base64(sent: bytes) -> str:
    return binascii.b2a_base64(sent, newline=False).decode("ascii")
