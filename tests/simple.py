"""The Simple Protocol in tests: the golden messages; Hypothesis strategies for schemas, rows and messages of every type."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from headrace.simple.message import (
    DDL_TYPES,
    DML_TYPES,
    Bootstrap,
    Checksum,
    Ddl,
    Dml,
    Message,
    MessageType,
    Raw,
    Watermark,
)
from headrace.simple.mysql_types import Family, family_of, fraction_digits, integer_range
from headrace.simple.schema import Column, DataType, Index, TableSchema
from headrace.simple.temporal import IrregularDate
from headrace.simple.textual import INVALID_LABEL
from headrace.simple.values import Encoding, Row, RowTypes

GOLDEN: Final = Path(__file__).parent / "golden" / "simple"
SAMPLES: Final = {path.stem: path.read_bytes() for path in sorted(GOLDEN.glob("*.json"))}
"""Messages as TiCDC writes them, by the names of their files."""

U64_MAX: Final = (1 << 64) - 1
texts: Final = st.text(st.characters(codec="utf-8"), max_size=12)
names: Final = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
u64s: Final = st.integers(0, U64_MAX)
i64s: Final = st.integers(-(1 << 63), (1 << 63) - 1)
labels: Final = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters=","), max_size=4),
    min_size=1,
    max_size=64,
    unique=True,
)

INTEGERS: Final = ("tinyint", "smallint", "mediumint", "int", "bigint")
TEXTS: Final = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
BINARIES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")


def binary(mysql_type: str, **more: Any) -> DataType:
    """A type whose character set is binary, as that of numbers and dates is."""
    return DataType(mysql_type, "binary", "binary", **more)


def text(mysql_type: str, **more: Any) -> DataType:
    """A type of text in the character set that TiDB has by default."""
    return DataType(mysql_type, "utf8mb4", "utf8mb4_bin", **more)


def moment(*parts: int) -> datetime:
    """A DATETIME: it has no zone."""
    year, month, day, hour, minute, second, microsecond = (*parts, 0, 0, 0, 0)[:7]
    return datetime(year, month, day, hour, minute, second, microsecond)  # noqa: DTZ001  # a DATETIME has no zone


def table(*types: DataType, nullable: bool = False) -> TableSchema:
    """A table with the columns ``c0``, ``c1`` … of these types."""
    columns = tuple(Column(f"c{place}", kind, nullable, None) for place, kind in enumerate(types))
    return TableSchema("db", "t", 7, 9, columns, ())


def row_of(schema: TableSchema, **raw: Raw) -> Dml:
    """An INSERT of these raw values."""
    return Dml(MessageType.INSERT, schema.schema, schema.table, 7, 5, 6, schema.version, raw)


@st.composite
def decimals(draw: st.DrawFn) -> DataType:
    length = draw(st.integers(1, 65))
    return binary("decimal", length=length, decimal=draw(st.integers(0, min(length, 30))))


def _with_fraction(mysql_type: str, whole: int) -> SearchStrategy[DataType]:
    return st.integers(0, 6).map(
        lambda digits: binary(mysql_type, length=whole + (digits and digits + 1), decimal=digits)
    )


data_types: Final[SearchStrategy[DataType]] = st.one_of(
    st.builds(binary, st.sampled_from(INTEGERS), unsigned=st.booleans()),
    st.builds(binary, st.sampled_from(["float", "double", "date", "json"])),
    st.just(binary("year", length=4, unsigned=True, zerofill=True)),
    st.builds(binary, st.just("bit"), length=st.integers(1, 64), unsigned=st.just(True)),
    decimals(),
    _with_fraction("datetime", 19),
    _with_fraction("timestamp", 19),
    _with_fraction("time", 10),
    st.builds(text, st.sampled_from(TEXTS), length=st.integers(0, 4_294_967_295)),
    st.builds(binary, st.sampled_from(BINARIES), length=st.integers(0, 4_294_967_295)),
    st.builds(text, st.sampled_from(["enum", "set"]), elements=labels.map(tuple)),
    st.builds(binary, st.just("vector"), length=st.sampled_from([-1, 1, 3])),
)
"""Every type that columns have."""

_ZONES: Final = (UTC, ZoneInfo("Asia/Shanghai"), ZoneInfo("America/St_Johns"))
_IRREGULAR_DAYS: Final = ("0000-00-00", "2020-00-10", "2021-02-31", "0000-01-01")


def single(number: float) -> float:
    """The number of single precision nearest to ``number``."""
    found: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return found


singles: Final = st.floats(width=32, allow_nan=False, allow_infinity=False)


def _moments(data_type: DataType) -> SearchStrategy[datetime]:
    unit = 10 ** (6 - fraction_digits(data_type))
    return st.datetimes().map(lambda moment: moment.replace(microsecond=moment.microsecond // unit * unit))


def _irregular(data_type: DataType, location: str | None) -> SearchStrategy[IrregularDate]:
    digits = fraction_digits(data_type)
    clock = f" 23:59:59{'.' if digits else ''}{'9' * digits}"
    return st.sampled_from([IrregularDate(day + clock, location) for day in _IRREGULAR_DAYS])


def _spans(data_type: DataType) -> SearchStrategy[timedelta]:
    unit = 10 ** (6 - fraction_digits(data_type))
    limit = (838 * 3600 + 3599) * 1_000_000 // unit
    return st.integers(-limit, limit).map(lambda number: timedelta(microseconds=number * unit))


def values(data_type: DataType) -> SearchStrategy[Any]:
    """Python values of a column, none of them null."""
    family = family_of(data_type)
    match family:
        case Family.INTEGER:
            return st.integers(*integer_range(data_type))
        case Family.YEAR:
            return st.just(0) | st.integers(1901, 2155)
        case Family.BIT:
            return st.integers(0, (1 << data_type.length) - 1)
        case Family.FLOAT:
            return singles
        case Family.DOUBLE:
            return st.floats(allow_nan=False, allow_infinity=False)
        case Family.DECIMAL:
            limit = 10**data_type.length - 1
            return st.integers(-limit, limit).map(lambda number: Decimal(f"{number}E-{data_type.decimal}"))
        case Family.DATE:
            return st.dates() | st.sampled_from([IrregularDate(day) for day in _IRREGULAR_DAYS])
        case Family.DATETIME:
            return _moments(data_type) | _irregular(data_type, None)
        case Family.TIMESTAMP:
            # In the years at the ends it may have no text in UTC.
            moments = _moments(data_type).filter(lambda moment: 1 < moment.year < 9999)
            zoned = st.builds(
                lambda moment, zone: moment.replace(tzinfo=zone), moments, st.sampled_from(_ZONES)
            )
            return zoned | _irregular(data_type, "UTC")
        case Family.TIME:
            return _spans(data_type)
        case Family.BINARY:
            return st.binary(max_size=12)
        case Family.ENUM:
            return st.just(INVALID_LABEL) | st.sampled_from(data_type.elements)
        case Family.SET:
            return st.frozensets(st.sampled_from(data_type.elements))
        case Family.JSON:
            return st.sampled_from(['{"a": 1}', "null", "[1, 2.50, 1e400]", '"<é>"'])
        case Family.VECTOR:
            size = data_type.length if data_type.length > 0 else 2
            return st.tuples(*[singles] * size)
        case Family.TEXT | None:
            return texts


def _defaults(data_type: DataType) -> SearchStrategy[str | int | None]:
    if data_type.mysql_type == "bit":
        return st.none() | u64s
    return st.none() | texts


@st.composite
def schemas(draw: st.DrawFn) -> TableSchema:
    """A table with one to eight columns of any type and up to three indexes."""
    column_names = draw(st.lists(names, min_size=1, max_size=8, unique=True))
    kinds = [draw(data_types) for _ in column_names]
    columns = tuple(
        Column(name, kind, draw(st.booleans()), draw(_defaults(kind)))
        for name, kind in zip(column_names, kinds, strict=True)
    )
    indexes = st.builds(
        Index,
        name=names,
        unique=st.booleans(),
        primary=st.booleans(),
        nullable=st.booleans(),
        columns=st.lists(st.sampled_from(column_names), min_size=1, unique=True).map(tuple),
    )
    return TableSchema(
        draw(names), draw(names), draw(i64s), draw(u64s), columns, tuple(draw(st.lists(indexes, max_size=3)))
    )


@st.composite
def rows(draw: st.DrawFn, schema: TableSchema) -> Row:
    """A row of Python values that fits ``schema``, in the order of its columns."""
    return {
        column.name: draw(
            st.none() | values(column.data_type) if column.nullable else values(column.data_type)
        )
        for column in schema.columns
    }


@st.composite
def dmls(draw: st.DrawFn, encoding: Encoding) -> tuple[TableSchema, Dml]:
    """A row's change with its schema; its raw values are those of ``encoding``."""
    schema = draw(schemas())
    kind = draw(st.sampled_from(sorted(DML_TYPES)))
    types = RowTypes(schema, encoding)
    data = None if kind is MessageType.DELETE else types.write(draw(rows(schema)), "a generated row")
    old = None if kind is MessageType.INSERT else types.write(draw(rows(schema)), "a generated row")
    checksum = draw(
        st.none()
        | st.builds(
            Checksum, st.integers(0, 2), st.booleans(), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)
        )
    )
    start_ts = draw(st.none() | st.integers(1, U64_MAX)) if encoding is Encoding.JSON else None
    message = Dml(
        kind,
        schema.schema,
        schema.table,
        draw(i64s),
        draw(u64s),
        draw(i64s),
        schema.version,
        data,
        old,
        checksum,
        start_ts,
    )
    return schema, message


def messages(encoding: Encoding) -> SearchStrategy[Message]:
    """Any message; rows have the raw values of ``encoding``."""
    return st.one_of(
        st.builds(Watermark, u64s, i64s),
        st.builds(Bootstrap, i64s, schemas()),
        st.builds(
            Ddl,
            st.sampled_from(sorted(DDL_TYPES)),
            texts,
            u64s,
            i64s,
            st.none() | schemas(),
            st.none() | schemas(),
        ),
        dmls(encoding).map(lambda found: found[1]),
    )
