"""What scenarios of publisher and server share: an application on PostgreSQL, its feed as a reader sees it, a slammed door.

``app = Application(database); app.commit(10); app.wait_until_delivered(server)``
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

import httpx
import psycopg

from tests import forks
from tests.agents import AgentProcess, headrace
from tests.integration.postgres.history import entries_of
from tests.postgres import Database
from tests.servers import ServerProcess
from tests.waiting import wait_until

FEED = "vmapi::vm"
SETTLED_S_MAX = 120.0
CONNECT_S_MAX = 2

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: closing sends RST

Row = tuple[str, dict[str, Any]]
"""A table's name, and a row of it."""


class Application:
    """VMAPI, as the RFD calls it: one writer whose every transaction inserts an event and updates the machine it is about.

    Its order of commits is the order of the events' numbers, which have no gap. Both tables are attached to :data:`FEED`.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        with database.connect() as app:
            app.execute("CREATE TABLE vm (uuid text PRIMARY KEY, state integer NOT NULL)")
            app.execute("CREATE TABLE event (n integer PRIMARY KEY, uuid text NOT NULL)")
        words = ["publisher", "attach", database.dsn, "--table", "vm,event", "--feed", FEED]
        headrace(words)

    def commit(self, count: int, dsn: str | None = None) -> None:
        """Commit so many transactions, by way of ``dsn``; one in four is tried and rolled back before."""
        with psycopg.connect(dsn or self.database.dsn, connect_timeout=CONNECT_S_MAX) as app:
            for _ in range(count):
                number = self._write(app)
                if number % 4 == 0:
                    app.rollback()
                    self._write(app)
                app.commit()

    def _write(self, app: psycopg.Connection[Any]) -> int:
        found = app.execute("SELECT coalesce(max(n), 0) + 1 FROM event").fetchone()
        assert found is not None
        number: int = found[0]
        uuid = machine(number)
        app.execute("INSERT INTO event VALUES (%s, %s)", (number, uuid))
        app.execute(
            "INSERT INTO vm VALUES (%s, %s) ON CONFLICT (uuid) DO UPDATE SET state = excluded.state",
            (uuid, number),
        )
        return number

    def committed(self) -> list[Row]:
        """Every row that was ever committed, in the order of the commits, as the database says."""
        rows: list[Row] = []
        for number, uuid in self.database.sql("SELECT n, uuid FROM event ORDER BY n"):
            rows += [("event", {"n": number, "uuid": uuid}), ("vm", {"uuid": uuid, "state": number})]
        return rows

    def places(self) -> tuple[int, int]:
        """The next sequence id that the agent will give to a row, and the first one that it has not noted as processed."""
        found = self.database.sql(
            "SELECT next_sequence_id, processed_next FROM headrace.headrace_pass ORDER BY number DESC LIMIT 1"
        )
        return (found[0][0], found[0][1]) if found else (1, 1)

    def unmarked(self) -> int:
        """How many committed rows the agent has not marked."""
        ((rows,),) = self.database.sql("SELECT count(*) FROM headrace.headrace_outbox")
        return int(rows) - (self.places()[0] - 1)

    def wait_until_delivered(self, server: ServerProcess, agent: AgentProcess | None = None) -> None:
        """Wait until the feed has as many rows as were committed, then hold every one against the source.

        In the end the outbox has noted all of them. ``agent`` must not end meanwhile.
        """
        rows = self.committed()

        def is_there() -> bool:
            assert agent is None or agent.ended() is None, agent.errors()
            return len(delivered(server)) >= len(rows)

        wait_until(is_there, SETTLED_S_MAX, what=f"the {len(rows)} committed rows to be in the feed")
        wait_until(lambda: len(set(self.places())) == 1, SETTLED_S_MAX, what="the outbox to be processed")
        assert delivered(server) == rows
        assert self.places()[0] == head_of(server) + 1


def machine(number: int) -> str:
    """The machine that event ``number`` is about."""
    return f"vm-{number % 5}"


def delivered(server: ServerProcess) -> list[Row]:
    """The rows that a reader finds in the feed over HTTP, in order. Fails if a place is missing, or a transaction torn."""
    rows: list[Row] = []
    going_on = ""
    for place, entry in enumerate(entries_of(server.url, FEED), 1) if head_of(server) else ():
        assert entry.sequence_id == place
        assert going_on in {"", entry.tx}, f"{place} tears the transaction {going_on}"
        going_on = "" if entry.tx_last else entry.tx
        if entry.control is None:
            assert not entry.copy
            assert entry.table is not None
            rows.append((entry.table[-1], json.loads(bytes(entry.changes))))
    assert not going_on
    return rows


def head_of(server: ServerProcess) -> int:
    """The feed's newest sequence id; 0 while it has none."""
    found = server.http.get(f"/feeds/{FEED}")
    return int(found.json()["head-sequence-id"]) if found.status_code == 200 else 0


