"""Row checksums: CRC-32 over the stored columns, as TiDB's row checksum feature has them in messages.

Each column gives bytes: numbers 8 of them, little-endian; text, bytes and the text of dates, times, decimals and JSON their
length (4 bytes, little-endian) and themselves, a TIMESTAMP in UTC; NULL none. Columns count in the order of the schema,
which is that of their ids in messages of TiCDC's classic architecture, and the one that readers of both generations use. A
column that the message leaves out (a virtual one) is not stored and gives none.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final
from zlib import crc32

import msgspec

from headrace.simple.faults import Misfit, invalid, unsupported
from headrace.simple.kind import Kind
from headrace.simple.message import Dml, Timestamp, name_of
from headrace.simple.mysql_types import Family, family_of
from headrace.simple.values import Image, Row, RowTypes

VERSIONS: Final = frozenset({0, 1, 2})
"""The source's own checksum was over columns (0) or over keys and values (1, 2); what messages carry is the same in all."""

_LENGTH: Final = struct.Struct("<I")
_DOUBLE: Final = struct.Struct("<d")
_U64: Final = (1 << 64) - 1


class Outcome(StrEnum):
    """What became of a verification."""

    MATCHES = "matches"
    DIFFERS = "differs"
    NOT_GIVEN = "not-given"
    """The message has no checksum, or it is 0, which says that there is none: nothing was verified."""
    VERSION_UNSUPPORTED = "version-unsupported"
    """The checksum is of a version that is not known here: nothing was verified."""


class Verified(msgspec.Struct, frozen=True):
    """What a verification found out about one image of a row. ``columns`` has the bytes of each, for a difference to be
    found.

    ``corrupted``: the source itself says that its row and its checksum do not fit.
    """

    image: Image
    outcome: Outcome
    version: int | None = None
    expected: int = 0
    actual: int = 0
    corrupted: bool = False
    columns: tuple[tuple[str, bytes], ...] = ()

    def __str__(self) -> str:
        """For a person: both numbers, and the bytes of each column."""
        if self.outcome is not Outcome.DIFFERS:
            return f"{self.image}: {self.outcome}"
        shown = ", ".join(f"{name}={value.hex() or 'nothing'}" for name, value in self.columns)
        return f"{self.image}: checksum {self.expected} expected, {self.actual} computed over {shown}"


def column_bytes(types: RowTypes, row: Row, message: str = "row") -> tuple[tuple[str, bytes], ...]:
    """Return what each column of ``row`` gives to its checksum, in the order of the schema.

    SimpleInvalid, naming ``message`` and column, if a value does not fit its column; SimpleUnsupported for a value of a type
    whose bytes are not known.
    """
    found = []
    for column, place in zip(types.schema.columns, types.columns, strict=True):
        if column.name not in row:
            continue
        value = row[column.name]
        if value is None:
            found.append((column.name, b""))
            continue
        family = family_of(column.data_type)
        if family is None:
            why = f"the checksum of a value of type {column.data_type.mysql_type!r} is not known"
            raise unsupported(message, column.name, place.kind.expected, why)
        try:
            found.append((column.name, _bytes_of(family, place.kind, value)))
        except Misfit:
            raise invalid(message, column.name, place.kind.expected, value) from None
    return tuple(found)


def row_checksum(types: RowTypes, row: Row) -> int:
    """Return the checksum of ``row``; errors as :func:`column_bytes`."""
    return _sum(column_bytes(types, row))


def verify(message: Dml, types: RowTypes) -> tuple[Verified, ...]:
    """Verify the checksums of ``message``: one result for each image that it has, the new row first.

    A difference is a result, not an error. The errors are those of :meth:`RowTypes.read`.
    """
    images = [(Image.DATA, message.data, 0), (Image.OLD, message.old, 1)]
    return tuple(_verified(message, types, image, place) for image, row, place in images if row is not None)


def _verified(message: Dml, types: RowTypes, image: Image, place: int) -> Verified:
    given = message.checksum
    if given is None:
        return Verified(image, Outcome.NOT_GIVEN)
    expected = (given.current, given.previous)[place]
    if given.version not in VERSIONS:
        return Verified(image, Outcome.VERSION_UNSUPPORTED, given.version, expected, 0, given.corrupted)
    if not expected:
        return Verified(image, Outcome.NOT_GIVEN, given.version, 0, 0, given.corrupted)
    columns = column_bytes(types, types.read(message, image), name_of(message))
    actual = _sum(columns)
    outcome = Outcome.MATCHES if actual == expected else Outcome.DIFFERS
    return Verified(image, outcome, given.version, expected, actual, given.corrupted, columns)


def _sum(columns: tuple[tuple[str, bytes], ...]) -> int:
    value = 0
    for _, part in columns:
        value = crc32(part, value)
    return value


def _bytes_of(family: Family, kind: Kind, value: Any) -> bytes:
    match family:
        case Family.INTEGER | Family.YEAR | Family.BIT | Family.ENUM | Family.SET:
            return (int(str(kind.write_json(value))) & _U64).to_bytes(8, "little")
        case Family.FLOAT | Family.DOUBLE:
            if not isinstance(value, float):
                raise Misfit
            # Sources never had NaN or an infinity: kinds refuse them.
            kind.write_json(value)
            return _DOUBLE.pack(value)
        case Family.VECTOR:
            text = str(kind.write_json(value))
            numbers = [float(part) for part in text[1:-1].split(",")] if value else []
            return _LENGTH.pack(len(numbers)) + struct.pack(f"<{len(numbers)}f", *numbers)
        case Family.BINARY:
            return _with_length(kind.write_avro(value))
        case Family.TIMESTAMP if isinstance(value, datetime) and value.tzinfo is not None:
            return _with_length(kind.write_json(value.astimezone(UTC)))
        case _:
            return _with_length(kind.write_json(value))


def _with_length(raw: Any) -> bytes:
    if isinstance(raw, Timestamp):
        raw = raw.value
    encoded = raw if isinstance(raw, bytes) else str(raw).encode()
    return _LENGTH.pack(len(encoded)) + encoded
