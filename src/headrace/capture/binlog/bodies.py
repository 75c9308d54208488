"""The bodies of events, without header and checksum, one function for each kind. Those of tables and rows stand apart."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from headrace.capture.binlog.charsets import reader_of
from headrace.capture.binlog.event import (
    AlterPhase,
    Annotated,
    Begin,
    Commit,
    Ended,
    Event,
    Gtid,
    GtidList,
    GtidPosition,
    Ignored,
    Incident,
    Statement,
    XaPrepared,
)
from headrace.capture.binlog.fields import Fields, Malformed, unpacked, utf8


class Header(NamedTuple):
    """What every event says, with its kind's number."""

    kind: int
    time_s: int
    server_id: int
    end: int


Reader = Callable[[Header, bytes, Mapping[int, str]], Event]
"""Reads a body; Malformed names the field that does not fit. The mapping: collation's id -> its character set's name."""

_GTID: Final = struct.Struct("<QIB")
_GTID_LIST_ITEM: Final = struct.Struct("<IIQ")
_XID: Final = struct.Struct("<Q")
_GTID_LIST_COUNT: Final = (1 << 28) - 1
"""The other bits of the count are flags."""

_STANDALONE, _GROUP_COMMIT, _DDL, _XA_PREPARED, _XA_COMPLETED = 0x01, 0x02, 0x20, 0x40, 0x80
_ENGINES: Final = 0x01
_PHASES: Final = {0x02: AlterPhase.START, 0x04: AlterPhase.COMMIT, 0x08: AlterPhase.ROLLBACK}

_FLAGS2, _SQL_MODE, _AUTO_INCREMENT, _CHARSET, _TIME_ZONE, _CATALOG = 0, 1, 3, 4, 5, 6
_STATUS_SIZES: Final = {_FLAGS2: 4, _SQL_MODE: 8, _AUTO_INCREMENT: 4, _CHARSET: 6}
_STATUS_SIZED: Final = frozenset({_TIME_ZONE, _CATALOG})
"""These stand behind one byte with their length."""
_ANSI_QUOTES: Final = 1 << 2
_NO_BACKSLASH_ESCAPES: Final = 1 << 20


def read_gtid(header: Header, body: bytes, _: Mapping[int, str]) -> Event:
    """GTID."""
    if len(body) < _GTID.size:
        raise Malformed("the GTID", f"needs {_GTID.size} bytes where {len(body)} are left")
    sequence, domain, flags = _GTID.unpack_from(body)
    gtid = Gtid(domain, header.server_id, sequence)
    xa = flags & (_XA_PREPARED | _XA_COMPLETED)
    at = _GTID.size + (8 if flags & _GROUP_COMMIT else 0)
    if xa:
        fields = Fields(body, at)
        fields.take(4, "the format of the XA transaction's id")
        size = fields.number(1, "the length of an XA id") + fields.number(1, "the length of an XA id")
        fields.take(size, "the XA transaction's id")
        at = fields.at
    extra = body[at] if at < len(body) else 0
    phases = [phase for bit, phase in _PHASES.items() if extra & bit] if extra else []
    if len(phases) > 1:
        raise Malformed("the flags of the GTID", f"are {extra:#x}, several phases of one ALTER TABLE")
    return Begin(
        *header[1:],
        gtid,
        bool(flags & _STANDALONE),
        bool(flags & _DDL),
        bool(xa),
        phases[0] if phases else None,
    )


def read_xid(header: Header, body: bytes, _: Mapping[int, str]) -> Event:
    """XID."""
    if len(body) != _XID.size:
        raise Malformed("the transaction's number", f"has {len(body)} bytes, not {_XID.size}")
    return Commit(*header[1:], _XID.unpack(body)[0])


def read_query(header: Header, body: bytes, charsets: Mapping[int, str]) -> Event:
    """QUERY."""
    return _read_query(header, body, charsets, lambda text: text)


