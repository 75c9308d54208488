"""PostgreSQL's protocol 3 as bytes: what clients send is parsed, what the server says is built. Pure; no state, no I/O.

Source of the layouts: PostgreSQL's manual, "Message Formats" and "Streaming Replication Protocol". Numbers are big-endian.
A message is a type byte (not at the start of a connection), a length that counts itself, and a body.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from headrace.server.pg.sqlstate import PgError, SqlState

STARTUP_BYTES_MAX: Final = 10_000
"""Longest start-up packet: PostgreSQL's own MAX_STARTUP_PACKET_LENGTH."""
MESSAGE_BYTES_MAX: Final = 1 << 20
"""Longest message of a client: commands and confirmations take a few hundred bytes, a token 8 KB."""
PARAMETERS_MAX: Final = 100
"""Most start-up parameters."""

PROTOCOL_3: Final = 3
SSL_REQUEST: Final = 80877103
GSS_REQUEST: Final = 80877104
CANCEL_REQUEST: Final = 80877102

_TEXT_OID: Final = 25
_POSTGRES_EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01 in microseconds since 1970: from there the protocol counts its clocks."""
_XLOG_HEAD: Final = struct.Struct(">cIcQQq")
_KEEPALIVE: Final = struct.Struct(">cIcQqB")
_STATUS: Final = struct.Struct(">QQQqB")
_XLOG_HEAD_SIZE: Final = 4 + 1 + 8 + 8 + 8


class SslRequest(NamedTuple):
    """The client asks for TLS (or, ``gss``, for GSSAPI encryption, which is never there)."""

    gss: bool


class CancelRequest(NamedTuple):
    """A second connection asks to end what the first one is doing; both numbers must be those that it was given."""

    process_id: int
    secret: int


class Startup(NamedTuple):
    """The first message of a session. ``minor``: the client's protocol is 3.``minor``."""

    minor: int
    parameters: Mapping[str, str]


class Status(NamedTuple):
    """A standby status update: positions up to which the client has written, flushed and applied; 0: none yet."""

    written: int
    flushed: int
    applied: int
    reply: bool


def parse_startup(body: bytes) -> SslRequest | CancelRequest | Startup:
    """Read a packet that has no type byte, without its length; PgError (fatal) for anything else."""
    if len(body) < 4:
        raise _violation("the start-up packet is cut off")
    code = int.from_bytes(body[:4], "big")
    if code in {SSL_REQUEST, GSS_REQUEST}:
        return SslRequest(gss=code == GSS_REQUEST)
    if code == CANCEL_REQUEST:
        if len(body) != 12:
            raise _violation("a cancel request has 16 bytes")
        return CancelRequest(int.from_bytes(body[4:8], "big"), int.from_bytes(body[8:12], "big"))
    if code >> 16 != PROTOCOL_3:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"unsupported frontend protocol {code >> 16}.{code & 0xFFFF}: server supports 3.0",
            fatal=True,
        )
    return Startup(code & 0xFFFF, _parameters(body[4:]))


def _parameters(data: bytes) -> dict[str, str]:
    parts = data.split(b"\0")
    if len(parts) < 2 or parts[-1] or parts[-2] or len(parts) % 2:
        raise _violation("the start-up packet's parameters don't end as they must")
    names, values = parts[:-2:2], parts[1:-2:2]
    if len(names) > PARAMETERS_MAX or not all(names):
        raise _violation("the start-up packet has too many parameters, or one without a name")
    return {text_of(name): text_of(value) for name, value in zip(names, values, strict=True)}


def text_of(data: bytes) -> str:
    """Return text of the wire, which must be UTF-8 without NUL; PgError."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise _violation("text of a message is no UTF-8") from None
    if "\0" in text:
        raise _violation("text of a message holds a zero byte")
    return text


def parse_string(body: bytes) -> str:
    """Return the one string of a Query or PasswordMessage; PgError if that is not what the body is."""
    if not body.endswith(b"\0"):
        raise _violation("a string in a message does not end with a zero byte")
    return text_of(body[:-1])


def parse_status(body: bytes) -> Status | None:
    """Return the standby status update in a CopyData's body; None for hot standby feedback, which means nothing here."""
    if body[:1] == b"h":
        return None
    if body[:1] != b"r" or len(body) != 1 + _STATUS.size:
        raise _violation("unexpected message in the stream: only standby status updates are known here")
    written, flushed, applied, _, reply = _STATUS.unpack_from(body, 1)
    return Status(written, flushed, applied, bool(reply))


def _violation(message: str) -> PgError:
    return PgError(SqlState.PROTOCOL_VIOLATION, message, fatal=True)


