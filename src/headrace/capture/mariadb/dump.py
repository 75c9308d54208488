"""A server's binlog from a GTID on, as the server sends it to a replica: event after event, for as long as it lives."""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Iterator
from typing import Final

from pymysql.constants import COMMAND

from headrace.capture.binlog.event import GtidPosition
from headrace.capture.binlog.packets import PacketSplitter
from headrace.capture.mariadb.connection import Source, as_ours, connect, execute, fetch, source_errors
from headrace.errors import BinlogInvalid, SourceReplaced, SourceUnavailable
from headrace.runtime.dsn import Dsn

HEARTBEAT_S: Final = 5.0
"""So often the server says that it is there when there is nothing to send."""

HEARTBEATS_MISSED_MAX: Final = 3
"""After so many the connection counts as lost."""

SEARCH_S_MAX: Final = 300.0
"""Until the first event after the position has come: the server reads up to there in silence, a whole file at worst."""

READ_BYTES: Final = 262_144
"""Asked of the socket at once, so that a small event costs no call of its own."""

_END, _ERROR = 0xFE, 0xFF
_TYPE: Final = 4
"""Where an event has its type: behind its time of 4 bytes."""

_FOUND: Final = frozenset({27, 162})
"""HEARTBEAT and GTID: what comes once the server has found the position."""

_REPORT_HOST: Final = b"headrace"
_CAPABILITY_GTID: Final = 4
_NO_ANNOTATIONS: Final = 0
"""The texts of statements, of which nothing is made here, stay at the server."""

_FILE_START: Final = 4
_REPLICA_ID_MIN: Final = 1 << 31


def default_replica_id(name: str) -> int:
    """Return an id (u32) for the capture called ``name``: the same each time, above what people give their servers."""
    return _REPLICA_ID_MIN | zlib.crc32(name.encode())


class BinlogDump:
    """One connection that receives the binlog. It is read by one thread; :meth:`close` may be called from any.

    A server keeps one such connection for each replica id: of two with the same id the newer one stays, and the other ends
    with SourceUnavailable that says so.
    """

    def __init__(self, connection: Source, silence_s_max: float) -> None:
        """``connection`` has been asked for the binlog."""
        self._connection = connection
        self._socket: socket.socket = connection._sock  # type: ignore[attr-defined]  # its driver shows no socket
        self._silence_s_max = silence_s_max
        self._found = False
        self._closed = False

    @classmethod
    def open(
        cls,
        dsn: Dsn,
        position: GtidPosition,
        replica_id: int,
        *,
        server_id: int,
        heartbeat_s: float = HEARTBEAT_S,
        silence_s_max: float | None = None,
    ) -> BinlogDump:
        """Ask the server with ``server_id`` for all that follows ``position``.

        After ``silence_s_max`` (None: three heartbeats) without one the connection counts as lost.

        Raises DsnInvalid, SourceForbidden, SourceUnavailable, SourceUnfit, and SourceReplaced if another server answers. A
        position that the server has no more, or never had, is an error of the first read.
        """
        connection = connect(dsn)
        try:
            with source_errors():
                ((found,),) = fetch(connection, "SELECT @@GLOBAL.server_id")
                if found != server_id:
                    raise SourceReplaced(f"a server with server_id {found} answers where {server_id} was")
                for statement in _settings(position, heartbeat_s):
                    execute(connection, statement)
                register(connection, replica_id)
                words = struct.pack("<IHI", _FILE_START, _NO_ANNOTATIONS, replica_id)
                connection._execute_command(COMMAND.COM_BINLOG_DUMP, words)  # type: ignore[attr-defined]  # no face for it
            return cls(connection, silence_s_max or heartbeat_s * HEARTBEATS_MISSED_MAX)
        except BaseException:
            connection.close()
            raise

    def batches(self) -> Iterator[list[bytes]]:
        """Yield the events that arrive together, never none; each from its header to its checksum.

        Ends when the server ends the stream or after :meth:`close`. Raises PositionPurged, SourceReplaced, BinlogInvalid,
        and SourceUnavailable: the connection was lost, or no heartbeat came for too long.
        """
        splitter = PacketSplitter(1)  # what answers a command is packet 1
        self._socket.settimeout(SEARCH_S_MAX)
        while data := self._receive():
            events: list[bytes] = []
            for payload in splitter.feed(data):
                if payload[:1] != b"\0":
                    if events:
                        yield events
                    _end(payload)
                    return
                events.append(payload[1:])
            if events:
                if not self._found:
                    self._look(events)
                yield events

    def payloads(self) -> Iterator[bytes]:
        """Yield the events of :meth:`batches` one by one."""
        for batch in self.batches():
            yield from batch

    def close(self) -> None:
        """End the stream, whoever waits for it. Call it again as you like."""
        self._closed = True
        try:
            # Not the TLS layer's own shutdown, which is not for another thread than the reader's.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:  # the line is down already
            return

    def release(self) -> None:
        """Give the connection back; no thread may be reading any more."""
        self.close()
        self._connection._force_close()  # type: ignore[attr-defined]  # the server takes no goodbye in the middle of a dump

    def _receive(self) -> bytes:
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise SourceUnavailable(
                "the database: it sent nothing for too long, not even a heartbeat"
            ) from None
        except (OSError, ValueError) as error:
            if self._closed:
                return b""
            raise SourceUnavailable(f"the database: the connection was lost: {error}") from error
        if not data and not self._closed:
            raise SourceUnavailable("the database: the connection was lost")
        return data

    def _look(self, events: list[bytes]) -> None:
        if any(event[_TYPE] in _FOUND for event in events):
            self._found = True
            self._socket.settimeout(self._silence_s_max)


def register(connection: Source, replica_id: int) -> None:
    """Say at the server who reads there (``SHOW REPLICA HOSTS``), until the connection ends. Needs the right to replicate.

    Raises SourceForbidden, SourceUnavailable.
    """
    words = (
        struct.pack("<IB", replica_id, len(_REPORT_HOST))
        + _REPORT_HOST
        + struct.pack("<BBHII", 0, 0, 0, 0, 0)
    )
    with source_errors():
        connection._execute_command(COMMAND.COM_REGISTER_SLAVE, words)  # type: ignore[attr-defined]  # no face for it
        connection._read_packet()  # type: ignore[no-untyped-call]  # its stub lacks a result


def _settings(position: GtidPosition, heartbeat_s: float) -> tuple[str, ...]:
    return (
        f"SET @mariadb_slave_capability = {_CAPABILITY_GTID}",
        "SET @master_binlog_checksum = @@GLOBAL.binlog_checksum",
        f"SET @master_heartbeat_period = {round(heartbeat_s * 1e9)}",
        f"SET @slave_connect_state = '{position}'",
        # A position of another history is refused, and never taken for the nearest one.
        "SET @slave_gtid_strict_mode = 1",
        "SET @slave_gtid_ignore_duplicates = 0",
    )


def _end(payload: bytes) -> None:
    """Return if the server has ended the stream as it should; raise what it says otherwise."""
    kind = payload[0] if payload else None
    if kind == _END:
        return
    if kind != _ERROR or len(payload) < 3:
        raise BinlogInvalid(f"the server sent a packet that is no event: {payload[:16].hex()}")
    text = payload[3:].decode("utf-8", "replace")
    # An error has a # and five characters of SQL state before its text, unless it comes before those are agreed upon.
    raise as_ours(int.from_bytes(payload[1:3], "little"), text[6:] if text[:1] == "#" else text)
