"""A small attached database with a server and an agent, for tests of trouble: write to it, hurt it, compare the ends."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import forks
from tests.agents import AgentProcess, headrace
from tests.integration.postgres.history import Entry, entries_of
from tests.postgres import Cluster
from tests.servers import ServerProcess, serving
from tests.waiting import wait_until

FEED = "shop"
SETTLED_S_MAX = 120.0


def make_table(cluster: Cluster, database: str = "shop") -> None:
    """Make the database with one table of ten rows."""
    cluster.create_database(database)
    cluster.sql("CREATE TABLE orders (id integer PRIMARY KEY, note text NOT NULL)", database)
    write(cluster, range(10), "first", database)


def write(cluster: Cluster, ids: range, note: str, database: str = "shop") -> None:
    """Put a note on these orders, each in a transaction of its own."""
    with cluster.connect(database) as app:
        for number in ids:
            app.execute(
                "INSERT INTO orders VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET note = excluded.note",
                (number, note),
            )


def attach(dsn: str, *options: str) -> Any:
    """Attach the table."""
    return headrace(["publisher", "attach", dsn, "--table", "orders", "--feed", FEED, *options])


def refused(*words: str, **environment: str) -> dict[str, Any]:
    """Run a command that is to fail; returns its error document, with ``exit``."""
    done = forks.run(
        [*forks.HEADRACE, *words, "--json"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0, done.stdout
    assert "Traceback" not in done.stderr
    return {**json.loads(done.stdout or done.stderr), "exit": done.returncode}


@dataclass
class Shop:
    """One server and one agent over a database named ``shop``."""

    server: ServerProcess
    agent: AgentProcess

    def entries(self) -> list[Entry]:
        """Everything that the feed holds."""
        if self.server.http.get(f"/feeds/{FEED}").status_code == 404:
            return []
        return list(entries_of(self.server.url, FEED))

    def state(self) -> dict[int, str]:
        """The table as the feed leaves it."""
        rows: dict[str, dict[str, Any]] = {}
        for entry in self.entries():
            if entry.control == "truncate":
                rows.clear()
            elif entry.control is None and entry.op == "delete":
                rows.pop(entry.key, None)
            elif entry.control is None:
                rows[entry.key] = json.loads(bytes(entry.changes))
        return {row["id"]: row["note"] for row in rows.values()}

    def wait_until_equal(self, cluster: Cluster, database: str = "shop") -> None:
        """Wait until the feed holds what the table holds."""
        wait_until(
            lambda: (
                self.state() == dict(cluster.sql("SELECT id, note FROM orders", database))
                or self.raise_if_ended()
            ),
            SETTLED_S_MAX,
            what="the feed to hold what the table holds",
        )

    def wait_until_told(self, *words: str) -> None:
        """Wait until the agent's log has all of ``words``."""
        wait_until(
            lambda: all(word in self.agent.errors() for word in words),
            SETTLED_S_MAX,
            what=f"the agent to say {words}",
        )

    def wait_until_ended(self) -> int:
        """Wait until the agent has ended by itself; returns its exit code."""
        wait_until(lambda: self.agent.ended() is not None, SETTLED_S_MAX, what="the agent to end")
        return self.agent.stop()

    def raise_if_ended(self) -> bool:
        """Fail if the agent has ended: False otherwise."""
        assert self.agent.ended() is None, self.agent.errors()
        return False


@contextmanager
def running_shop(folder: Path, dsn: str) -> Iterator[Shop]:
    """Run server and agent over the attached database at ``dsn``."""
    with serving(folder) as server, AgentProcess(folder, server.url, dsn, FEED) as agent:
        yield Shop(server, agent)
