"""Control entries of a captured feed: schemas, DDL, watermarks, copies, tables that are stopped. Pure.

One that no append can hold raises TableStopped, like a row that is too large.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from headrace.entries.entry import Change, WireOp
from headrace.errors import TableStopped
from headrace.simple import json_codec
from headrace.simple.message import Bootstrap, Ddl, Watermark
from headrace.simple.schema import TableSchema
from headrace.wire.keyed import keyed_field, rest_of

ENTRY_BYTES_MAX: Final = 1 << 20
"""Largest producer's half that a server takes."""

MESSAGE_BYTES_SURE: Final = ENTRY_BYTES_MAX - (16 << 10)
"""A message that is no larger fits into an entry: key (3,072 bytes at a server, twice as many in JSON) and names take far
less than the rest."""

_ENCODE: Final = msgspec.json.Encoder().encode


class ControlEntry(NamedTuple):
    """An entry that is no row: its reserved key, its value, and the table it is about (``()`` if it is about none)."""

    control: str
    key: bytes
    value: bytes
    table: tuple[str, ...]

    @property
    def name(self) -> str:
        """How errors name it."""
        return self.key[1:].decode()

    @property
    def rest(self) -> bytes:
        """What stands behind the checksum, but for what its transaction puts before it."""
        return rest_of(Change(b"", control=self.control, table=self.table))

    def alone(self) -> bytes:
        """Return the ``entries`` field of an entry that belongs to no transaction."""
        return keyed_field(WireOp.PUT, self.key, self.value, self.rest)


def schema_entry(schema: TableSchema, build_ts: int) -> ControlEntry:
    """Return the schema that the rows after it have, as a BOOTSTRAP message."""
    value = json_codec.encode(Bootstrap(build_ts, schema))
    return _about("schema", (schema.schema, schema.table), schema.version, value)


def ddl_entry(message: Ddl, database: str, table: str) -> ControlEntry:
    """Return a DDL statement; ``table`` is ``""`` for one about a whole database."""
    return _about("ddl", (database, table), message.commit_ts, json_codec.encode(message))


def watermark_entry(commit_ts: int, build_ts: int) -> ControlEntry:
    """Return a WATERMARK: everything up to ``commit_ts`` stands before it."""
    value = json_codec.encode(Watermark(commit_ts, build_ts))
    return ControlEntry("watermark", b"\0watermark/%d" % commit_ts, value, ())


def copy_begin_entry(schema: TableSchema, number: int) -> ControlEntry:
    """Return what stands before the rows of copy ``number`` of a table."""
    return _about_copy("copy-begin", schema, number, {})


def copy_end_entry(schema: TableSchema, number: int, rows: int) -> ControlEntry:
    """Return what stands behind the last of the ``rows`` rows of copy ``number``."""
    return _about_copy("copy-end", schema, number, {"rows": rows})


def stopped_entry(database: str, table: str, commit_ts: int, reason: str) -> ControlEntry:
    """Return what says that no more changes of the table come, and why, until it is copied again."""
    value = _ENCODE({"database": database, "table": table, "reason": reason})
    return _about("stopped", (database, table), commit_ts, value)


def _about(control: str, table: tuple[str, str], number: int, value: bytes) -> ControlEntry:
    if len(value) > MESSAGE_BYTES_SURE:
        raise TableStopped(
            f"the {control} of {table[0]}.{table[1]} takes {len(value)} bytes; the most is {MESSAGE_BYTES_SURE}",
            hint="Shorten the comment in the statement, or the labels; then run headrace capture copy for this table.",
            database=table[0],
            table=table[1],
        )
    return ControlEntry(control, f"\0{control}/{table[0]}/{table[1]}/{number}".encode(), value, table)


def _about_copy(control: str, schema: TableSchema, number: int, more: dict[str, int]) -> ControlEntry:
    value = {"database": schema.schema, "table": schema.table, "version": schema.version, **more}
    return _about(control, (schema.schema, schema.table), number, _ENCODE(value))
