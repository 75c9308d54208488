"""Rows of messages as Arrow columns. Needs pyarrow, which is optional: it is imported when the first schema is made.

::

    TINYINT … BIGINT   int8, int16, int32, int64; uint8 … uint64      DATE       date32
    YEAR, BIT          uint16, uint64                                 DATETIME   timestamp[us]
    FLOAT, DOUBLE      float, double                                  TIMESTAMP  timestamp[us, tz=UTC]
    DECIMAL(p, s)      decimal128(p, s), from 39 digits decimal256    TIME       duration[us]: beyond a day, and below zero
    text, JSON, ENUM   string                                         SET        list<string>
    BINARY, BLOB       binary                                         VECTOR     list<float>
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import SetupMissing
from headrace.simple.faults import invalid, unsupported
from headrace.simple.kind import Kind
from headrace.simple.message import Dml, Timestamp, name_of
from headrace.simple.mysql_types import Family, family_of
from headrace.simple.schema import Column, TableSchema
from headrace.simple.temporal import IrregularDate
from headrace.simple.values import Image, Row, RowTypes, Value

if TYPE_CHECKING:
    import pyarrow as pa

_DECIMAL128_DIGITS_MAX: Final = 38
_DECIMAL256_DIGITS_MAX: Final = 76
_DATED: Final = frozenset({Family.DATE, Family.DATETIME, Family.TIMESTAMP})


class ArrowRows:
    """Makes record batches of one table's rows.

    ``types`` reads the messages. ``columns`` names the columns to have (default: all), in any order; name them where
    messages leave virtual columns out. ``as_text`` names columns of dates that shall be text as MySQL prints it, those of
    TIMESTAMP in UTC: for tables with dates that Arrow can't hold (``0000-00-00``).

    SetupMissing without pyarrow, SimpleInvalid for a column that the table has not, SimpleUnsupported for one of a type that
    no reader knows.
    """

    def __init__(
        self, types: RowTypes, *, columns: Sequence[str] | None = None, as_text: Collection[str] = ()
    ) -> None:
        self._arrow = _pyarrow()
        self._types = types
        name = _name(types.schema)
        known = {column.name: column for column in types.schema.columns}
        for wanted in (*(columns or ()), *as_text):
            if wanted not in known:
                raise invalid(name, f"column {wanted}", "a column of the table", wanted)
        chosen = list(known.values()) if columns is None else [known[wanted] for wanted in columns]
        self._as_text = frozenset(as_text)
        self._columns = tuple(chosen)
        self.schema = self._arrow.schema([self._field(name, column) for column in chosen])

    def batch(self, messages: Sequence[Dml], image: Image = Image.DATA) -> pa.RecordBatch:
        """Return one row for each message, its state after the change or before it, in the order of ``messages``.

        SimpleInvalid and SimpleUnsupported as :meth:`RowTypes.read`; SimpleInvalid too for a message that leaves out a
        column that is to be there, and for a date that Arrow can't hold.
        """
        rows = [self._types.read(message, image) for message in messages]
        arrays = []
        for column, field in zip(self._columns, self.schema, strict=True):
            cells = self._cells(column, messages, rows, image)
            arrays.append(self._arrow.array(cells, field.type))
        return self._arrow.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _cells(self, column: Column, messages: Sequence[Dml], rows: Sequence[Row], image: Image) -> list[Any]:
        name, family = column.name, family_of(column.data_type)
        try:
            cells: list[Any] = [row[name] for row in rows]
        except KeyError:
            lacking = next(message for message, row in zip(messages, rows, strict=True) if name not in row)
            raise invalid(
                name_of(lacking), f"{image}.{name}", "present, or the column not asked for", None
            ) from None
        if name in self._as_text:
            kind = next(one.kind for one in self._types.columns if one.name == name)
            return [None if cell is None else _text_of(kind, cell) for cell in cells]
        if family is Family.SET:
            labels = column.data_type.elements
            return [None if cell is None else [one for one in labels if one in cell] for cell in cells]
        if family in _DATED:
            for message, cell in zip(messages, cells, strict=True):
                if isinstance(cell, IrregularDate):
                    expected = "a date that Arrow can hold, or the column asked for as text"
                    raise invalid(name_of(message), f"{image}.{name}", expected, cell.text)
        return cells

    def _field(self, table: str, column: Column) -> pa.Field:
        arrow, kind = self._arrow, column.data_type
        family = family_of(kind)
        if column.name in self._as_text:
            if family not in _DATED:
                raise invalid(
                    table, f"column {column.name}", "one of dates, to be asked for as text", kind.mysql_type
                )
            return arrow.field(column.name, arrow.string(), nullable=column.nullable)
        match family:
            case None:
                why = f"values of {kind.mysql_type or 'no type'} are not read"
                raise unsupported(table, f"column {column.name}", "of a type that is read", why)
            case Family.INTEGER:
                found = _integer_type(arrow, kind.mysql_type, unsigned=kind.unsigned)
            case Family.DECIMAL:
                found = _decimal_type(arrow, table, column)
            case Family.TIMESTAMP:
                found = arrow.timestamp("us", "UTC")
            case Family.DATETIME:
                found = arrow.timestamp("us")
            case Family.TIME:
                found = arrow.duration("us")
            case Family.SET:
                found = arrow.list_(arrow.string())
            case Family.VECTOR:
                found = arrow.list_(arrow.float32())
            case _:
                found = getattr(arrow, _NAMED[family])()
        return arrow.field(column.name, found, nullable=column.nullable)


_NAMED: Final = {
    Family.YEAR: "uint16",
    Family.BIT: "uint64",
    Family.FLOAT: "float32",
    Family.DOUBLE: "float64",
    Family.DATE: "date32",
    Family.TEXT: "string",
    Family.JSON: "string",
    Family.ENUM: "string",
    Family.BINARY: "binary",
}
_INTEGERS: Final = {"tinyint": 8, "bool": 8, "smallint": 16, "mediumint": 32, "int": 32, "bigint": 64}


def _integer_type(arrow: Any, mysql_type: str, *, unsigned: bool) -> pa.DataType:
    return getattr(arrow, f"{'u' if unsigned else ''}int{_INTEGERS[mysql_type]}")()


def _decimal_type(arrow: Any, table: str, column: Column) -> pa.DataType:
    precision, scale = column.data_type.length, column.data_type.decimal
    if not (0 < precision <= _DECIMAL256_DIGITS_MAX and 0 <= scale <= precision):
        expected = f"a decimal of 1 to {_DECIMAL256_DIGITS_MAX} digits"
        raise invalid(table, f"column {column.name}", expected, f"decimal({precision},{scale})")
    of_size = arrow.decimal128 if precision <= _DECIMAL128_DIGITS_MAX else arrow.decimal256
    return of_size(precision, scale)


def _text_of(kind: Kind, cell: Value) -> str:
    if isinstance(cell, datetime) and cell.tzinfo is not None:
        cell = cell.astimezone(UTC)
    raw = kind.write_json(cell)
    return raw.value if isinstance(raw, Timestamp) else str(raw)


def _name(schema: TableSchema) -> str:
    return f"{schema.schema}.{schema.table} version {schema.version}"


def _pyarrow() -> Any:
    try:
        import pyarrow  # noqa: PLC0415  # pyarrow is optional
    except ModuleNotFoundError:
        raise SetupMissing(
            "Arrow columns need the package pyarrow, which is not installed",
            hint="pip install 'headrace[arrow]'",
        ) from None
    return pyarrow
