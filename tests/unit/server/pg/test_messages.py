"""Messages as bytes: each layout against the manual's, and what is no message."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.server.pg import messages as msg
from headrace.server.pg.sqlstate import PgError, SqlState
from tests.pg import startup_packet


def body_of(packet: bytes) -> bytes:
    return packet[4:]


def test_a_startup_packet_is_read() -> None:
    found = msg.parse_startup(body_of(startup_packet(options="")))
    assert found == msg.Startup(
        0, {"user": "ann", "database": "headrace", "replication": "database", "options": ""}
    )


def test_requests_before_a_session_are_read() -> None:
    assert msg.parse_startup(struct.pack(">I", 80877103)) == msg.SslRequest(gss=False)
    assert msg.parse_startup(struct.pack(">I", 80877104)) == msg.SslRequest(gss=True)
    assert msg.parse_startup(struct.pack(">III", 80877102, 7, 9)) == msg.CancelRequest(7, 9)


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (b"", SqlState.PROTOCOL_VIOLATION),
        (struct.pack(">I", 2 << 16), SqlState.FEATURE_NOT_SUPPORTED),
        (struct.pack(">I", 80877102), SqlState.PROTOCOL_VIOLATION),
        (struct.pack(">I", 3 << 16) + b"user\0ann\0", SqlState.PROTOCOL_VIOLATION),
        (struct.pack(">I", 3 << 16) + b"user\0\0", SqlState.PROTOCOL_VIOLATION),
        (struct.pack(">I", 3 << 16) + b"user\0\xff\0\0", SqlState.PROTOCOL_VIOLATION),
        (struct.pack(">I", 3 << 16) + b"a\0b\0" * 101 + b"\0", SqlState.PROTOCOL_VIOLATION),
    ],
)
def test_what_is_no_startup_packet_is_refused(body: bytes, state: SqlState) -> None:
    with pytest.raises(PgError) as refused:
        msg.parse_startup(body)
    assert refused.value.state is state
    assert refused.value.fatal


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for parse in (msg.parse_startup, msg.parse_string, msg.parse_status):
        with suppress(PgError):
            parse(body)


def test_a_standby_status_update_is_read() -> None:
    body = struct.pack(">cQQQqB", b"r", 3, 2, 1, -5, 1)
    assert msg.parse_status(body) == msg.Status(3, 2, 1, reply=True)
    assert msg.parse_status(b"h" + bytes(16)) is None
    with pytest.raises(PgError):
        msg.parse_status(body[:-1])


def test_records_are_copy_data_with_xlog_data() -> None:
    data = msg.xlog_data([(258, b"one"), (259, b"")], 7)
    first = struct.pack(">cI", b"d", 4 + 25 + 3) + struct.pack(">cQQq", b"w", 258, 258, 7) + b"one"
    assert data == first + struct.pack(">cI", b"d", 4 + 25) + struct.pack(">cQQq", b"w", 259, 259, 7)


def test_a_keepalive_says_where_and_whether_to_answer() -> None:
    said = msg.keepalive(258, 7, reply=True)
    assert said == struct.pack(">cIcQqB", b"d", 22, b"k", 258, 7, 1)


def test_clocks_begin_in_2000() -> None:
    assert msg.clock_us(946_684_800_000_000) == 0


def test_rows_are_text_and_null_is_a_length() -> None:
    assert (
        msg.data_row(["ä", None])
        == b"D" + struct.pack(">IH", 4 + 2 + 4 + 2 + 4, 2) + b"\0\0\0\2\xc3\xa4" + b"\xff" * 4
    )
    described = msg.row_description(["a"])
    assert described == b"T" + struct.pack(">IH", 4 + 2 + 2 + 18, 1) + b"a\0" + struct.pack(
        ">IhIhih", 0, 0, 25, -1, -1, 0
    )


def test_an_error_says_what_it_has() -> None:
    error = PgError(SqlState.OBJECT_IN_USE, "in use\0", hint="wait")
    assert msg.error_response(error)[5:] == b"SERROR\0VERROR\0C55006\0Min use\0Hwait\0\0"
    fatal = PgError(SqlState.ADMIN_SHUTDOWN, "stop", fatal=True)
    assert b"SFATAL\0" in msg.error_response(fatal)
