"""Flipped, lost and added bytes at every moment of a session: an error or a closed connection, never a crash."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress

from tests.integration.grpc.test_fuzz import blown
from tests.pg import Bare, create_slot, numbers, port_of, startup_packet
from tests.scale import scaled
from tests.servers import Feed, ServerProcess

SEED = 88
ANSWER_S_MAX = 0.3


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">I", len(body) + 4) + body


def script(slot: str) -> Sequence[bytes]:
    """What a client says, up to confirmations in a stream."""
    status = struct.pack(">cQQQQB", b"r", 1 << 40, 300, 300, 0, 1)
    return [
        startup_packet(),
        message(b"Q", b"SELECT pg_catalog.set_config('search_path', '', false)\0"),
        message(b"Q", b"IDENTIFY_SYSTEM\0"),
        message(b"Q", f"START_REPLICATION SLOT {slot} LOGICAL 0/0 (\"feeds\" '*')\0".encode()),
        message(b"d", status),
        message(b"d", b"h" + bytes(16)),
        message(b"c", b""),
        message(b"Q", b"SELECT * FROM pg_replication_slots WHERE slot_name = 'x';SHOW wal_level\0"),
        message(b"P", b"\0SELECT 1\0\0\0"),
        message(b"S", b""),
        message(b"X", b""),
    ]


def test_blown_sessions_end_or_go_on(server: ServerProcess, feed: Feed, slot: str) -> None:
    source = random.Random(SEED)
    create_slot(server, slot)
    numbers(feed, 1, 5)
    said = script(slot)
    for _ in range(scaled(50)):
        bare = Bare(port_of(server))
        hit = source.randrange(len(said))
        with suppress(OSError):
            for number, part in enumerate(said):
                bare.send(blown(part, source) if number == hit else part)
            bare.socket.settimeout(ANSWER_S_MAX)  # the server may wait for the rest of what was cut off
            bare.all()
            bare.socket.shutdown(socket.SHUT_WR)
        bare.close()
    bare = Bare(port_of(server))
    bare.login()
    bare.query("SHOW wal_level")
    assert [kind for kind, _ in bare.until(b"Z")] == [b"T", b"D", b"C", b"Z"]
    bare.close()
    assert "a session failed" not in server.errors()


def test_noise_is_no_session(server: ServerProcess) -> None:
    source = random.Random(SEED)
    for _ in range(scaled(60)):
        bare = Bare(port_of(server))
        with suppress(OSError):
            bare.send(source.randbytes(source.choice((1, 7, 8, 9, 100, 5000))))
            bare.socket.shutdown(socket.SHUT_WR)
            bare.all()
        bare.close()
    assert "a session failed" not in server.errors()
