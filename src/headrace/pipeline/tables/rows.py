"""Rows' JSON -> typed Arrow columns, exactly as the feed's schema says; what doesn't fit is refused, never bent.

Called on workers, one call a record batch. A row is decoded by one msgspec decoder made from its schema, so a value is
checked and converted in the same step. Types: docs/formats/tables.md. Pure: Arrow and Python, no JVM.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import Meta, Raw

from headrace.entries.entry import Op
from headrace.errors import ValueUnfit
from headrace.pipeline.tables.moments import DATE, TIMESTAMP, TIMESTAMP_NTZ, days_of, micros_of
from headrace.pipeline.tables.schemas import Column, PlacedSchema, TableName, TableSchema, later_names, unfit
from headrace.wire.arrays import array_of

KEY: Final = "_headrace_key"
SEQUENCE_ID: Final = "_headrace_sequence_id"
GONE: Final = "_headrace_gone"
"""Columns beside the row's own: the feed's key (binary), the entry it comes from, and whether the row was deleted."""

CHANGE_DDL: Final = "key BINARY, sequence_id BIGINT, op STRING, value BINARY"
"""What is typed: one net change of each key."""

Convert = Callable[[Any], Any]


class ColumnKind(NamedTuple):
    """How one type of the feed's schemas is written in Spark, in Arrow and as a msgspec annotation.

    ``convert`` makes the column's value of what msgspec made; ``odd`` makes it of a text that may be one msgspec refuses.
    """

    spark: str
    arrow: Any
    annotation: Any
    convert: Convert | None = None
    odd: Convert | None = None


def _float_of(value: float | str) -> float:
    return float(value)  # "NaN", "Infinity" and "-Infinity" are Python's own words


def _json_of(raw: Raw) -> str | None:
    text = bytes(raw)
    return None if text == b"null" else unwrapped(text).decode()


def unwrapped(text: bytes) -> bytes:
    """Return the JSON text that a value of a ``json`` column stands for: ``X`` of ``{"json": X}``, else the value itself."""
    match = _WRAPPED.fullmatch(text)
    # Where there are more members, the last one's value is not all that follows the first one's name.
    return match[1] if match and match[1] == bytes(_MEMBERS.decode(text).get("json", b"")) else text


def wrapped(text: bytes) -> bytes:
    """Return a value that stands for the JSON text ``text`` in a ``json`` column; :func:`unwrapped` gives it back."""
    return b'{"json":' + text + b"}" if text == b"null" or unwrapped(text) != text else text


def _number_text(text: str) -> str:
    if _NUMERIC.fullmatch(text) is None:
        raise ValueError(f"{text[:80]!r} is no number in plain digits")
    return text


def _decimal_of(precision: int, scale: int) -> Convert:
    step = Decimal(1).scaleb(-scale)
    exact = Context(prec=DECIMAL_DIGITS_MAX + 1, traps=[InvalidOperation, Inexact])

    def convert(value: Decimal) -> Decimal:
        try:
            fitting = value.quantize(step, context=exact)
        except (InvalidOperation, Inexact):
            fitting = None
        if fitting is None or not fitting.is_finite() or len(fitting.as_tuple().digits) > precision:
            raise ValueError(f"{value} does not fit decimal({precision},{scale})")
        return fitting

    return convert


def _time_text(value: time | str) -> str:
    return value if isinstance(value, str) else value.isoformat()


def _odd_time(text: str) -> str:
    if _MIDNIGHT.fullmatch(text):
        return "24:00:00"  # PostgreSQL's end of a day, which is another value than 00:00:00
    if _TOO_FINE.search(text.encode()):
        raise ValueError(f"{text[:80]!r} has more than six decimals")
    try:
        return msgspec.convert(text, time).isoformat()
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


DECIMAL_DIGITS_MAX: Final = 38
"""Most digits of a decimal in Spark, Delta and Arrow."""

_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
_WRAPPED: Final = re.compile(rb'\{\s*"json"\s*:\s*(.*\S)\s*\}', re.DOTALL)
_NUMERIC: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?|NaN|-?Infinity")
_MIDNIGHT: Final = re.compile(r"24:00:00(?:\.0+)?")
# Looking back from the rarer dot is quicker than forward from each colon.
_TOO_FINE: Final = re.compile(rb"\.(?<=:[0-9]{2}\.)[0-9]{6}[0-9]*[1-9]")
"""What msgspec would round: a time with more than six decimals."""

_REFUSED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises where bytes are no such row; the last one where JSON is nested about a thousand levels deep."""

