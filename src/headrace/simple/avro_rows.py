"""The short way of rows: what nearly every message is, in the shape that nearly every one has.

``row_bytes`` and ``row_message`` know the heads of tables and the names of columns by heart, in bounded tables that the
codec fills after each message that went the long way (``avro_write``, ``avro_read``). They give up on whatever is unusual by
raising one of ``UNUSUAL``; the long way then has the message, or the error that names the fault. So a message means the same
on both. What is known by heart is found as whole bytes that were read before: a wrong guess at where they end finds nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from headrace.simple.avro_schema import (
    BYTES,
    DOUBLE,
    FLOAT,
    LONG,
    NULL,
    STRING,
    TIMESTAMP,
    UNSIGNED_BIGINT,
)
from headrace.simple.avro_varint import PAIR_OF, SIZES, long_bytes, u64_bytes
from headrace.simple.avro_write import DOUBLE_FORM, FLOAT_FORM, beginning, head_bytes, name_bytes
from headrace.simple.bounds import U64_MAX
from headrace.simple.message import Checksum, Dml, Float32, MessageType, Raw, Timestamp, UnsignedBigint

UNUSUAL: Final = (LookupError, OverflowError, TypeError, UnicodeError, struct.error)
"""What the short way raises where the long one is to be gone."""

KNOWN_MAX: Final = 1 << 15
"""Entries of each table below, 200 to 1,000 bytes each: the columns of thousands of tables. A full one is emptied."""

_BEGINNING: Final = beginning("DML")
_NULL: Final = b"\x00"
_PRESENT: Final = b"\x02"
_END: Final = b"\x00"
_PLAIN: Final = b"\x00\x00\x00"
"""Neither claimCheckLocation nor handleKeyOnly nor checksum."""
_WITH_CHECKSUM: Final = b"\x00\x00\x02"

_WITH_DATA: Final = frozenset({MessageType.INSERT, MessageType.UPDATE})
_WITH_OLD: Final = frozenset({MessageType.UPDATE, MessageType.DELETE})

_TIMES: Final = struct.Struct("<HHHHBHHBBHHHHB3s")
"""commitTs (9 bytes: later than 1974), buildTs (6 bytes: 1970 to 2039), schemaVersion (9 bytes), which fields follow."""

_BRANCH_OF: Final[Mapping[type, int]] = {
    type(None): NULL,
    int: LONG,
    Float32: FLOAT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    Timestamp: TIMESTAMP,
    UnsignedBigint: UNSIGNED_BIGINT,
}

_heads: dict[tuple[str, str, int, int, MessageType], tuple[bytes, bytes]] = {}
_entries: dict[str, tuple[bytes, ...]] = {}
_heads_read: dict[bytes, tuple[MessageType, str, str, int]] = {}
_entries_read: dict[bytes, tuple[str, int]] = {}


def row_bytes(message: Dml) -> bytes:
    """Return the Avro form of a row's message, or raise one of ``UNUSUAL``."""
    kind, data, old = message.type, message.data, message.old
    if (
        message.start_ts is not None
        or message.checksum is not None
        or (kind in _WITH_DATA) is not bool(data)
        or (kind in _WITH_OLD) is not bool(old)
    ):
        raise LookupError
    head, version = _heads[message.database, message.table, message.table_id, message.schema_version, kind]
    parts = [
        _BEGINNING,
        head,
        u64_bytes(message.commit_ts),
        long_bytes(message.build_ts),
        version,
        _PLAIN,
    ]
    for row in (data, old):
        if row:
            parts += (_PRESENT, SIZES[len(row)])
            _put_row(parts, row)
            parts.append(_END)
        else:
            parts.append(_NULL)
    return b"".join(parts)


