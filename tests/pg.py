"""Clients of PostgreSQL's replication protocol for tests: Debian's ``pg_recvlogical``, psycopg2, and a bare socket."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extras

from headrace.server.pg.messages import SSL_REQUEST
from tests.ports import free_port
from tests.servers import Feed, ServerProcess, serving
from tests.waiting import wait_until

PROGRAMS = Path("/usr/lib/postgresql/15/bin")
WAIT_S = 60.0
KERNEL_BYTES = 16_384


@contextmanager
def serving_pg(folder: Path, *args: str) -> Iterator[ServerProcess]:
    """Run a server with ``--pg`` at a free port: see :func:`port_of`."""
    given = ["--pg", f"127.0.0.1:{free_port()}", *args]
    with serving(folder, args=given) as server:
        yield server
    assert "Traceback" not in server.errors(), server.errors()


def port_of(server: ServerProcess) -> int:
    """The port of its ``--pg``."""
    return int(server.args[server.args.index("--pg") + 1].rpartition(":")[2])


def dsn_of(server: ServerProcess, database: str = "headrace", **given: str) -> str:
    """The connection string of a session."""
    said = {"host": "127.0.0.1", "port": str(port_of(server)), "dbname": database, "user": "ann"} | given
    return " ".join(f"{name}={value}" for name, value in said.items())


def registered(server: ServerProcess, name: str) -> Feed:
    """A feed with its publisher."""
    feed = Feed(server, name)
    assert feed.register().status_code == 200
    return feed


def numbers(feed: Feed, first: int, last: int) -> None:
    """Append the entries ``first`` … ``last`` in one append."""
    answer = feed.post(
        *({"changes": {"uuid": str(number), "number": number}} for number in range(first, last + 1))
    )
    assert answer.status_code == 200, answer.text


class Receiver:
    """A ``pg_recvlogical`` that writes to a file of its own."""

    def __init__(
        self, server: ServerProcess, slot: str, out: Path, *args: str, database: str = "headrace"
    ) -> None:
        self.out = out
        self.errors = out.with_suffix(".err")
        command = [
            str(PROGRAMS / "pg_recvlogical"), "-d", dsn_of(server, database), "--slot", slot, "-f", str(out),
            "--start", "--no-loop", "-F", "1", "-s", "1", *args,
        ]  # fmt: skip
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(command, stderr=errors)

    def lines(self) -> list[bytes]:
        """The whole lines that it has written: the last one may be under way."""
        written = self.out.read_bytes() if self.out.exists() else b""
        return written[: written.rfind(b"\n") + 1].splitlines()

    def entries(self) -> list[dict[str, Any]]:
        """Its lines as documents."""
        return [json.loads(line) for line in self.lines()]

    def wait(self, count: int) -> None:
        """Wait until so many lines are there."""
        wait_until(
            lambda: len(self.lines()) >= count or self.process.poll() is not None,
            WAIT_S,
            what=f"{count} lines",
        )
        assert len(self.lines()) >= count, self.errors.read_text()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def interrupt(self) -> int:
        """SIGINT: it confirms what it has, and ends; returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(WAIT_S)


def create_slot(
    server: ServerProcess, slot: str, *, plugin: str = "headrace", database: str = "headrace"
) -> None:
    """Make a slot with ``pg_recvlogical``."""
    command = [
        str(PROGRAMS / "pg_recvlogical"), "-d", dsn_of(server, database), "--slot", slot, "-P", plugin, "--create-slot",
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=WAIT_S)


def query(server: ServerProcess, sql: str, database: str = "headrace", **given: str) -> list[tuple[str, ...]]:
    """The rows of a query in a session that is no replication session."""
    connection = connect(server, database, **given)
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())
    finally:
        connection.close()


def connect(server: ServerProcess, database: str = "headrace", **given: str) -> Any:
    """A psycopg2 connection without transactions."""
    connection = psycopg2.connect(dsn_of(server, database, **given))
    connection.autocommit = True
    return connection


def replicating(server: ServerProcess, database: str = "headrace", **given: str) -> Any:
    """A psycopg2 replication connection."""
    return psycopg2.connect(
        dsn_of(server, database, **given), connection_factory=psycopg2.extras.LogicalReplicationConnection
    )


def slot_row(server: ServerProcess, slot: str) -> dict[str, str | None]:
    """A slot as ``pg_replication_slots`` shows it."""
    connection = connect(server)
    try:
        with connection.cursor(cursor_factory=psycopg2.extras.RealDictCursor) as cursor:
            cursor.execute(f"SELECT * FROM pg_replication_slots WHERE slot_name = '{slot}'")
            (row,) = cursor.fetchall()
            return dict(row)
    finally:
        connection.close()


class Bare:
    """A socket that says what it is told to, and reads whole messages."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)

    def close(self) -> None:
        """Close it."""
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(data)

    def say(self, kind: bytes, body: bytes = b"") -> None:
        """Send a message."""
        self.send(kind + struct.pack(">I", len(body) + 4) + body)

    def query(self, sql: str) -> None:
        """Send a simple query."""
        self.say(b"Q", sql.encode() + b"\0")

    def startup(self, **parameters: str) -> None:
        """Send a start-up packet: of a replication session of all feeds unless told otherwise."""
        self.send(startup_packet(**parameters))

    def login(self, **parameters: str) -> list[tuple[bytes, bytes]]:
        """Begin a session, and return what came up to ReadyForQuery."""
        self.startup(**parameters)
        return self.until(b"Z")

    def read(self, size: int) -> bytes:
        """Read so many bytes; fewer where the server closed."""
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionResetError:
                break
            if not part:
                break
            data += part
        return data

    def message(self) -> tuple[bytes, bytes] | None:
        """Read a message; None where the server closed."""
        head = self.read(5)
        if len(head) < 5:
            return None
        size = struct.unpack(">I", head[1:])[0]
        return head[:1], self.read(size - 4)

    def until(self, kind: bytes) -> list[tuple[bytes, bytes]]:
        """Read messages up to one of this kind, or up to the end of the connection."""
        found: list[tuple[bytes, bytes]] = []
        while (message := self.message()) is not None:
            found.append(message)
            if message[0] == kind:
                break
        return found

    def all(self) -> list[tuple[bytes, bytes]]:
        """Read all messages up to the end of the connection."""
        return self.until(b"")


def bounded(connection: socket.socket) -> socket.socket:
    """Have the kernel hold little of a connection, or of those that it accepts: else megabytes go before a byte waits."""
    for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connection.setsockopt(socket.SOL_SOCKET, buffer, KERNEL_BYTES)
    return connection


def startup_packet(**parameters: str) -> bytes:
    """A start-up packet."""
    given = {"user": "ann", "database": "headrace", "replication": "database"} | parameters
    body = b"".join(f"{name}\0{value}\0".encode() for name, value in given.items()) + b"\0"
    return struct.pack(">II", len(body) + 8, 3 << 16) + body


def ssl_request() -> bytes:
    """A request for TLS."""
    return struct.pack(">II", 8, SSL_REQUEST)


def states_of(messages: Sequence[tuple[bytes, bytes]]) -> list[str]:
    """The SQLSTATEs of the errors among messages."""
    found = []
    for kind, body in messages:
        if kind == b"E":
            fields = {part[:1]: part[1:].decode() for part in body.split(b"\0") if part}
            found.append(fields[b"C"])
    return found