def told(process: AgentProcess | ServerProcess, event: str, **members: Any) -> list[dict[str, Any]]:
    """The lines of a process's log that have this event and these members, oldest first."""
    lines = [json.loads(line) for line in process.errors().splitlines() if line.startswith("{")]
    wanted = {"event": event, **members}
    return [line for line in lines if wanted.items() <= line.items()]


def wait_until_told(
    process: AgentProcess | ServerProcess, event: str, count: int = 1, **members: Any
) -> None:
    """Wait until there are ``count`` such lines."""
    wait_until(
        lambda: len(told(process, event, **members)) >= count,
        SETTLED_S_MAX,
        what=f"{count} lines {event!r} with {members}",
    )


def wait_until_ended(agent: AgentProcess) -> int:
    """Wait until the agent has ended by itself; returns its exit code. It can be started again then."""
    wait_until(lambda: agent.ended() is not None, SETTLED_S_MAX, what="the agent to end")
    return agent.stop()


def command(words: Sequence[str], **environment: str) -> tuple[int, dict[str, Any]]:
    """Run a ``headrace`` command; returns its exit code and the document that it prints."""
    done = forks.run(
        [*forks.HEADRACE, *words, "--json"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


def agent_status(agent: AgentProcess, dsn: str) -> tuple[int, dict[str, Any]]:
    """What ``headrace agent status`` says over ``dsn``: its exit code, and the feed, or the error that it ended with."""
    words = ["agent", "status", "--config", str(agent.folder / "agent.toml")]
    code, document = command(words, HEADRACE_DSN=dsn)
    return code, document["feeds"][0] if "feeds" in document else document


def posts(server: ServerProcess, agent_id: str) -> list[httpx.Response]:
    """The server's answers to the POSTs that bring it something to keep, sent at once; all of them well formed.

    ``agent_id`` owns the feed.
    """
    documents = {
        "/publishers/register": {"agent-id": "another", "change-feed-id": "napi::nic"},
        "/listeners/register": {"listener-id": "listener", "change-feed-id": FEED},
        f"/feeds/{FEED}/entries": {"agent-id": agent_id, "changes": {"uuid": "not of the source"}},
    }
    with ThreadPoolExecutor(len(documents)) as pool:
        return list(pool.map(lambda sent: server.http.post(sent[0], json=sent[1]), documents.items()))


_REPORT: Final = b"PUT /reports/"


class SlammedDoor:
    """Takes the connections of a port and resets each at its first bytes.

    ``times`` has when, in seconds of the monotonic clock: not of reports, which come at their own pace.
    """

    def __init__(self, port: int) -> None:
        self.times: list[float] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._slam, daemon=True)

    def __enter__(self) -> SlammedDoor:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # or accept would go on waiting
        self._thread.join(SETTLED_S_MAX)
        self._listener.close()

    def _slam(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            at = time.monotonic()
            accepted.settimeout(SETTLED_S_MAX)
            with suppress(OSError):
                if accepted.recv(len(_REPORT), socket.MSG_WAITALL) != _REPORT:
                    self.times.append(at)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            accepted.close()
