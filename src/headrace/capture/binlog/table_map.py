"""TABLE_MAP events: the shape of a table with its names, signs, character sets, labels and primary key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from itertools import starmap
from typing import Final, NamedTuple, TypeVar

from headrace.capture.binlog.charsets import labels_of
from headrace.capture.binlog.event import BinlogColumn, TableMap
from headrace.capture.binlog.fields import Fields, Malformed, utf8
from headrace.errors import BinlogUnsupported

Part = TypeVar("Part")

COLUMNS_MAX: Final = 4096
"""Columns of a table at most, as MySQL has it."""
_BODY_START: Final = 8
"""Behind the table's number and the flags; neither says anything of the shape."""


class ColumnType(IntEnum):
    """The numbers of column types in the binlog."""

    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


class _Detail(IntEnum):
    """The fields behind the columns' types, there with ``binlog_row_metadata``."""

    SIGNEDNESS = 1
    DEFAULT_CHARSET = 2
    COLUMN_CHARSET = 3
    COLUMN_NAME = 4
    SET_LABELS = 5
    ENUM_LABELS = 6
    GEOMETRY_TYPE = 7
    PRIMARY_KEY = 8
    PRIMARY_KEY_WITH_PREFIX = 9
    LABELS_DEFAULT_CHARSET = 10
    LABELS_COLUMN_CHARSET = 11


_T = ColumnType
_META_SIZES: Final[dict[int, int]] = {
    **dict.fromkeys((_T.FLOAT, _T.DOUBLE, _T.BLOB, _T.GEOMETRY, _T.JSON, _T.BLOB_COMPRESSED), 1),
    **dict.fromkeys((_T.TIMESTAMP2, _T.DATETIME2, _T.TIME2), 1),
    **dict.fromkeys((_T.VARCHAR, _T.VAR_STRING, _T.STRING, _T.VARCHAR_COMPRESSED), 2),
    **dict.fromkeys((_T.BIT, _T.NEWDECIMAL, _T.ENUM, _T.SET), 2),
}
_NUMERIC: Final = frozenset(
    {_T.TINY, _T.SHORT, _T.INT24, _T.LONG, _T.LONGLONG, _T.FLOAT, _T.DOUBLE, _T.NEWDECIMAL, _T.YEAR}
)
"""The types that the list of signs counts. MariaDB counts YEAR, which it holds as an unsigned byte."""
_WITH_LABELS: Final = frozenset({_T.ENUM, _T.SET})
_CHARACTER: Final = frozenset(
    {_T.VARCHAR, _T.VAR_STRING, _T.STRING, _T.BLOB, _T.VARCHAR_COMPRESSED, _T.BLOB_COMPRESSED, _T.GEOMETRY}
)
"""The types that the lists of character sets count. MariaDB counts GEOMETRY, which is a blob to it."""


class _Plain(NamedTuple):
    """What stands of a column in the main part of the event."""

    type: int
    meta: int
    nullable: bool


def read_table_map(body: bytes, charsets: Mapping[int, str]) -> TableMap:
    """Return the shape that the body of a TABLE_MAP event (without header and checksum) describes.

    ``charsets``: the id of each collation that the server has -> the name of its character set. Malformed, naming the
    field; BinlogUnsupported if the event has no names of columns, since ``binlog_row_metadata`` is not FULL.
    """
    fields = Fields(body)
    table_id = fields.number(6, "the table's number")
    fields.number(2, "the flags")
    database, table = fields.name("the database's name"), fields.name("the table's name")
    columns = _columns(fields)
    details = _details(fields)
    if _Detail.COLUMN_NAME not in details:
        raise BinlogUnsupported(
            f"the binlog does not name the columns of {database}.{table}",
            hint="SET GLOBAL binlog_row_metadata = FULL at the server (and in its configuration), then begin a new feed "
            "with a new snapshot.",
        )
    key = _primary_key(details, len(columns))
    return TableMap(
        table_id,
        database,
        table,
        _described(columns, details, charsets),
        tuple(place for place, _ in key),
        tuple(prefix for _, prefix in key),
        body[_BODY_START:],
    )


