"""Server, agent and listener as real processes, with tokens and TLS: a listener that was cut off for longer than retention.

It gets the snapshot over the server's redirect, then the newer entries (RFD 5, failure scenarios).
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.attaching import attach_tables
from headrace.runtime.dsn import parse_dsn
from tests import forks
from tests.agents import AgentProcess
from tests.identity import Issuer
from tests.ports import free_port
from tests.scale import chosen
from tests.secured import SecuredServer, secured
from tests.unit.publisher.outboxes import application
from tests.waiting import wait_until

FEED = "shop"
FAST = ["--retention", "1s", "--retention-every", "100ms", "--segment-size", "4k"]


class Tap:
    """Hands connections on to a port, and keeps what clients sent."""

    def __init__(self, target: int) -> None:
        self.sent = b""
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no further connection."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                upstream = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            for source, target, kept in ((client, upstream, True), (upstream, client, False)):
                threading.Thread(target=self._carry, args=(source, target, kept), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, kept: bool) -> None:
        try:
            while data := source.recv(65_536):
                if kept:
                    self.sent += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            target.close()


@contextmanager
def tapped(target: int) -> Iterator[Tap]:
    """A tap for the length of a ``with``."""
    tap = Tap(target)
    try:
        yield tap
    finally:
        tap.close()


def write(path: Path, first: int, last: int) -> None:
    """Write rows ``first`` … ``last``, one transaction each; every third one replaces row 1."""
    with application(path) as app:
        app.execute("PRAGMA busy_timeout = 60000").close()
        for number in range(first, last + 1):
            row = 1 if number % 3 == 0 else number
            app.execute("INSERT OR REPLACE INTO item VALUES (?, ?)", (row, f"name {number}" * 5))


def truth(path: Path) -> dict[str, Any]:
    """The table as it is."""
    with application(path) as app:
        rows = app.execute("SELECT id, name FROM item").fetchall()
    return {
        json.dumps(["main", "item", n], separators=(",", ":")): {"id": n, "name": name} for n, name in rows
    }


def fold(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The state that the lines of ``headrace listen`` add up to."""
    state: dict[str, Any] = {}
    for line in lines:
        if line.get("snapshot") == "begin":
            state = {}
        if "key" not in line or "control" in line:
            continue
        if line.get("op") == "delete":
            state.pop(line["key"], None)
        else:
            state[line["key"]] = line["changes"]
    return state


def listen(folder: Path, server: SecuredServer, token: Path, *words_more: str) -> list[dict[str, Any]]:
    """Run the listener up to the head; returns its lines."""
    words = ["listen", FEED, "--once", "--snapshot", "needed", "--server", server.url, *words_more]
    words += ["--bookmark", str(folder / "bookmark"), "--token-file", str(token)]
    done = forks.run(
        [*forks.HEADRACE, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert token.read_text() not in done.stderr + done.stdout
    return [json.loads(line) for line in done.stdout.splitlines()]


def minted(path: Path, token: str) -> Path:
    """Write a token into a file."""
    path.write_text(token)
    return path


@pytest.mark.parametrize(
    "agent_tls", chosen([False, True]), ids=lambda agent_tls: "tls" if agent_tls else "plain"
)
def test_listener_cut_off_for_longer_than_retention_gets_the_snapshot_then_newer_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, agent_tls: bool
) -> None:
    issuer, source, listens = Issuer(), tmp_path / "app.db", free_port()
    with application(source) as app:
        app.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
    attach_tables(parse_dsn(f"sqlite:///{source}"), AttachRequest(feed=FEED, tables=("item",)))
    reader = minted(tmp_path / "reader", issuer.token(roles=["listener"], feeds=["shop*"]))
    writer = minted(tmp_path / "writer", issuer.token(roles=["publisher"], feeds=["shop"]))
    with secured(tmp_path / "server", issuer, tls=True) as server, tapped(listens) as tap:
        assert server.authority is not None
        trusted = str(server.authority.file)
        trusts = ("--ca-file", trusted) if agent_tls else ()
        settings: dict[str, Any] = {
            "token_file": str(writer),
            "snapshot_listen": f"127.0.0.1:{listens}",
            "snapshot_url": f"{'https' if agent_tls else 'http'}://127.0.0.1:{tap.port}/snapshot",
            "snapshot_dir": str(tmp_path / "spool"),
        }
        if agent_tls:
            pair = server.authority.sign("agent")
            settings |= {"snapshot_tls_cert": str(pair.cert), "snapshot_tls_key": str(pair.key)}
            settings["ca_file"] = trusted
        else:
            monkeypatch.setenv("HEADRACE_TLS_CA", trusted)
        with AgentProcess(tmp_path / "agent", server.url, f"sqlite:///{source}", FEED, **settings) as agent:
            write(source, 1, 9)
            wait_until(lambda: feed_of(server).get("head-sequence-id", 0) >= 9, what="the agent to begin")
            wait_until(lambda: backlog(source) == 0, what="the agent to post")
            before = listen(tmp_path, server, reader, *trusts)
            assert fold(before) == truth(source)
            assert tap.sent == b"", "nobody needed a snapshot"
            server.stop()
            server.args += FAST
            server.start()
            last, written = before[-1]["sequence-id"], 10

            def is_cut_off() -> bool:
                nonlocal written
                write(source, written, written + 9)
                written += 10
                return bool(feed_of(server)["oldest-sequence-id"] > last + 1)

            wait_until(is_cut_off, what="the listener's place to go")
            after = listen(
                tmp_path, server, reader, "--hold", *trusts
            )  # else the next entries may go, too, before it comes back
            assert next(line["snapshot"] for line in after if "snapshot" in line) == "begin"
            write(source, written, written + 5)
            wait_until(lambda: backlog(source) == 0, what="the agent to post")
            after += listen(tmp_path, server, reader, "--hold", *trusts)
            assert fold(after) == truth(source)
            ends = [line for line in after if line.get("snapshot") == "end"]
            assert len(ends) == 1
            newer = [line["sequence-id"] for line in after if "snapshot" not in line]
            assert newer == list(range(ends[0]["sequence-id"] + 1, newer[-1] + 1))
            assert feed_of(server)["hydrations"] == [], "given back"
            assert issuer.token() not in agent.errors()
        if not agent_tls:
            assert b"GET /snapshot?" in tap.sent
            assert b"ticket=" in tap.sent
            assert b"authorization" not in tap.sent.lower()
            assert reader.read_bytes() not in tap.sent
        else:
            assert tap.sent
        server.stop()
        assert reader.read_text() not in server.errors()


def feed_of(server: SecuredServer) -> dict[str, Any]:
    """The feed as an admin sees it; nothing before it is there."""
    answer = server.http.get(f"/feeds/{FEED}")
    found: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
    return found


def backlog(source: Path) -> int:
    """Rows that the agent has not posted."""
    with application(source) as app:
        ((count,),) = app.execute("SELECT count(*) FROM headrace_outbox WHERE NOT processed").fetchall()
    return int(count)