_INT64: Final = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_KINDS: Final = {
    "int64": ColumnKind("bigint", pa.int64(), _INT64),
    "float64": ColumnKind("double", pa.float64(), float | Literal["NaN", "Infinity", "-Infinity"], _float_of),
    "string": ColumnKind("string", pa.string(), str),
    "binary": ColumnKind("binary", pa.binary(), bytes),
    "boolean": ColumnKind("boolean", pa.bool_(), bool),
    "decimal": ColumnKind("string", pa.string(), str, _number_text),
    "date": ColumnKind(DATE, pa.date32(), date, None, days_of),
    "time": ColumnKind("string", pa.string(), time, _time_text, _odd_time),
    "timestamp": ColumnKind(
        TIMESTAMP,
        pa.timestamp("us", tz="UTC"),
        Annotated[datetime, Meta(tz=True)],
        None,
        partial(micros_of, zoned=True),
    ),
    "timestamp-ntz": ColumnKind(
        TIMESTAMP_NTZ,
        pa.timestamp("us"),
        Annotated[datetime, Meta(tz=False)],
        None,
        partial(micros_of, zoned=False),
    ),
    "json": ColumnKind("string", pa.string(), Raw, _json_of),
}
_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)")


def kind_of(column: Column) -> ColumnKind | None:
    """Return how a column is stored; None for a type that this version doesn't know."""
    if match := _DECIMAL.fullmatch(column.type):
        precision, scale = int(match[1]), int(match[2])
        if not 0 < precision <= DECIMAL_DIGITS_MAX or scale > precision:
            return None
        return ColumnKind(
            f"decimal({precision},{scale})",
            pa.decimal128(precision, scale),
            Decimal,
            _decimal_of(precision, scale),
        )
    return _KINDS.get(column.type)


def kinds_of(schema: TableSchema) -> list[ColumnKind]:
    """Return how each column of ``schema`` is stored; ValueUnfit if it names a type that this version doesn't know."""
    kinds = []
    for column in schema.columns:
        kind = kind_of(column)
        if kind is None:
            raise ValueUnfit(
                f"table {'.'.join(schema.name)}, column {column.name}: {column.type!r} is no type that this "
                "version knows",
                hint="Upgrade Headrace, or attach the table with that column left out.",
                table=list(schema.name),
                column=column.name,
            )
        kinds.append(kind)
    return kinds


def spark_columns(schema: TableSchema) -> dict[str, str]:
    """Return the table's own columns as name -> Spark type, in order."""
    return {column.name: kind.spark for column, kind in zip(schema.columns, kinds_of(schema), strict=True)}


def quoted(name: str) -> str:
    """Return ``name`` as an identifier of Spark SQL."""
    return f"`{name.replace('`', '``')}`"


def typed_ddl(schema: TableSchema) -> str:
    """Return the columns of typed rows as Spark SQL: key, sequence id, whether it is gone, then the row's own."""
    own = [f"{quoted(name)} {kind}" for name, kind in spark_columns(schema).items()]
    return ", ".join([f"{KEY} BINARY", f"{SEQUENCE_ID} BIGINT", f"{GONE} BOOLEAN", *own])


def typed_schema(schema: TableSchema) -> Any:
    """Return the same columns as an Arrow schema."""
    own = [(column.name, kind.arrow) for column, kind in zip(schema.columns, kinds_of(schema), strict=True)]
    return pa.schema([(KEY, pa.binary()), (SEQUENCE_ID, pa.int64()), (GONE, pa.bool_()), *own])


