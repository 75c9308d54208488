"""The plugin ``wal2json``: what the plugin of that name writes in its format version 2, as far as a feed knows it. Pure.

Records come from rows of attached tables and of captured ones; ``docs/formats/pg-output.md`` says how, and where they differ
from those of the real plugin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from headrace.errors import InvalidRequest, SimpleInvalid, ValueUnfit
from headrace.server.pg.output import options
from headrace.server.pg.output.contract import Piece, Rendered, Schemas
from headrace.server.pg.output.fields import starts_of
from headrace.server.pg.output.shapes_in_force import ShapesInForce
from headrace.server.pg.output.table_lists import table_lists
from headrace.server.pg.output.table_shapes import Shape, ShapeOptions, untyped_shape
from headrace.simple import json_codec
from headrace.simple.message import Ddl, MessageType
from headrace.wire.documents import TIME_MS_MAX
from headrace.wire.entry import message_of
from headrace.wire.frame import HEADER_SIZE
from headrace.wire.generated import wal_pb2

_SWITCHES: Final = {
    "include-xids": False,
    "include-timestamp": False,
    "include-lsn": False,
    "include-schemas": True,
    "include-types": True,
    "include-pk": False,
    "include-not-null": False,
    "include-transaction": True,
}
"""What is on unless an option says otherwise; the same as in the real plugin."""
_OTHERS: Final = frozenset({"format-version", "add-tables", "filter-tables", "actions"})
_ACTIONS: Final = {"insert": "I", "update": "U", "delete": "D", "truncate": "T"}

_encode = msgspec.json.Encoder().encode


class _Members(msgspec.Struct, forbid_unknown_fields=False):
    """The rows of a message of the Simple Protocol, their values as JSON text."""

    type: str
    schema_version: int = msgspec.field(name="schemaVersion", default=0)
    data: dict[str, msgspec.Raw] | None = None
    old: dict[str, msgspec.Raw] | None = None


_row = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_message = msgspec.json.Decoder(_Members).decode


class _Change(NamedTuple):
    """What one entry says: an action, on which row; ``old`` is the row before it, as far as it is known."""

    action: str
    shape: Shape
    row: Mapping[str, Any]
    old: Mapping[str, Any]
    is_patch: bool = False


class Wal2Json:
    """The output of one stream."""

    def __init__(self, given: Mapping[str, str], schemas: Schemas) -> None:
        """InvalidRequest for an option that there is not, or a value that can't be read."""
        options.check_names("wal2json", given, {*_SWITCHES, *_OTHERS})
        self._is_on = {
            name: options.switch(given, name, unless_given=default) for name, default in _SWITCHES.items()
        }
        if given.get("format-version", "2").strip() != "2":
            raise InvalidRequest(
                f"format-version: {given['format-version'][:80]!r} is none that is written here",
                hint="Write format-version '2'.",
                member="format-version",
            )
        self._tables = table_lists(given)
        self._actions = _actions(given)
        self._shape_options = ShapeOptions(self._is_on["include-types"], self._is_on["include-not-null"])
        self._shapes = ShapesInForce(schemas, self._shape_options)
        self._held_begin: bytes | None = None
        """The B of the transaction that is rendered now, while nothing else was sent of it."""

    def render(self, piece: Piece) -> Rendered:
        """Return the records of a piece. What is no row and no TRUNCATE has none.

        B is sent with the transaction's first record, in whichever piece that is; without any there is no B and no C.

        Raises JournalCorrupt for what is no entry, ValueUnfit for a row that can't be read, and what ``schemas`` raises.
        """
        frame = piece.frame
        body, starts = frame.body, starts_of(frame)
        begin = frame.header.position + HEADER_SIZE + frame.header.area_size
        chosen: Sequence[int] = (
            piece.wanted if piece.wanted is not None else range(piece.first, piece.last + 1)
        )
        self._shapes.enter(piece)
        payloads: list[bytes] = []
        entries: list[int] = []
        for index in chosen:
            message = message_of(body[starts[index] : starts[index + 1]])
            record = self._record(piece, index, message, begin + starts[index])
            if record is not None:
                payloads.append(record)
                entries.append(index)
        if self._is_on["include-transaction"]:
            self._bound(piece, payloads, entries)
        return Rendered(payloads, entries)

    def _bound(self, piece: Piece, payloads: list[bytes], entries: list[int]) -> None:
        """Add B and C to a piece's records, if it is their turn."""
        if piece.begins:
            self._held_begin = self._bound_record("B", piece, piece.first)
        if payloads and self._held_begin is not None:
            payloads.insert(0, self._held_begin)
            entries.insert(0, piece.first)
            self._held_begin = None
        if piece.ends:
            if self._held_begin is None:
                payloads.append(self._bound_record("C", piece, piece.last))
                entries.append(piece.last)
            self._held_begin = None

    def _bound_record(self, action: str, piece: Piece, index: int) -> bytes:
        """Return a B or C that belongs to the entry ``index`` of the piece's frame."""
        header, starts = piece.frame.header, starts_of(piece.frame)
        message = message_of(piece.frame.body[starts[index] : starts[index + 1]])
        head = self._head(
            action, piece.xid, message, header.position + HEADER_SIZE + header.area_size + starts[index]
        )
        if self._is_on["include-lsn"]:
            head += b',"nextlsn":"%X/%X"' % divmod(header.end, 1 << 32)
        return head + b"}"

    def _head(self, action: str, xid: int, message: wal_pb2.WalEntry, position: int) -> bytes:
        parts = [b'{"action":"%b"' % action.encode()]
        if self._is_on["include-xids"]:
            parts.append(b',"xid":%d' % xid)
        if self._is_on["include-timestamp"]:
            parts.append(b',"timestamp":"%b"' % _timestamp(message.source_time_ms or message.committed_at_ms))
        if self._is_on["include-lsn"]:
            parts.append(b',"lsn":"%X/%X"' % divmod(position, 1 << 32))
        return b"".join(parts)

    def _record(self, piece: Piece, index: int, message: wal_pb2.WalEntry, position: int) -> bytes | None:
        """The record of an entry; None if it has none."""
        table = _table_of(message)
        if table is None or message.op_type == wal_pb2.OP_BATCH or not self._tables.has(*table):
            return None
        sequence_id = piece.frame.header.first_sequence_id + index
        parts = [b'"table":%b' % _encode(table[1])]
        if self._is_on["include-schemas"]:
            parts.insert(0, b'"schema":%b' % _encode(table[0]))
        if message.control:
            if "T" not in self._actions or not _is_truncate(message):
                return None
            return b",".join((self._head("T", piece.xid, message, position), *parts)) + b"}"
        try:
            change = self._change(piece, sequence_id, table, message)
            if change.action not in self._actions:
                return None
            if change.action != "D":
                columns = change.shape.given_json if change.is_patch else change.shape.columns_json
                parts.append(b'"columns":' + columns(change.row))
            if change.action != "I":
                parts.append(b'"identity":' + change.shape.identity_json(change.old))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, SimpleInvalid) as error:
            raise ValueUnfit(
                f"feed {piece.feed}, sequence id {sequence_id}, table {'.'.join(table)}: the row can't be read: {error}",
                change_feed_id=piece.feed,
                sequence_id=sequence_id,
                table=list(table),
                hint=_way_past(piece, table),
            ) from None
        if self._is_on["include-pk"]:
            parts.append(b'"pk":' + change.shape.pk)
        return b",".join((self._head(change.action, piece.xid, message, position), *parts)) + b"}"

    def _change(
        self, piece: Piece, sequence_id: int, table: tuple[str, str], message: wal_pb2.WalEntry
    ) -> _Change:
        shape = self._shapes.newest(piece, table, sequence_id)
        if shape is not None and shape.captured:
            return self._captured(piece, table, shape, message.value)
        row = _row(message.value)
        if shape is None:
            shape = untyped_shape(row, self._shape_options)
        if message.op_type == wal_pb2.OP_DELETE:
            return _Change("D", shape, row, row)
        if message.HasField("before"):
            return _Change("U", shape, row, _row(message.before), message.patch)
        # An UPDATE of a key's column is a delete and a put: what is new under its key is an INSERT for who folds.
        is_update = message.patch or (message.changed and set(shape.key).isdisjoint(message.changed))
        return _Change("U" if is_update else "I", shape, row, row, message.patch)

    def _captured(self, piece: Piece, table: tuple[str, str], newest: Shape, value: bytes) -> _Change:
        message = _message(value)
        shape = self._shapes.version(piece, table, message.schema_version) or newest
        data, old = message.data or {}, message.old or {}
        if message.type == MessageType.DELETE:
            return _Change("D", shape, old, old)
        return _Change("U" if old else "I", shape, data, old)


