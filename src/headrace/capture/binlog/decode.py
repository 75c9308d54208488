"""One event's bytes -> its value: header, checksum, and whose body it is.

An event is a packet of the connection without the byte before it, or what stands in a file behind the first four bytes.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Mapping
from typing import Final, NoReturn

from headrace.capture.binlog import bodies
from headrace.capture.binlog.bodies import Header, Reader
from headrace.capture.binlog.event import (
    Event,
    Format,
    Heartbeat,
    Place,
    Rotate,
    RowsChanged,
    RowsKind,
    TableMap,
    TableMapped,
)
from headrace.capture.binlog.fields import Fields, Malformed, unpacked, utf8
from headrace.capture.binlog.kinds import MYSQL, STATEMENT_FORMAT, EventKind, kind_name
from headrace.capture.binlog.table_map import COLUMNS_MAX, read_table_map
from headrace.errors import BinlogInvalid, BinlogUnsupported

_HEADER: Final = struct.Struct("<IBIIIH")
_HEADER_SIZE: Final = 19
_CHECKSUM_SIZE: Final = 4
_CHECKED_SIZE_MIN: Final = _HEADER_SIZE + _CHECKSUM_SIZE
_CRC_OF_CHECKED: Final = zlib.crc32(bytes(4) + zlib.crc32(bytes(4)).to_bytes(4, "little"))
"""What the CRC-32 of any bytes is that are followed by their own CRC-32."""
_IN_USE, _ARTIFICIAL, _IGNORABLE = 0x01, 0x20, 0x80
_FLAGS_AT: Final = 17
_NO_CHECKSUM, _CRC32 = 0, 1
_FORMAT: Final = struct.Struct("<H50sIB")
_FORMAT_VERSION: Final = 4
_POST_HEADER_SIZES: Final = {
    EventKind.QUERY: 13,
    EventKind.TABLE_MAP: 8,
    EventKind.WRITE_ROWS_V1: 8,
    EventKind.GTID: 19,
}
"""Sizes that the readers of bodies take for granted; a server says its own in FORMAT_DESCRIPTION."""
_ROTATE_HEADER_SIZE: Final = 8
_FILE: Final = re.compile(r"[^\x00-\x1f/]{1,255}\.[0-9]{1,10}")
_ROWS_HEADER_SIZE: Final = 8
_HEARTBEAT, _TABLE_MAP = int(EventKind.HEARTBEAT), int(EventKind.TABLE_MAP)
_ROTATE, _FORMAT_DESCRIPTION = int(EventKind.ROTATE), int(EventKind.FORMAT_DESCRIPTION)
"""Plain numbers, since each event is compared with them."""
_ROWS_END: Final = 0x01
_ONE_BYTE_MAX: Final = 250
_MAPS_MAX: Final = 4096
"""Shapes of tables remembered; a server makes a new number for each table that it opens again."""

_READERS: Final[dict[int, Reader]] = {
    EventKind.QUERY: bodies.read_query,
    EventKind.QUERY_COMPRESSED: bodies.read_compressed_query,
    EventKind.XID: bodies.read_xid,
    EventKind.GTID: bodies.read_gtid,
    EventKind.GTID_LIST: bodies.read_gtid_list,
    EventKind.ANNOTATE_ROWS: bodies.read_annotation,
    EventKind.XA_PREPARE: bodies.read_xa_prepare,
    EventKind.INCIDENT: bodies.read_incident,
    EventKind.STOP: bodies.read_end,
    **dict.fromkeys((EventKind.INTVAR, EventKind.RAND, EventKind.USER_VAR), bodies.read_nothing),
    **dict.fromkeys((EventKind.IGNORABLE, EventKind.BINLOG_CHECKPOINT), bodies.read_nothing),
    EventKind.START_ENCRYPTION: bodies.read_nothing,
}
_ROWS: Final[dict[int, tuple[RowsKind, bool, bool]]] = {
    EventKind.WRITE_ROWS_V1: (RowsKind.INSERT, False, False),
    EventKind.UPDATE_ROWS_V1: (RowsKind.UPDATE, False, False),
    EventKind.DELETE_ROWS_V1: (RowsKind.DELETE, False, False),
    EventKind.WRITE_ROWS: (RowsKind.INSERT, True, False),
    EventKind.UPDATE_ROWS: (RowsKind.UPDATE, True, False),
    EventKind.DELETE_ROWS: (RowsKind.DELETE, True, False),
    EventKind.WRITE_ROWS_COMPRESSED_V1: (RowsKind.INSERT, False, True),
    EventKind.UPDATE_ROWS_COMPRESSED_V1: (RowsKind.UPDATE, False, True),
    EventKind.DELETE_ROWS_COMPRESSED_V1: (RowsKind.DELETE, False, True),
    EventKind.WRITE_ROWS_COMPRESSED: (RowsKind.INSERT, True, True),
    EventKind.UPDATE_ROWS_COMPRESSED: (RowsKind.UPDATE, True, True),
    EventKind.DELETE_ROWS_COMPRESSED: (RowsKind.DELETE, True, True),
}
"""Kind of an event -> what it does, whether extra data stands before the rows, whether they are compressed."""


class Decoder:
    """Reads the events of one connection, or of one file, in their order: it knows from them the file, and what follows.

    ``charsets``: the id of each collation that the server has -> the name of its character set.
    """

    def __init__(self, charsets: Mapping[int, str]) -> None:
        self._charsets = charsets
        self._checksums: bool | None = None
        self._file = ""
        self._end = 0
        self._maps: dict[bytes, TableMap] = {}

    @property
    def place(self) -> Place:
        """Where the last event ends; its file is ``""`` as long as no ROTATE has told it."""
        return Place(self._file, self._end)

    def decode(self, event: bytes) -> Event:
        """Return the event's value.

        BinlogInvalid, naming kind, place and field: the bytes are not what the format says, or their checksum is another.
        BinlogUnsupported: it is of a kind that this version does not read and that may not be left out.
        """
        size = len(event)
        if size < _HEADER_SIZE:
            raise BinlogInvalid(
                f"an event of {size} bytes {self._after()} has no header of {_HEADER_SIZE} bytes"
            )
        time_s, kind, server_id, told, log_pos, flags = _HEADER.unpack_from(event)
        if told != size:
            self._fail(kind, log_pos, told, f"its length is told as {told} bytes, but it has {size}")
        if self._checksums and size >= _CHECKED_SIZE_MIN and zlib.crc32(event) == _CRC_OF_CHECKED:
            stop = size - _CHECKSUM_SIZE
        else:
            stop = self._body_end(event, kind, log_pos, flags)
        if kind == _HEARTBEAT:
            return self._heartbeat(
                Header(kind, time_s, server_id, self._end), event[_HEADER_SIZE:stop], log_pos
            )
        start = self._end
        if log_pos == start + size:
            self._end = log_pos
        elif log_pos:
            # The header has the lowest 32 bits of the offset alone, and a large transaction may make a file larger.
            apart = (log_pos - start + (1 << 31)) % (1 << 32) - (1 << 31)
            self._end = start + apart if start + apart >= 0 else log_pos
            start = self._end - size
        try:
            if kind == _TABLE_MAP:
                return TableMapped(time_s, server_id, self._end, self._table_map(event[_HEADER_SIZE:stop]))
            header = Header(kind, time_s, server_id, self._end)
            if kind in _ROWS:
                return _rows(header, event, stop)
            if kind in _READERS:
                return _READERS[kind](header, event[_HEADER_SIZE:stop], self._charsets)
            if kind == _ROTATE:
                return self._rotate(header, event[_HEADER_SIZE:stop], flags)
            if kind == _FORMAT_DESCRIPTION:
                return self._format(header, event[_HEADER_SIZE:stop])
        except Malformed as error:
            self._fail(kind, log_pos, size, str(error))
        if flags & _IGNORABLE:
            return bodies.read_nothing(header, b"", self._charsets)
        raise BinlogUnsupported(
            f"{kind_name(kind)} event at offset {start} of {self._file}: {_why_unsupported(kind)}"
        )

    def _body_end(self, event: bytes, kind: int, log_pos: int, flags: int) -> int:
        """The offset at which the body ends and the checksum begins, if there is one; what it says is looked at."""
        stop = len(event) - _CHECKSUM_SIZE
        if kind == _FORMAT_DESCRIPTION:
            if stop > _HEADER_SIZE and event[stop - 1] == _NO_CHECKSUM:
                return stop  # to a reader of the file's middle the server sends it without a time, under its old checksum
            if flags & _IN_USE:  # taken away when the file is closed: no checksum knows it
                cleared = (flags & ~_IN_USE).to_bytes(2, "little")
                event = event[:_FLAGS_AT] + cleared + event[_FLAGS_AT + 2 :]
        elif self._checksums is False:
            return len(event)
        if stop >= _HEADER_SIZE and zlib.crc32(memoryview(event)[:stop]) == int.from_bytes(
            event[stop:], "little"
        ):
            return stop
        if self._checksums is None and kind in {_ROTATE, _HEARTBEAT}:
            return len(event)  # before the first FORMAT_DESCRIPTION nobody knows whether there are checksums
        return self._fail(kind, log_pos, len(event), "its checksum is another")

    def _table_map(self, body: bytes) -> TableMap:
        known = self._maps.get(body)
        if known is None:
            known = read_table_map(body, self._charsets)
            if len(self._maps) >= _MAPS_MAX:
                self._maps.clear()
            self._maps[body] = known
        return known

    def _rotate(self, header: Header, body: bytes, flags: int) -> Event:
        fields = Fields(body)
        offset = fields.number(_ROTATE_HEADER_SIZE, "the offset")
        file = _file_name(fields.rest())
        fake = bool(flags & _ARTIFICIAL) or not header.time_s
        end = self._end
        self._file, self._end = file, offset
        return Rotate(header.time_s, header.server_id, end, file, offset, fake)

    def _heartbeat(self, header: Header, body: bytes, log_pos: int) -> Event:
        try:
            # An offset that the header can't hold stands before the name.
            return Heartbeat(*header[1:], _file_name(body[8:] if not log_pos and len(body) > 8 else body))
        except Malformed as error:
            self._fail(header.kind, 0, _HEADER_SIZE, str(error))

    def _format(self, header: Header, body: bytes) -> Event:
        if len(body) <= _FORMAT.size:
            raise Malformed("the format", f"needs more than {_FORMAT.size} bytes, not {len(body)}")
        version, server, _, header_size = _FORMAT.unpack_from(body)
        sizes, algorithm = body[_FORMAT.size : -1], body[-1]
        if version != _FORMAT_VERSION or header_size != _HEADER_SIZE:
            raise Malformed("the format", f"is version {version} with headers of {header_size} bytes")
        if len(sizes) < EventKind.GTID:
            raise BinlogUnsupported(
                "the binlog was not written by MariaDB 10 or newer; MySQL is not supported"
            )
        for kind, size in _POST_HEADER_SIZES.items():
            if sizes[kind - 1] != size:
                raise Malformed(
                    "the format", f"says {sizes[kind - 1]} bytes for the head of {kind.name}, not {size}"
                )
        if algorithm not in {_NO_CHECKSUM, _CRC32}:
            raise Malformed(
                "the format", f"names the checksum algorithm {algorithm}, which this version does not know"
            )
        self._checksums = algorithm == _CRC32
        return Format(*header[1:], server.rstrip(b"\0").decode("ascii", "replace"), self._checksums)

    def _after(self) -> str:
        return f"behind offset {self._end} of {self._file}" if self._file else "before the first ROTATE"

    def _fail(self, kind: int, log_pos: int, size: int, why: str) -> NoReturn:
        at = f"at offset {log_pos - size} of {self._file}" if log_pos >= size else self._after()
        raise BinlogInvalid(f"{kind_name(kind)} event {at}: {why}") from None


def _rows(header: Header, event: bytes, stop: int) -> Event:
    kind, with_extra, is_compressed = _ROWS[header.kind]
    at = _HEADER_SIZE + _ROWS_HEADER_SIZE
    if with_extra:
        extra = int.from_bytes(event[at : at + 2], "little")
        if extra < 2:
            raise Malformed("the extra data", f"says that it has {extra} bytes, its length included")
        at += extra
    if at >= stop:
        raise Malformed("the rows", "end before the number of columns")
    count = event[at]
    at += 1
    if count > _ONE_BYTE_MAX:
        fields = Fields(event[:stop], at - 1)
        count, at = fields.packed("the number of columns"), fields.at
    size = (count + 7) >> 3
    images = 2 if kind is RowsKind.UPDATE else 1
    data_at = at + size * images
    if not 1 <= count <= COLUMNS_MAX or data_at > stop:
        raise Malformed("the bits of the columns", f"do not fit {count} columns")
    data = event[data_at:stop]
    return RowsChanged(
        header.time_s,
        header.server_id,
        header.end,
        kind,
        int.from_bytes(event[_HEADER_SIZE : _HEADER_SIZE + 6], "little"),
        count,
        None if kind is RowsKind.INSERT else event[at : at + size],
        None if kind is RowsKind.DELETE else event[data_at - size : data_at],
        unpacked(data, "the rows") if is_compressed else data,
        bool(event[_HEADER_SIZE + 6] & _ROWS_END),
    )


def _file_name(data: bytes) -> str:
    name = utf8(data, "the file's name")
    if not _FILE.fullmatch(name):
        raise Malformed("the file's name", f"is {name!r}, no name of a binlog file")
    return name


def _why_unsupported(kind: int) -> str:
    if kind in MYSQL:
        return "only MySQL writes such events, and it is not supported"
    if kind in STATEMENT_FORMAT:
        return "the rows of LOAD DATA were logged as a statement; set binlog_format = ROW"
    return "this version does not know such events"