def read_compressed_query(header: Header, body: bytes, charsets: Mapping[int, str]) -> Event:
    """QUERY_COMPRESSED: the statement's text is compressed."""
    return _read_query(header, body, charsets, lambda text: unpacked(text, "the statement"))


def _read_query(
    header: Header, body: bytes, charsets: Mapping[int, str], text_of: Callable[[bytes], bytes]
) -> Event:
    fields = Fields(body)
    fields.take(8, "the thread and the time that it took")
    database_size = fields.number(1, "the length of the database's name")
    error = fields.number(2, "the error")
    mode, collation = _status(Fields(fields.take(fields.number(2, "the length of the state"), "the state")))
    database = utf8(fields.take(database_size, "the database's name"), "the database's name")
    if fields.number(1, "the end of the database's name"):
        raise Malformed("the end of the database's name", "is not NUL")
    charset = charsets.get(collation, "utf8mb4") if collation is not None else "utf8mb4"
    return Statement(
        *header[1:],
        database,
        _text(text_of(fields.rest()), charset),
        charset,
        bool(mode & _ANSI_QUOTES),
        bool(mode & _NO_BACKSLASH_ESCAPES),
        error,
    )


def _status(fields: Fields) -> tuple[int, int | None]:
    """The statement's SQL mode and the id of its client's collation; both stand before anything of a newer server."""
    mode, collation = 0, None
    while fields.at < fields.end:
        kind = fields.number(1, "the state")
        if kind in _STATUS_SIZES:
            value = fields.take(_STATUS_SIZES[kind], f"part {kind} of the state")
            if kind == _SQL_MODE:
                mode = int.from_bytes(value, "little")
            elif kind == _CHARSET:
                collation = int.from_bytes(value[:2], "little")
        elif kind in _STATUS_SIZED:
            fields.take(fields.number(1, f"part {kind} of the state"), f"part {kind} of the state")
        else:
            break
    return mode, collation


def _text(data: bytes, charset: str) -> str:
    read = reader_of(charset)
    try:
        return read(data) if read is not None else data.decode("utf-8", "replace")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def read_gtid_list(header: Header, body: bytes, _: Mapping[int, str]) -> Event:
    """GTID_LIST. Of a domain's servers the last in the list is the one that was written last."""
    fields = Fields(body)
    count = fields.number(4, "the number of GTIDs") & _GTID_LIST_COUNT
    items = fields.take(count * _GTID_LIST_ITEM.size, "the GTIDs")
    gtids = tuple(Gtid(*item) for item in _GTID_LIST_ITEM.iter_unpack(items))
    last = {gtid.domain: gtid for gtid in gtids}
    return GtidList(*header[1:], gtids, GtidPosition(tuple(sorted(last.values()))))


def read_annotation(header: Header, body: bytes, _: Mapping[int, str]) -> Event:
    """ANNOTATE_ROWS. Its character set is not told; what is no UTF-8 of it is U+FFFD."""
    return Annotated(*header[1:], body.decode("utf-8", "replace"))


def read_xa_prepare(header: Header, body: bytes, _: Mapping[int, str]) -> Event:
    """XA_PREPARE."""
    return XaPrepared(*header[1:], bool(Fields(body).number(1, "the number of phases")))


def read_incident(header: Header, body: bytes, _: Mapping[int, str]) -> Event:
    """INCIDENT."""
    fields = Fields(body)
    kind = fields.number(2, "the incident")
    text = (
        fields.take(fields.number(1, "the incident's text"), "the incident's text")
        if fields.at < fields.end
        else b""
    )
    return Incident(*header[1:], text.decode("utf-8", "replace") or f"incident {kind}")


def read_end(header: Header, _body: bytes, _: Mapping[int, str]) -> Event:
    """STOP."""
    return Ended(*header[1:])


def read_nothing(header: Header, _body: bytes, _: Mapping[int, str]) -> Event:
    """An event that changes nothing for a reader."""
    return Ignored(*header[1:], header.kind)
