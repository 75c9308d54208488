"""Rows of messages <-> rows of Python values, by the table's schema.

::

    integers, YEAR, BIT     int                     DATE        datetime.date | IrregularDate
    FLOAT, DOUBLE           float                   DATETIME    datetime without a zone | IrregularDate
    DECIMAL                 Decimal, its scale kept TIMESTAMP   datetime with its zone | IrregularDate
    CHAR … LONGTEXT         str                     TIME        timedelta
    BINARY … LONGBLOB       bytes                   ENUM        str, INVALID_LABEL for number 0
    JSON                    str, not parsed         SET         frozenset of str
                                                    VECTOR      tuple of float

A value that does not fit its column is an error that names message, column and expected type. Nothing becomes null silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, NamedTuple

from headrace.simple.faults import Misfit, Shown, invalid, unsupported
from headrace.simple.kind import Kind, Unreadable
from headrace.simple.message import Dml, Raw, name_of
from headrace.simple.mysql_types import Family, family_of
from headrace.simple.numeric import Bit, Double, Fixed, Integer, Single, UnsignedBig, Year
from headrace.simple.schema import DataType, TableSchema
from headrace.simple.temporal import Day, IrregularDate, Moment, Span, ZonedMoment, ZoneOf, named_zone
from headrace.simple.textual import Binary, Document, Label, LabelSet, Text, Vector

Value = (
    int
    | float
    | Decimal
    | str
    | bytes
    | date
    | datetime
    | timedelta
    | IrregularDate
    | frozenset[str]
    | tuple[float, ...]
    | None
)
"""A column's value in Python."""

Row = dict[str, Value]
"""Column name -> value, in the order of the schema. A column that the message leaves out (a virtual one) is not in it."""


class Encoding(StrEnum):
    """The forms of messages."""

    JSON = "json"
    AVRO = "avro"


class Image(StrEnum):
    """Which state of a row: ``data`` after the change, ``old`` before it."""

    DATA = "data"
    OLD = "old"


class _Column(NamedTuple):
    name: str
    kind: Kind
    nullable: bool


def kind_of(data_type: DataType, zone_of: ZoneOf = named_zone) -> Kind:
    """Return the conversions of a column of this type."""
    family = family_of(data_type)
    match family:
        case None:
            return Unreadable(data_type)
        case Family.INTEGER if data_type.mysql_type == "bigint" and data_type.unsigned:
            return UnsignedBig(data_type)
        case Family.TIMESTAMP:
            return ZonedMoment(data_type, zone_of)
        case _:
            kind: Kind = _OF_FAMILY[family](data_type)
            return kind


class RowTypes:
    """The conversions of one table schema in one encoding, made once and used for all of its rows.

    ``zone_of`` finds the zone of a TIMESTAMP by the name in the message; give an own one for messages that say ``Local``.
    """

    def __init__(
        self, schema: TableSchema, encoding: Encoding = Encoding.JSON, *, zone_of: ZoneOf = named_zone
    ) -> None:
        self.schema = schema
        self.encoding = encoding
        self.columns = tuple(
            _Column(column.name, kind_of(column.data_type, zone_of), column.nullable)
            for column in schema.columns
        )
        is_json = encoding is Encoding.JSON
        self._readers = tuple(
            (column, column.kind.read_json if is_json else column.kind.read_avro) for column in self.columns
        )
        self._writers = {
            column.name: (column, column.kind.write_json if is_json else column.kind.write_avro)
            for column in self.columns
        }

    def read(self, message: Dml, image: Image = Image.DATA) -> Row:
        """Return the row in ``message`` as Python values.

        SimpleInvalid, naming message, column and expected type: the message is of another schema or has no such image, a
        column is unknown, a value does not fit. SimpleUnsupported for a value of a type that no reader knows.
        """
        if message.schema_key != self.schema.key:
            expected = "{}.{} version {}".format(*self.schema.key)
            raise invalid(name_of(message), "schemaVersion", expected, message.schema_version)
        raw = message.data if image is Image.DATA else message.old
        if raw is None:
            raise invalid(name_of(message), image, "an object with a value for each column", Shown("absent"))
        row: Row = {}
        for column, read in self._readers:
            if (name := column.name) not in raw:
                continue
            value = raw[name]
            if value is None and column.nullable:
                row[name] = None
                continue
            try:
                row[name] = read(value)
            except Misfit:
                raise self._fault(name_of(message), image, column, value) from None
        if len(row) != len(raw):
            unknown = next(name for name in raw if name not in row)
            raise self._unknown(name_of(message), image, unknown)
        return row

    def write(self, row: Mapping[str, Value], message: str, image: Image = Image.DATA) -> dict[str, Raw]:
        """Return the raw values of ``row``; the same errors as ``read``. ``message`` is how they name what it goes into."""
        raw: dict[str, Raw] = {}
        for name, value in row.items():
            if name not in self._writers:
                raise self._unknown(message, image, name)
            column, write = self._writers[name]
            if value is None and column.nullable:
                raw[name] = None
                continue
            try:
                raw[name] = write(value)
            except Misfit:
                raise self._fault(message, image, column, value) from None
        return raw

    def _unknown(self, message: str, image: Image, name: str) -> Exception:
        schema = self.schema
        expected = f"a column of {schema.schema}.{schema.table} version {schema.version}"
        return invalid(message, f"{image}.{name}", expected, Shown("an unknown one"))

    def _fault(self, message: str, image: Image, column: _Column, found: object) -> Exception:
        field = f"{image}.{column.name}"
        if isinstance(column.kind, Unreadable) and found is not None:
            kind = column.kind.data_type
            why = f"values of {kind.mysql_type or 'no type'} with the character set {kind.charset!r} are not read"
            return unsupported(message, field, column.kind.expected, why)
        return invalid(message, field, column.kind.expected, found)


_OF_FAMILY: Final[dict[Family, Any]] = {
    Family.INTEGER: Integer,
    Family.YEAR: lambda _: Year(),
    Family.BIT: Bit,
    Family.FLOAT: lambda _: Single(),
    Family.DOUBLE: lambda _: Double(),
    Family.DECIMAL: Fixed,
    Family.DATE: lambda _: Day(),
    Family.DATETIME: Moment,
    Family.TIME: Span,
    Family.TEXT: lambda _: Text(),
    Family.BINARY: lambda _: Binary(),
    Family.ENUM: Label,
    Family.SET: LabelSet,
    Family.JSON: lambda _: Document(),
    Family.VECTOR: Vector,
}