def _columns(fields: Fields) -> list[_Plain]:
    count = fields.packed("the number of columns")
    if not 1 <= count <= COLUMNS_MAX:
        raise Malformed("the number of columns", f"is {count}")
    types = fields.take(count, "the columns' types")
    metas = Fields(fields.sized("the columns' metadata"))
    plain = [_plain(type_, metas) for type_ in types]
    if metas.at != metas.end:
        raise Malformed("the columns' metadata", f"has {metas.end - metas.at} bytes more than the types need")
    nullable = fields.take((count + 7) // 8, "the bits of nullable columns")
    return [
        _Plain(column.type, column.meta, bool(nullable[place >> 3] >> (place & 7) & 1))
        for place, column in enumerate(plain)
    ]


def _plain(type_: int, metas: Fields) -> _Plain:
    if type_ not in _KNOWN:
        raise Malformed("the columns' types", f"hold {type_}, which this version does not know")
    size = _META_SIZES.get(type_, 0)
    meta = metas.number(size, "the columns' metadata")
    match type_:
        case _T.STRING:
            # The first byte is the real type; its two middle bits, inverted, are the length's above the second byte.
            real, low = meta & 0xFF, meta >> 8
            length = low | ((real & 0x30) ^ 0x30) << 4
            real |= 0x30
            if real not in {_T.STRING, _T.ENUM, _T.SET}:
                raise Malformed("the columns' metadata", f"makes type {real} of a string")
            return _Plain(real, length, nullable=False)
        case _T.BIT:
            return _Plain(type_, (meta >> 8) * 8 + (meta & 0xFF), nullable=False)
        case _T.NEWDECIMAL:
            return _Plain(type_, (meta & 0xFF) << 8 | meta >> 8, nullable=False)
        case _:
            return _Plain(type_, meta, nullable=False)


_KNOWN: Final = frozenset(ColumnType) - {_T.NULL}


def _details(fields: Fields) -> dict[int, Fields]:
    details: dict[int, Fields] = {}
    while fields.at < fields.end:
        detail = fields.number(1, "the kind of a detail")
        details[detail] = Fields(fields.sized(f"detail {detail}"))
    return details


def _described(
    columns: list[_Plain], details: dict[int, Fields], charsets: Mapping[int, str]
) -> tuple[BinlogColumn, ...]:
    names = _lists(
        details, _Detail.COLUMN_NAME, lambda fields: utf8(fields.sized("a column's name"), "a column's name")
    )
    unsigned = _signs(details, columns)
    texts = [place for place, column in enumerate(columns) if column.type in _CHARACTER]
    labelled = [place for place, column in enumerate(columns) if column.type in _WITH_LABELS]
    collation = {
        **_collations(details, texts, _Detail.DEFAULT_CHARSET, _Detail.COLUMN_CHARSET),
        **_collations(details, labelled, _Detail.LABELS_DEFAULT_CHARSET, _Detail.LABELS_COLUMN_CHARSET),
    }
    labels = {
        kind: _lists(details, detail, _raw_labels)
        for kind, detail in ((_T.ENUM, _Detail.ENUM_LABELS), (_T.SET, _Detail.SET_LABELS))
    }
    geometries = _lists(details, _Detail.GEOMETRY_TYPE, lambda fields: fields.packed("a type of geometry"))

    def described(place: int, column: _Plain) -> BinlogColumn:
        own = collation.get(place)
        charset = "" if own is None else charsets.get(own, "")
        raw = next(labels[_T(column.type)], ()) if column.type in _WITH_LABELS else ()
        geometric = column.type == _T.GEOMETRY
        name = next(names, None)
        if name is None:
            raise Malformed("the columns' names", f"are fewer than {len(columns)}")
        return BinlogColumn(
            name,
            column.type,
            column.meta,
            column.nullable,
            place in unsigned,
            None if geometric else own,
            "" if geometric else charset,
            labels_of(raw, charset),
            next(geometries, None) if geometric else None,
        )

    return tuple(starmap(described, enumerate(columns)))


def _lists(details: dict[int, Fields], detail: _Detail, read: Callable[[Fields], Part]) -> Iterator[Part]:
    fields = details.get(detail, Fields(b""))
    while fields.at < fields.end:
        yield read(fields)


def _raw_labels(fields: Fields) -> tuple[bytes, ...]:
    count = fields.packed("the number of labels")
    if count > fields.end - fields.at:
        raise Malformed("the number of labels", f"is {count}, more than the bytes that are left")
    return tuple(fields.sized("a label") for _ in range(count))


def _signs(details: dict[int, Fields], columns: list[_Plain]) -> frozenset[int]:
    """The places of the unsigned columns: a bit for each numeric one, from the highest of a byte on."""
    bits = details.get(_Detail.SIGNEDNESS, Fields(b"")).rest()
    numeric = [place for place, column in enumerate(columns) if column.type in _NUMERIC]
    if len(bits) * 8 < len(numeric):
        raise Malformed("the columns' signs", f"are fewer than the {len(numeric)} numeric columns")
    return frozenset(place for bit, place in enumerate(numeric) if bits[bit >> 3] << (bit & 7) & 0x80)


def _collations(
    details: dict[int, Fields], places: list[int], by_default: _Detail, by_column: _Detail
) -> dict[int, int]:
    """The collation of each of ``places``: one for all and pairs of those that differ, or a list."""
    if not places:
        return {}
    if by_column in details:
        fields = details[by_column]
        return {place: fields.packed("a column's collation") for place in places}
    if by_default not in details:
        raise Malformed("the columns' collations", "are missing")
    fields = details[by_default]
    found = dict.fromkeys(places, fields.packed("the default collation"))
    while fields.at < fields.end:
        index = fields.packed("the number of a column with its own collation")
        if index >= len(places):
            raise Malformed("the number of a column with its own collation", f"is {index} of {len(places)}")
        found[places[index]] = fields.packed("a column's collation")
    return found


def _primary_key(details: dict[int, Fields], count: int) -> list[tuple[int, int]]:
    """The places of the key's columns with what it takes of each: characters or bytes, 0 for all."""
    key: list[tuple[int, int]] = []
    for detail in (_Detail.PRIMARY_KEY, _Detail.PRIMARY_KEY_WITH_PREFIX):
        fields = details.get(detail, Fields(b""))
        while fields.at < fields.end:
            place = fields.packed("a column of the primary key")
            prefix = (
                fields.packed("a prefix of the primary key")
                if detail is _Detail.PRIMARY_KEY_WITH_PREFIX
                else 0
            )
            if place >= count:
                raise Malformed("a column of the primary key", f"is {place} of {count}")
            key.append((place, prefix))
    return key
