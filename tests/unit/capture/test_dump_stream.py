"""What a dump makes of the bytes that a server sends: over a pair of sockets, one of which plays the server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from headrace.capture.mariadb.connection import Source
from headrace.capture.mariadb.dump import BinlogDump
from headrace.errors import BinlogInvalid, HeadraceError, SourceReplaced, SourceUnavailable
from tests.waiting import wait_until

HEARTBEAT_S = 0.02
GTID_EVENT = b"\0\0\0\0\xa2" + bytes(14)
ROWS_EVENT = b"\0\0\0\0\x17" + bytes(2000)


class Pair:
    """A dump, and the server's end of its line."""

    def __init__(self) -> None:
        ours, self.server = socket.socketpair()
        connection = Source(defer_connect=True)
        connection._sock = ours  # type: ignore[attr-defined]  # its driver shows no socket
        self.dump = BinlogDump(connection, 3 * HEARTBEAT_S)
        self._number = 1

    def send(self, *payloads: bytes) -> None:
        """Send packets in one piece."""
        data = b""
        for payload in payloads:
            data += len(payload).to_bytes(3, "little") + bytes([self._number & 0xFF]) + payload
            self._number += 1
        self.server.sendall(data)


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.server.close()
    made.dump.release()


def failure(pair: Pair) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        list(pair.dump.payloads())
    return caught.value


def test_events_that_arrive_together_are_one_batch(pair: Pair) -> None:
    pair.send(b"\0" + GTID_EVENT, b"\0" + ROWS_EVENT)
    batches = pair.dump.batches()
    assert next(batches) == [GTID_EVENT, ROWS_EVENT]
    pair.send(b"\0" + ROWS_EVENT, b"\xfe\0\0\0\0")
    assert list(batches) == [[ROWS_EVENT]]


def test_more_packets_than_a_number_has_come_in_order(pair: Pair) -> None:
    pair.send(*[b"\0" + GTID_EVENT] * 600, b"\xfe\0\0\0\0")
    assert list(pair.dump.payloads()) == [GTID_EVENT] * 600


def test_an_error_comes_after_the_events_before_it(pair: Pair) -> None:
    text = b"Error: connecting slave requested to start from GTID 0-1-5, which is not in the master's binlog"
    pair.send(b"\0" + GTID_EVENT, b"\xff" + (1236).to_bytes(2, "little") + b"#HY000" + text)
    payloads = pair.dump.payloads()
    assert next(payloads) == GTID_EVENT
    with pytest.raises(SourceReplaced, match="start from GTID 0-1-5"):
        next(payloads)


def test_an_error_without_a_state_keeps_its_text(pair: Pair) -> None:
    pair.send(b"\xff" + (1053).to_bytes(2, "little") + b"Server shutdown in progress")
    error = failure(pair)
    assert isinstance(error, SourceUnavailable)
    assert error.detail.endswith(": Server shutdown in progress")


@pytest.mark.parametrize("payload", [b"", b"\xff", b"\xff\x01", b"\x01what"])
def test_a_packet_that_is_nothing_known_is_an_error(pair: Pair, payload: bytes) -> None:
    pair.send(payload)
    error = failure(pair)
    assert isinstance(error, BinlogInvalid)
    assert "no event" in error.detail


def test_a_packet_that_is_missing_is_an_error(pair: Pair) -> None:
    pair._number = 2
    pair.send(b"\0" + GTID_EVENT)
    assert isinstance(failure(pair), BinlogInvalid)


def test_a_line_that_ends_in_the_middle_is_lost(pair: Pair) -> None:
    pair.server.sendall(b"\x20\0\0\x01\0")
    pair.server.shutdown(socket.SHUT_WR)
    error = failure(pair)
    assert isinstance(error, SourceUnavailable)
    assert "lost" in error.detail


def test_silence_is_patience_until_the_position_is_found_and_a_loss_afterwards(pair: Pair) -> None:
    seen: list[bytes] = []
    errors: list[HeadraceError] = []

    def read() -> None:
        try:
            seen.extend(iter(pair.dump.payloads()))
        except HeadraceError as error:
            errors.append(error)

    pair.send(b"\0" + ROWS_EVENT)
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(HEARTBEAT_S * 10)
    assert reader.is_alive()
    pair.send(b"\0" + GTID_EVENT)
    wait_until(lambda: errors, what="the silence to count")
    assert isinstance(errors[0], SourceUnavailable)
    assert "heartbeat" in errors[0].detail
    reader.join()


def test_closed_before_it_is_read_it_gives_nothing(pair: Pair) -> None:
    pair.dump.close()
    assert list(pair.dump.payloads()) == []
