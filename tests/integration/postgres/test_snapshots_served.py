"""Whatever a listener or the agent does within a snapshot: marking goes on, the source is let go, nothing half is served."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.client.tls import NO_TLS
from tests.agents import AgentProcess, headrace
from tests.ports import free_port
from tests.postgres import Database
from tests.servers import ServerProcess, serving
from tests.states import Body, parse_body
from tests.waiting import wait_until

FEED = "shop"
TOKEN = "of-this-agent-alone"
ROWS = 20_000
SLOW = """
WITH RECURSIVE tries (done) AS (
    SELECT pg_try_advisory_lock_shared(4711)
    UNION ALL SELECT pg_try_advisory_lock_shared(4711) FROM tries, LATERAL (SELECT pg_sleep(0.02)) AS waits WHERE NOT done
) SELECT 'slow', '{}' FROM tries WHERE done"""
"""A state that is not whole as long as a test holds that lock."""


class Shop:
    """A table of some 10 MB, a server, and an agent that serves snapshots of it."""

    def __init__(self, folder: Path, database: Database, server: ServerProcess, **settings: Any) -> None:
        self.database = database
        self.server = server
        self.spool = folder / "spool"
        self.port = free_port()
        (folder / "token").write_text(TOKEN)
        self.agent = AgentProcess(
            folder / "agent",
            server.url,
            database.dsn,
            FEED,
            snapshot_listen=f"127.0.0.1:{self.port}",
            snapshot_dir=str(self.spool),
            snapshot_token_file=str(folder / "token"),
            **settings,
        )

    def get(self, encoding: str = "zstd, gzip") -> httpx.Response | None:
        """Ask once; None if nobody answers."""
        try:
            return httpx.get(
                f"http://127.0.0.1:{self.port}/snapshot",
                params={"change-feed-id": FEED, "listener-id": "l"},
                headers={"Authorization": f"Bearer {TOKEN}", "Accept-Encoding": encoding},
                trust_env=False,
                verify=NO_TLS,
                timeout=60,
            )
        except httpx.TransportError:
            return None

    def answer(self, status: int) -> httpx.Response:
        """Ask until the answer has this status."""

        found: list[httpx.Response] = []

        def ask() -> bool:
            answer = self.get()
            if answer is not None:
                found.append(answer)
            return answer is not None and answer.status_code == status

        wait_until(ask, 60, what=f"the answer {status}")
        return found[-1]

    def body(self) -> Body:
        """Ask until there is a whole snapshot."""
        return parse_body(self.answer(200).content)

    def head(self) -> int:
        """The feed's newest entry."""
        answer = self.server.http.get(f"/feeds/{FEED}/tail")
        return int(answer.json()["next-sequence-id"]) - 1 if answer.status_code == 200 else 0

    def change_a_row(self) -> None:
        """Change a row, and wait until that is in the feed."""
        before = self.head()
        self.database.sql("UPDATE item SET name = name || '+' WHERE id = 1")
        wait_until(lambda: self.head() == before + 1, 60, what="the change to reach the feed")

    def sessions(self, where: str) -> list[Any]:
        """What our sessions do that meet a condition."""
        return self.database.sql(
            "SELECT application_name, state, query FROM pg_stat_activity "
            f"WHERE datname = '{self.database.name}' AND application_name LIKE 'headrace%' AND {where}"
        )

    def drafts(self) -> list[Path]:
        """Snapshots in the making of which something is written."""
        return [one for one in self.spool.glob("*.making/identity") if one.stat().st_size]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server") as running:
        yield running


@pytest.fixture(autouse=True)
def _table(database: Database) -> None:
    database.sql("CREATE TABLE item (id int PRIMARY KEY, name text)")
    database.sql(f"INSERT INTO item SELECT n, repeat(md5(n::text), 16) FROM generate_series(1, {ROWS}) AS n")
    headrace(["publisher", "attach", database.dsn, "--feed", FEED, "--table", "item", "--no-copy"])