class RowDecoder:
    """Reads rows of one schema version, and puts them under the columns of the newest version of a batch."""

    def __init__(self, schema: TableSchema, later: Sequence[TableSchema], *, feed: str) -> None:
        """``later``: the versions that follow ``schema`` up to the one whose columns are wanted, in order."""
        self._schema = schema
        self._feed = feed
        kinds = kinds_of(schema)
        # Required fields first, as a class wants them; the order in JSON is free.
        self._places = sorted(range(len(kinds)), key=lambda place: schema.columns[place].nullable)
        self._decode = self._decoder([kind.annotation for kind in kinds])
        self._convert = [kinds[place].convert for place in self._places]
        odd = [(at, kinds[place].odd) for at, place in enumerate(self._places)]
        self._odd = [(at, convert) for at, convert in odd if convert is not None]
        self._decode_odd = self._decoder([str if kind.odd else kind.annotation for kind in kinds])
        self._target = self._names(later, kinds)

    def _names(self, later: Sequence[TableSchema], kinds: Sequence[ColumnKind]) -> list[str | None]:
        """Return what each column is called in the newest version; None where it is not there, or of another type.

        A table whose column got another type is copied again: its older rows have nothing to say of that.
        """
        names = later_names(self._schema, later)
        wanted = spark_columns(later[-1]) if later else {}
        return [
            None if name is None or (later and wanted[name] != kind.spark) else name
            for name, kind in zip(names, kinds, strict=True)
        ]

    def _decoder(self, annotations: Sequence[Any]) -> Callable[[bytes], Any]:
        columns = self._schema.columns
        fields: list[Any] = []
        for place in self._places:
            annotation = annotations[place]
            if not columns[place].nullable:
                fields.append((f"c{place}", annotation))
            elif annotation is Raw:
                fields.append((f"c{place}", Raw, Raw(b"null")))
            else:
                fields.append((f"c{place}", annotation | None, None))
        row = msgspec.defstruct(
            "Row",
            fields,
            rename={f"c{place}": column.name for place, column in enumerate(columns)},
            forbid_unknown_fields=True,
        )
        return msgspec.json.Decoder(row).decode

    def read(self, values: Sequence[bytes], sequence_ids: Sequence[int]) -> dict[str, list[Any]]:
        """Return the rows' columns by their newest names, one list a column; ValueUnfit names the first that is wrong."""
        rows: list[Sequence[Any]] = []
        times = bool(self._odd)
        for value, sequence_id in zip(values, sequence_ids, strict=True):
            try:
                if times and _TOO_FINE.search(value):
                    rows.append(self._odd_row(value, sequence_id))
                else:
                    rows.append(msgspec.structs.astuple(self._decode(value)))
            except _REFUSED as error:
                if not times:
                    raise self._unfit(sequence_id, str(error)) from None
                rows.append(self._odd_row(value, sequence_id))
        columns: dict[str, list[Any]] = {}
        for at, place in enumerate(self._places):
            target = self._target[place]
            if target is not None:
                columns[target] = self._converted(at, [row[at] for row in rows], sequence_ids)
        return columns

    def _odd_row(self, value: bytes, sequence_id: int) -> Sequence[Any]:
        """Read a row whose times may be written as msgspec has no words for; slower by as much as such a row is rare."""
        try:
            row = list(msgspec.structs.astuple(self._decode_odd(value)))
        except _REFUSED as error:
            raise self._unfit(sequence_id, str(error)) from None
        for at, convert in self._odd:
            if row[at] is not None:
                try:
                    row[at] = convert(row[at])
                except ValueError as error:
                    name = self._schema.columns[self._places[at]].name
                    raise self._unfit(sequence_id, str(error), name) from None
        return row

    def _converted(self, at: int, values: list[Any], sequence_ids: Sequence[int]) -> list[Any]:
        convert = self._convert[at]
        column = self._schema.columns[self._places[at]]
        if convert is not None:
            for row, value in enumerate(values):
                if value is not None:
                    try:
                        values[row] = convert(value)
                    except (ValueError, msgspec.MsgspecError) as error:
                        raise self._unfit(sequence_ids[row], str(error), column.name) from None
        if not column.nullable and column.type == "json" and None in values:
            problem = "null in a column that is not nullable"
            raise self._unfit(sequence_ids[values.index(None)], problem, column.name)
        return values

    def _unfit(self, sequence_id: int, problem: str, column: str = "") -> ValueUnfit:
        # msgspec says where: "Expected `int`, got `str` - at `$.balance`", "... required field `balance`".
        named = re.search(r"(?:`\$\.([^`]*)`|field `([^`]*)`)$", problem)
        column = column or (named[1] or named[2] if named else "")
        return unfit(self._feed, sequence_id, self._schema.name, column, problem)


def typed_batches(
    batches: Iterator[Any], versions: Sequence[PlacedSchema], *, feed: str, table: TableName
) -> Iterator[Any]:
    """Turn record batches of net changes (:data:`CHANGE_DDL`; puts and deletes) into typed ones (:func:`typed_schema`).

    ``versions``: the table's schemas in feed order; a row is read by the last one below its sequence id and stands under
    the columns of the newest. Raises ValueUnfit for a value that doesn't fit, and for a row that no schema precedes.
    """
    newest = versions[-1].schema
    out = typed_schema(newest)
    decoders: dict[int, RowDecoder] = {}
    for batch in batches:
        ops = batch.column("op").to_pylist()
        sequence_ids = batch.column("sequence_id").to_pylist()
        values = batch.column("value").to_pylist()
        columns = {column.name: [None] * len(ops) for column in newest.columns}
        groups: dict[int, list[int]] = {}
        for row, (op, sequence_id) in enumerate(zip(ops, sequence_ids, strict=True)):
            if op == Op.PUT:
                groups.setdefault(_version_of(versions, sequence_id, feed, table), []).append(row)
        for version, picked in groups.items():
            if version not in decoders:
                later = [placed.schema for placed in versions[version + 1 :]]
                decoders[version] = RowDecoder(versions[version].schema, later, feed=feed)
            found = decoders[version].read(
                [values[row] for row in picked], [sequence_ids[row] for row in picked]
            )
            for name, cells in found.items():
                column = columns[name]
                for row, cell in zip(picked, cells, strict=True):
                    column[row] = cell
        gone = [op == Op.DELETE for op in ops]
        arrays = [batch.column("key"), batch.column("sequence_id"), array_of(gone, pa.bool_())]
        arrays += [array_of(columns[field.name], field.type) for field in list(out)[3:]]
        yield pa.RecordBatch.from_arrays(arrays, schema=out)


def _version_of(versions: Sequence[PlacedSchema], sequence_id: int, feed: str, table: TableName) -> int:
    for index in range(len(versions) - 1, -1, -1):
        if versions[index].sequence_id < sequence_id:
            return index
    raise unfit(feed, sequence_id, table, "", "no schema entry of this table stands before this row")
