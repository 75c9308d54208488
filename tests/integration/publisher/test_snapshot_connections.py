"""Who comes for a snapshot, or only occupies a socket, leaves file descriptors and memory to the relay beside."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest

from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.attaching import attach_tables
from headrace.publisher.snapshot import accepting, serving
from headrace.runtime.dsn import parse_dsn
from tests.agents import AgentProcess
from tests.certificates import Authority
from tests.integration.publisher.snapshot_agents import TOKEN, agent
from tests.ports import free_port
from tests.servers import ServerProcess, code_of
from tests.servers import serving as serving_feeds
from tests.unit.publisher.outboxes import application
from tests.waiting import async_wait_until, wait_until

FILES_MAX = 300
"""The agent's limit of open files."""
BODY_BYTES = 16 << 20
"""More than the system's socket buffers take, so that a listener that reads nothing holds its answer up."""


@dataclass
class Running:
    """An agent with few file descriptors, and its feed."""

    agent: AgentProcess
    server: ServerProcess
    app: sqlite3.Connection
    port: int

    def ask(self) -> httpx.Response:
        """Ask for the snapshot over a connection of its own."""
        with httpx.Client(trust_env=False, timeout=60) as client:
            return client.get(
                f"http://127.0.0.1:{self.port}/snapshot",
                params={"change-feed-id": "shop", "listener-id": "l"},
                headers={"Authorization": f"Bearer {TOKEN}"},
            )

    def connect(self) -> socket.socket:
        """A connection that has said nothing yet."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def commit(self) -> None:
        """Commit a row in the source, and wait until it is in the feed."""
        head = self.head()
        self.app.execute("INSERT INTO item (name) VALUES ('x')")
        wait_until(lambda: self.head() > head, what="the row to be relayed")

    def head(self) -> int:
        """The feed's newest sequence id."""
        return int(self.server.http.get("/feeds/shop").json()["head-sequence-id"])

    def resident_bytes(self) -> int:
        """What the agent takes of memory."""
        return self._status("VmRSS") << 10

    def open_files(self) -> int:
        """How many file descriptors it has open."""
        assert self.agent.process is not None
        return len(list(Path(f"/proc/{self.agent.process.pid}/fd").iterdir()))

    def _status(self, name: str) -> int:
        assert self.agent.process is not None
        text = Path(f"/proc/{self.agent.process.pid}/status").read_text()
        return int(text.partition(f"{name}:")[2].split()[0])


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    path, port = tmp_path / "app.db", free_port()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving_feeds(tmp_path / "server"))
        app = stack.enter_context(application(path))
        app.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
        rows = ((f"{number:0400000}",) for number in range(BODY_BYTES // 400_000 + 1))
        app.executemany("INSERT INTO item (name) VALUES (?)", rows)
        attach_tables(parse_dsn(f"sqlite:///{path}"), AttachRequest(feed="shop", tables=("item",)))
        (tmp_path / "token").write_text(TOKEN)
        process = AgentProcess(
            tmp_path / "agent",
            server.url,
            f"sqlite:///{path}",
            "shop",
            snapshot_listen=f"127.0.0.1:{port}",
            snapshot_dir=str(tmp_path / "spool"),
            snapshot_token_file=str(tmp_path / "token"),
        )
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_MAX, hard))
        try:
            process.start()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        stack.callback(process.kill)
        made = Running(process, server, app, port)
        wait_until(lambda: _answers(made), what="the snapshot")
        yield made


def _answers(running: Running) -> bool:
    try:
        return running.ask().status_code == 200
    except httpx.TransportError:
        return False


def test_silent_sockets_leave_snapshots_and_the_relay_alone(running: Running) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(FILES_MAX):
            stack.enter_context(running.connect())
        assert running.ask().status_code == 200
        assert running.open_files() < FILES_MAX - accepting.FILES_RESERVED // 2
        running.commit()
        running.server.restart()  # so that the agent needs a new connection
        running.commit()
        assert running.ask().status_code == 200
        assert running.agent.ended() is None


def test_listeners_that_read_nothing_take_bounded_memory_and_files(running: Running) -> None:
    most = (FILES_MAX - accepting.FILES_RESERVED - accepting.SPARE) // 2
    query = urlencode({"change-feed-id": "shop", "listener-id": "l"})
    before = running.resident_bytes()
    spooled = _bytes_of(running.agent.folder.parent / "spool")
    with contextlib.ExitStack() as stack:
        held = []
        for number in range(most):
            held.append(stack.enter_context(running.connect()))
            held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            held[-1].sendall(
                f"GET /snapshot?{query} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
                f"Range: bytes={number}-\r\n\r\n".encode()
            )
            assert held[-1].recv(1024).startswith(b"HTTP/1.1 206 ")
        answer = running.ask()
        assert (answer.status_code, code_of(answer)) == (503, "snapshot-unavailable")
        assert answer.headers["retry-after"]
        assert running.open_files() < FILES_MAX - accepting.FILES_RESERVED // 2
        assert running.resident_bytes() - before < most << 20
        assert _bytes_of(running.agent.folder.parent / "spool") == spooled
        running.commit()
        held[0].close()
        wait_until(lambda: running.ask().status_code == 200, what="the place of who left")


def _bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def test_sockets_that_never_shake_hands_give_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "answers_max", lambda: 2)
    monkeypatch.setattr(serving, "SPARE", 2)
    monkeypatch.setattr(accepting, "HANDSHAKE_S_MAX", 600.0)
    path = tmp_path / "app.db"
    with application(path) as app:
        app.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
    attach_tables(parse_dsn(f"sqlite:///{path}"), AttachRequest(feed=tmp_path.name, tables=("item",)))
    authority = Authority(tmp_path)
    pair = authority.sign("agent")
    files = {"snapshot_tls_cert": str(pair.cert), "snapshot_tls_key": str(pair.key)}
    with serving_feeds(tmp_path / "server") as server:
        async with agent(path, server, trusts=authority.file, **files) as snapshots:
            host, port = snapshots.url.split("/")[2].split(":")
            silent = [await asyncio.open_connection(host, int(port)) for _ in range(20)]
            await snapshots.http.aclose()
            again = type(snapshots)(snapshots.feed, snapshots.url, authority.file)
            assert (await again.fetch()).status_code == 200
            await again.http.aclose()
            await async_wait_until(
                lambda: sum(not reader.at_eof() for reader, _ in silent) <= 4, what="them to go"
            )
            for _, writer in silent:
                writer.close()


@pytest.mark.parametrize(
    ("files", "answers"),
    [(20, 1), (256, 70), (300, 92), (1024, 200), (resource.RLIM_INFINITY, 200)],
)
def test_bound_follows_the_limit_of_open_files(
    monkeypatch: pytest.MonkeyPatch, files: int, answers: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert accepting.answers_max() == answers