# -- what the server says ---------------------------------------------------------------------------------------------


def message(kind: bytes, body: bytes = b"") -> bytes:
    """Return a message: its type byte, its length, its body."""
    return kind + (len(body) + 4).to_bytes(4, "big") + body


def _string(text: str) -> bytes:
    return text.replace("\0", "").encode("utf-8", "backslashreplace") + b"\0"


def authentication(code: int) -> bytes:
    """Return AuthenticationOk (0) or AuthenticationCleartextPassword (3)."""
    return message(b"R", code.to_bytes(4, "big"))


def parameter_status(name: str, value: str) -> bytes:
    """Return a ParameterStatus."""
    return message(b"S", _string(name) + _string(value))


def negotiate_version(unknown: Sequence[str]) -> bytes:
    """Return NegotiateProtocolVersion: 3.0 is spoken, and these ``_pq_.`` options are not known.

    The version is the whole one, major and minor, as PostgreSQL sends it and libpq reads it.
    """
    names = b"".join(map(_string, unknown))
    return message(b"v", (PROTOCOL_3 << 16).to_bytes(4, "big") + len(unknown).to_bytes(4, "big") + names)


def backend_key(process_id: int, secret: int) -> bytes:
    """Return BackendKeyData: what a cancel request must name."""
    return message(b"K", struct.pack(">II", process_id, secret))


def ready() -> bytes:
    """Return ReadyForQuery, outside a transaction: there are none."""
    return message(b"Z", b"I")


def command_complete(tag: str) -> bytes:
    """Return CommandComplete."""
    return message(b"C", _string(tag))


def empty_query() -> bytes:
    """Return EmptyQueryResponse."""
    return message(b"I")


def row_description(names: Sequence[str]) -> bytes:
    """Return RowDescription: all columns are text."""
    fields = [
        _string(name)
        + struct.pack(">IhIhih", 0, 0, _TEXT_OID, -1, -1, 0)  # table, column, type, size, modifier, text
        for name in names
    ]
    return message(b"T", len(fields).to_bytes(2, "big") + b"".join(fields))


def data_row(values: Sequence[str | None]) -> bytes:
    """Return DataRow; None is NULL."""
    parts = [len(values).to_bytes(2, "big")]
    for value in values:
        if value is None:
            parts.append(b"\xff\xff\xff\xff")
        else:
            data = value.encode("utf-8", "backslashreplace")
            parts += (len(data).to_bytes(4, "big"), data)
    return message(b"D", b"".join(parts))


def error_response(error: PgError) -> bytes:
    """Return ErrorResponse with severity, SQLSTATE, message, and detail and hint if there are any."""
    return message(b"E", _notice(error, "FATAL" if error.fatal else "ERROR"))


def warning(error: PgError) -> bytes:
    """Return NoticeResponse, of the severity WARNING: what was asked for is done, and this is to be known of it."""
    return message(b"N", _notice(error, "WARNING"))


def _notice(error: PgError, severity: str) -> bytes:
    fields = {"S": severity, "V": severity, "C": error.state.value, "M": error.message}
    fields |= {"D": error.detail, "H": error.hint}
    return b"".join(key.encode() + _string(text) for key, text in fields.items() if text) + b"\0"


def copy_both() -> bytes:
    """Return CopyBothResponse: from here on both sides send CopyData."""
    return message(b"W", b"\0\0\0")


def copy_done() -> bytes:
    """Return CopyDone."""
    return message(b"c")


def clock_us(wall_us: int) -> int:
    """Return a wall clock's microseconds since 1970 as the protocol counts them: since 2000."""
    return wall_us - _POSTGRES_EPOCH_US


def xlog_data(records: Iterable[tuple[int, bytes]], sent_at_us: int) -> bytes:
    """Return the records (position, payload) as CopyData messages with XLogData, joined.

    ``sent_at_us``: :func:`clock_us` of now. Start and end of the WAL are both the position, as with PostgreSQL's own
    logical slots.
    """
    head, size = _XLOG_HEAD.pack, _XLOG_HEAD_SIZE
    return b"".join(
        [
            part
            for position, payload in records
            for part in (head(b"d", size + len(payload), b"w", position, position, sent_at_us), payload)
        ]
    )


def keepalive(end: int, sent_at_us: int, *, reply: bool) -> bytes:
    """Return a CopyData with a primary keepalive; ``reply``: the client is asked to answer at once."""
    return _KEEPALIVE.pack(b"d", _KEEPALIVE.size - 1, b"k", end, sent_at_us, reply)
