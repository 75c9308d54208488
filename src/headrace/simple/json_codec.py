"""Messages <-> their JSON form, byte for byte as TiCDC writes it. Reads what both of its generations write.

A message is one JSON object: compact, members in a fixed order, left out where they are empty; the columns of a row sorted
by the bytes of their names; ``<``, ``>``, ``&``, U+2028 and U+2029 as escapes. ``docs/formats/simple.md`` has the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

import msgspec

from headrace.errors import SimpleInvalid, SimpleUnsupported
from headrace.simple.bounds import check_message, check_schema
from headrace.simple.faults import Shown, invalid, show, unsupported
from headrace.simple.json_faults import RAW_EXPECTED, WHOLE, fault_of, glimpse
from headrace.simple.message import (
    DML_TYPES,
    VERSION,
    Bootstrap,
    Checksum,
    Ddl,
    Dml,
    Message,
    MessageType,
    RawRow,
    Timestamp,
    Watermark,
    name_of,
)
from headrace.simple.schema import TableSchema

_NAMES: Final = {
    "table_id": "tableID",
    "commit_ts": "commitTs",
    "start_ts": "startTs",
    "build_ts": "buildTs",
    "schema_version": "schemaVersion",
    "claim_check_location": "claimCheckLocation",
    "handle_key_only": "handleKeyOnly",
    "table_schema": "tableSchema",
    "pre_table_schema": "preTableSchema",
}

JsonRow = dict[str, str | Timestamp | None]


class _Envelope(msgspec.Struct, omit_defaults=True, rename=_NAMES):
    """Every member of every message, in the order in which they are written; ``type`` and the times always are."""

    version: int
    database: str = ""
    table: str = ""
    table_id: int = 0
    type: MessageType | None = None
    sql: str = ""
    commit_ts: int | None = None
    start_ts: int | None = None
    build_ts: int | None = None
    schema_version: int = 0
    claim_check_location: str = ""
    handle_key_only: bool = False
    checksum: Checksum | None = None
    data: JsonRow | None = None
    old: JsonRow | None = None
    table_schema: TableSchema | None = None
    pre_table_schema: TableSchema | None = None


# "deterministic" sorts the names of columns; members keep the order of their class.
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_DECODER: Final = msgspec.json.Decoder(_Envelope)
_SCHEMA_DECODER: Final = msgspec.json.Decoder(TableSchema)
_RAW_TYPES: Final = frozenset({str, Timestamp, type(None)})


def encode(message: Message) -> bytes:
    """Return the JSON form of ``message``, without a line end.

    SimpleInvalid, naming message, field and expected type, for what the form can't carry: raw values that JSON has none of
    (int, float, bytes), numbers out of range, a row without columns, text that is no Unicode.
    """
    check_message(message)
    try:
        out = _ENCODER.encode(_envelope(message))
    except UnicodeEncodeError as error:
        raise _text_fault(message, error) from None
    return escape(out)


def escape(out: bytes) -> bytes:
    """Return compact JSON text with what Go escapes besides; outside of strings none of it occurs."""
    if b"<" in out or b">" in out or b"&" in out:
        out = out.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    if not out.isascii() and b"\xe2\x80" in out:
        out = out.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return out


def decode(data: bytes) -> Message:
    """Return the message in ``data``; members that are not of the protocol are passed over.

    SimpleInvalid for anything that is no message; SimpleUnsupported for claim checks, rows of handle keys alone, compressed
    messages and other versions. Both name message, field and expected type.
    """
    try:
        envelope = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise fault_of(data, error) from None
    if envelope.version != VERSION or envelope.claim_check_location or envelope.handle_key_only:
        raise _unsupported(data, envelope)
    kind, build_ts = envelope.type, envelope.build_ts
    if kind is None or build_ts is None:
        field = "type" if kind is None else "buildTs"
        raise invalid(glimpse(data), field, "present", Shown("absent"))
    if kind in DML_TYPES:
        message: Message = Dml(
            kind,
            envelope.database,
            envelope.table,
            envelope.table_id,
            _commit_ts(data, envelope),
            build_ts,
            envelope.schema_version,
            envelope.data or None,
            envelope.old or None,
            envelope.checksum,
            envelope.start_ts or None,
        )
    else:
        message = _without_row(data, envelope, kind, build_ts)
    check_message(message)
    return message


def encode_schema(schema: TableSchema) -> bytes:
    """Return the JSON form of a table's schema alone, as it stands in messages; the errors of :func:`encode`."""
    return encode(Bootstrap(0, schema)).partition(b'"tableSchema":')[2][:-1]