def _put_row(parts: list[bytes], row: Mapping[str, Any]) -> None:
    entries, sizes = _entries, SIZES
    for name, value in row.items():
        kind = type(value)
        if kind is str:
            text = value.encode()
            parts += (entries[name][STRING], sizes[len(text)], text)
        elif kind is int:
            parts += (entries[name][LONG], long_bytes(value))
        elif value is None:
            parts.append(entries[name][NULL])
        elif kind is Timestamp:
            location, text = value.location.encode(), value.value.encode()
            parts += (entries[name][TIMESTAMP], sizes[len(location)], location, sizes[len(text)], text)
        elif kind is float:
            parts += (entries[name][DOUBLE], DOUBLE_FORM.pack(value))
        elif kind is UnsignedBigint:
            parts += (entries[name][UNSIGNED_BIGINT], u64_bytes(value.value))
        elif kind is bytes:
            parts += (entries[name][BYTES], sizes[len(value)], value)
        elif kind is Float32:
            parts += (entries[name][FLOAT], FLOAT_FORM.pack(value))
        else:
            raise LookupError


def learn_to_write(message: Dml) -> None:
    """Know the table and the columns of ``message``, which the long way has written, from now on."""
    if len(_heads) >= KNOWN_MAX:
        _heads.clear()
    key = message.database, message.table, message.table_id, message.schema_version, message.type
    _heads[key] = head_bytes(message), u64_bytes(message.schema_version)
    for row in (message.data, message.old):
        for name in row or ():
            if len(_entries) >= KNOWN_MAX:
                _entries.clear()
            _entries[name] = name_bytes(name)


def row_message(data: bytes) -> Dml:
    """Return the row's message in ``data``, or raise one of ``UNUSUAL``."""
    if data[:4] != _BEGINNING:
        raise LookupError
    at = 5 + (data[4] >> 1)
    at += 1 + (data[at] >> 1)
    while data[at] > 127:
        at += 1
    at += 2
    kind, database, table, table_id = _heads_read[data[4:at]]
    a, b, c, d, e, f, g, h, i, j, k, m, n, o, fields = _TIMES.unpack_from(data, at)
    if e > 127 or h < 128 or i > 127 or o > 127:
        raise LookupError
    pair = PAIR_OF
    commit_ts = pair[a] | pair[b] << 14 | pair[c] << 28 | pair[d] << 42 | e << 56
    build_ts = pair[f] | pair[g] << 14 | (h & 127) << 28 | i << 35
    version = pair[j] | pair[k] << 14 | pair[m] << 28 | pair[n] << 42 | o << 56
    at += _TIMES.size
    row = old = checksum = None
    if fields == _WITH_CHECKSUM:
        checksum, at = _take_checksum(data, at)
    elif fields != _PLAIN:
        raise LookupError
    if data[at] == 2:
        row, at = _take_row(data, at + 1)
    elif data[at]:
        raise LookupError
    else:
        at += 1
    if data[at] == 2:
        old, at = _take_row(data, at + 1)
    elif data[at]:
        raise LookupError
    if (kind in _WITH_DATA) is (row is None) or (kind in _WITH_OLD) is (old is None):
        raise LookupError
    return Dml(
        kind,
        database,
        table,
        table_id,
        ((commit_ts >> 1) ^ -(commit_ts & 1)) & U64_MAX,
        (build_ts >> 1) ^ -(build_ts & 1),
        ((version >> 1) ^ -(version & 1)) & U64_MAX,
        row,
        old,
        checksum,
    )


def _take_checksum(data: bytes, at: int) -> tuple[Checksum, int]:
    version, corrupted, current = data[at], data[at + 1], data[at + 2]
    at += 3
    if current > 127:
        current, at = _rest(data, at, current)
    previous = data[at]
    at += 1
    if previous > 127:
        previous, at = _rest(data, at, previous)
    if version & 0x81 or corrupted > 1 or (current | previous) & 1 or (current | previous) >> 33:
        raise LookupError
    return Checksum(version >> 1, corrupted == 1, current >> 1, previous >> 1), at