def test_stalled_listener_holds_nothing_in_the_source(
    tmp_path: Path, database: Database, server: ServerProcess
) -> None:
    shop = Shop(tmp_path, database, server)
    with shop.agent, closing(socket.socket()) as line:
        body = shop.body()
        assert len(body.rows) == ROWS
        standing = shop.agent.status()["feeds"][0]["snapshot"]
        assert (standing["snapshot-id"], standing["sequence-id"], standing["rows"], standing["kept"]) == (
            body.header["snapshot-id"],
            body.sequence_id,
            ROWS,
            1,
        )
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", shop.port))
        target = f"/snapshot?change-feed-id={FEED}&listener-id=slow"
        line.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        assert line.recv(20).startswith(b"HTTP/1.1 200")
        # From now on it takes nothing.
        shop.change_a_row()
        shop.change_a_row()
        assert shop.sessions("application_name = 'headrace snapshot'") == []
        wait_until(lambda: not shop.sessions("state LIKE 'idle in transaction%'"), what="no open transaction")
        assert parse_body(shop.answer(200).content).header == body.header
        shop.database.sql("SET lock_timeout = '5s'; ALTER TABLE item ADD COLUMN more int")


def test_marking_goes_on_while_the_state_is_read(
    tmp_path: Path, database: Database, server: ServerProcess
) -> None:
    shop = Shop(tmp_path, database, server, snapshot_sql={FEED: SLOW})
    with shop.agent, database.connect() as holder:
        holder.execute("SELECT pg_advisory_lock(4711)")
        shop.answer(202)
        wait_until(shop.drafts, what="rows in the spool")
        shop.change_a_row()
        making = {"state": "being-made", "rows": ROWS}
        wait_until(lambda: shop.answer(202).json() == making, what="all rows but the slow one to be read")
        assert len(shop.sessions("application_name = 'headrace snapshot'")) == 1
        head = shop.head()
        holder.execute("SELECT pg_advisory_unlock(4711)")
        body = shop.body()
        assert body.sequence_id < head
        assert len(body.rows) == ROWS + 1
        assert not shop.sessions("application_name = 'headrace snapshot'")


def test_sigkill_within_a_snapshot_leaves_no_half_one(
    tmp_path: Path, database: Database, server: ServerProcess
) -> None:
    shop = Shop(tmp_path, database, server, snapshot_sql={FEED: SLOW})
    with shop.agent, database.connect() as holder:
        holder.execute("SELECT pg_advisory_lock(4711)")
        shop.answer(202)
        (draft,) = wait_until(shop.drafts, what="rows in the spool")
        shop.agent.kill()
        assert draft.exists()
        shutil.copytree(
            draft.parent, shop.spool / draft.parent.name.removesuffix(".making")
        )  # a name alone makes none whole
        holder.execute("SELECT pg_advisory_unlock(4711)")
        shop.agent.start()
        body = shop.body()
        assert body.header["snapshot-id"] not in draft.parent.name
        assert not draft.exists()
        assert len(body.rows) == ROWS + 1
        left = {one.name for one in shop.spool.iterdir()}
        assert left == {"owner.lock", body.header["snapshot-id"]}
        wait_until(
            lambda: not shop.sessions("application_name = 'headrace snapshot'"), what="the reader to end"
        )


def test_sigterm_within_a_snapshot_ends_the_agent_and_the_draft(
    tmp_path: Path, database: Database, server: ServerProcess
) -> None:
    shop = Shop(tmp_path, database, server, snapshot_sql={FEED: SLOW})
    with shop.agent, database.connect() as holder:
        holder.execute("SELECT pg_advisory_lock(4711)")
        shop.answer(202)
        wait_until(shop.drafts, what="rows in the spool")
        assert shop.agent.stop() == 0
        assert [one.name for one in shop.spool.iterdir()] == ["owner.lock"]