def _way_past(piece: Piece, table: tuple[str, str]) -> str:
    """What a client can do whose slot has come to a row that can't be read: it stays in the journal as it is."""
    written = ".".join(re.sub(r"([\\., *])", r"\\\1", name) for name in table).replace("'", "''")
    hint = f"Leave the table out: filter-tables '{written}'."
    if piece.sent_by:
        behind = f"{piece.sent_by >> 32:X}/{piece.sent_by & 0xFFFFFFFF:X}"
        hint += f" Or leave out all that is sent with this append: START_REPLICATION ... LOGICAL {behind} goes on behind it."
    return hint


def _table_of(message: wal_pb2.WalEntry) -> tuple[str, str] | None:
    """Schema and table of an entry; None if it is about none, or about a whole database."""
    names = list(message.table)
    return (names[0], names[1]) if len(names) == 2 else None


def _is_truncate(message: wal_pb2.WalEntry) -> bool:
    """Tell whether a control entry empties its table: of an attached one by its name, of a captured one by its statement."""
    if message.control == "truncate":
        return True
    if message.control != "ddl":
        return False
    try:
        statement = json_codec.decode(message.value)
    except SimpleInvalid:
        return False
    return isinstance(statement, Ddl) and statement.type is MessageType.TRUNCATE


def _actions(given: Mapping[str, str]) -> frozenset[str]:
    text = given.get("actions")
    if text is None:
        return frozenset(_ACTIONS.values())
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in _ACTIONS:
            raise InvalidRequest(
                f"actions: {name[:80]!r} is none", hint=f"There are {', '.join(_ACTIONS)}.", member="actions"
            )
    return frozenset(_ACTIONS[name] for name in names)


def _timestamp(ms: int) -> bytes:
    """UTC milliseconds as PostgreSQL prints a ``timestamptz`` in UTC."""
    moment = datetime.fromtimestamp(min(ms, TIME_MS_MAX) // 1000, UTC)
    fraction = f".{min(ms, TIME_MS_MAX) % 1000:03d}".rstrip("0").rstrip(".")
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}+00".encode()