def decode_schema(data: bytes) -> TableSchema:
    """Return the table's schema in ``data``; SimpleInvalid, as of :func:`decode`, for anything else."""
    try:
        schema = _SCHEMA_DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise fault_of(data, error, f"a table schema of {len(data)} bytes") from None
    check_schema(f"the schema of {schema.schema}.{schema.table}", "", schema)
    return schema


def _envelope(message: Message) -> _Envelope:
    match message:
        case Dml():
            # By position: this is on the way of every row.
            return _Envelope(
                VERSION,
                message.database,
                message.table,
                message.table_id,
                message.type,
                "",
                message.commit_ts,
                message.start_ts or None,
                message.build_ts,
                message.schema_version,
                "",
                False,
                message.checksum,
                None if message.data is None else _json_row(message, "data", message.data),
                None if message.old is None else _json_row(message, "old", message.old),
            )
        case Watermark(commit_ts, build_ts):
            return _Envelope(VERSION, type=message.type, commit_ts=commit_ts, build_ts=build_ts)
        case Bootstrap(build_ts, schema):
            return _Envelope(VERSION, type=message.type, commit_ts=0, build_ts=build_ts, table_schema=schema)
        case Ddl():
            return _Envelope(
                VERSION,
                type=message.type,
                sql=message.sql,
                commit_ts=message.commit_ts,
                build_ts=message.build_ts,
                table_schema=message.table_schema,
                pre_table_schema=message.pre_table_schema,
            )


def _json_row(message: Dml, field: str, row: RawRow) -> JsonRow | None:
    if not _RAW_TYPES.issuperset(map(type, row.values())):
        for column, value in row.items():
            if type(value) not in _RAW_TYPES:
                raise invalid(name_of(message), f"{field}.{column}", RAW_EXPECTED, value)
    return cast("JsonRow", row if type(row) is dict else dict(row)) or None


def _without_row(data: bytes, envelope: _Envelope, kind: MessageType, build_ts: int) -> Message:
    for field, row in (("data", envelope.data), ("old", envelope.old)):
        if row:
            raise invalid(glimpse(data), field, f"absent in a message of type {kind}", Shown("a row"))
    if kind is MessageType.WATERMARK:
        return Watermark(_commit_ts(data, envelope), build_ts)
    if kind is MessageType.BOOTSTRAP:
        if envelope.table_schema is None:
            raise invalid(glimpse(data), "tableSchema", "an object", Shown("absent"))
        return Bootstrap(build_ts, envelope.table_schema)
    return Ddl(
        kind,
        envelope.sql,
        _commit_ts(data, envelope),
        build_ts,
        envelope.table_schema,
        envelope.pre_table_schema,
    )


def _commit_ts(data: bytes, envelope: _Envelope) -> int:
    if envelope.commit_ts is None:
        raise invalid(glimpse(data), "commitTs", "an integer", Shown("absent"))
    return envelope.commit_ts


def _unsupported(data: bytes, envelope: _Envelope) -> SimpleUnsupported:
    name = glimpse(data)
    if envelope.version != VERSION:
        why = f"{show(envelope.version)} is a version of the protocol that is not known here"
        return unsupported(name, "version", str(VERSION), why)
    if envelope.claim_check_location:
        why = "the row is in another storage (claim check), which is not read"
        return unsupported(name, "claimCheckLocation", "absent", why)
    return unsupported(
        name, "handleKeyOnly", "absent or false", "the row is not in the message, only its key"
    )


def _text_fault(message: Message, error: UnicodeEncodeError) -> SimpleInvalid:
    """Which text of ``message`` is no Unicode: it holds halves of surrogate pairs, as of bytes that are no UTF-8."""
    where = next(
        (path for path, text in _texts(msgspec.to_builtins(_envelope(message)), "") if not _encodes(text)), ""
    )
    return invalid(
        name_of(message), where or WHOLE, "Unicode text", Shown(f"with {error.object[error.start]!a} in it")
    )


def _texts(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield f"the name {name!a} in {path}", name
            yield from _texts(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from _texts(inner, f"{path}[{place}]")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