def _take_row(data: bytes, at: int) -> tuple[dict[str, Raw], int]:
    """One block of entries and the end of the map. Reading on from behind the end of ``data`` raises IndexError."""
    count = data[at]
    at += 1
    if count > 127:
        count = count & 127 | data[at] << 7
        at += 1
    if not count or count & 1 or count >= 1 << 14:
        raise LookupError
    row: dict[str, Raw] = {}
    known = _entries_read
    for _ in range(count >> 1):
        begin = at + 2 + (data[at] >> 1)
        name, branch = known[data[at:begin]]
        if branch == STRING:
            size = data[begin]
            begin += 1
            if size > 127:
                size, begin = _rest(data, begin, size)
            if size & 1:
                raise LookupError
            at = begin + (size >> 1)
            row[name] = data[begin:at].decode()
        elif branch == LONG:
            zigzag = data[begin]
            at = begin + 1
            if zigzag > 127:
                zigzag, at = _rest(data, at, zigzag)
            row[name] = (zigzag >> 1) ^ -(zigzag & 1)
        elif branch == NULL:
            at = begin
            row[name] = None
        else:
            row[name], at = _TAKERS[branch](data, begin)
    if len(row) != count >> 1 or data[at]:
        raise LookupError
    return row, at + 1


def _rest(data: bytes, at: int, first: int) -> tuple[int, int]:
    """The zig-zagged number whose first byte said that others follow, and where it ends."""
    zigzag = first & 127
    shift = 7
    while (byte := data[at]) > 127:
        zigzag |= (byte & 127) << shift
        shift += 7
        at += 1
    zigzag |= byte << shift
    if zigzag > U64_MAX or shift > 63:
        raise LookupError
    return zigzag, at + 1


def _take_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size = data[at]
    at += 1
    if size > 127:
        size, at = _rest(data, at, size)
    if size & 1:
        raise LookupError
    end = at + (size >> 1)
    return data[at:end], end


def _take_timestamp(data: bytes, at: int) -> tuple[Timestamp, int]:
    location, at = _take_bytes(data, at)
    value, at = _take_bytes(data, at)
    return Timestamp(location.decode(), value.decode()), at


def _take_unsigned(data: bytes, at: int) -> tuple[UnsignedBigint, int]:
    zigzag = data[at]
    at += 1
    if zigzag > 127:
        zigzag, at = _rest(data, at, zigzag)
    return UnsignedBigint(((zigzag >> 1) ^ -(zigzag & 1)) & U64_MAX), at


def _take_float(data: bytes, at: int) -> tuple[Float32, int]:
    return Float32(FLOAT_FORM.unpack_from(data, at)[0]), at + 4


def _take_double(data: bytes, at: int) -> tuple[float, int]:
    return DOUBLE_FORM.unpack_from(data, at)[0], at + 8


_TAKERS: Final[Any] = {
    FLOAT: _take_float,
    DOUBLE: _take_double,
    BYTES: _take_bytes,
    TIMESTAMP: _take_timestamp,
    UNSIGNED_BIGINT: _take_unsigned,
}


def learn_to_read(data: bytes, message: Dml) -> None:
    """Know the table and the columns of ``message``, which the long way has read from ``data``, from now on.

    Only what is written in the usual way is known afterwards: every number in as few bytes as it takes.
    """
    head = head_bytes(message)
    if data.startswith(head, len(_BEGINNING)) and data.startswith(_BEGINNING):
        if len(_heads_read) >= KNOWN_MAX:
            _heads_read.clear()
        _heads_read[head] = message.type, message.database, message.table, message.table_id
    for row in (message.data, message.old):
        for name, value in (row or {}).items():
            if len(_entries_read) >= KNOWN_MAX:
                _entries_read.clear()
            branch = _BRANCH_OF[type(value)]
            _entries_read[name_bytes(name)[branch]] = name, branch
