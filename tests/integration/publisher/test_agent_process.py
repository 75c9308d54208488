"""The agent as a process, against a real server: SIGKILL at random moments, fencing, a restored source, a refused row."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.client.http import FeedClient
from headrace.client.tls import NO_TLS
from headrace.errors import AgentFenced, FeedOwned, HeadraceError, OutboxBehindFeed, TableNotFound, TooLarge
from headrace.publisher.agent import run_agent
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.attaching import attach_tables
from headrace.publisher.outbox import Outbox
from headrace.publisher.settings import AgentSettings
from headrace.runtime.dsn import parse_dsn
from tests import forks
from tests.scale import SEED, scaled, sized
from tests.servers import ServerProcess, serving
from tests.unit.publisher.outboxes import application
from tests.waiting import async_wait_until, wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server") as running:
        yield running


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "app.db"
    with application(path) as app:
        app.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)")
        app.executemany("INSERT INTO account VALUES (?, 100)", [(number,) for number in range(10)])
    attach_tables(parse_dsn(f"sqlite:///{path}"), AttachRequest(feed="bank", tables=("account",)))
    return path


def settings_of(path: Path, server: ServerProcess, *feeds: str, agent: str = "agent-1") -> AgentSettings:
    return AgentSettings(agent_id=agent, feeds=feeds or ("bank",), server=server.url, dsn=f"sqlite:///{path}")


@asynccontextmanager
async def running(settings: AgentSettings, **options: Any) -> AsyncIterator[asyncio.Task[None]]:
    """Run an agent in this process; stopped at the end."""
    stop = asyncio.Event()
    task = asyncio.create_task(run_agent(settings, stop, **options))
    try:
        yield task
    finally:
        stop.set()
        await asyncio.wait({task})


def waiting_rows(path: Path) -> int:
    with closing(sqlite3.connect(path, timeout=30)) as app:
        return int(app.execute("SELECT count(*) FROM headrace_outbox WHERE NOT processed").fetchone()[0])


def wait_for_change(path: Path, before: int) -> None:
    wait_until(lambda: waiting_rows(path) != before, within=60, what="the agent to do something")


def read_feed(server: ServerProcess, feed: str = "bank") -> list[dict[str, Any]]:
    """Return all entries of the feed."""
    entries: list[dict[str, Any]] = []
    with httpx.Client(base_url=server.url, trust_env=False, verify=NO_TLS) as http:
        while True:
            answer = http.get(f"/feeds/{feed}/entries", params={"beg-sequence-id": len(entries) + 1})
            answer.raise_for_status()
            page = answer.json()["changes-list"]
            entries += page
            if not page:
                return entries


def check_bank(entries: list[dict[str, Any]], path: Path) -> None:
    """Check that places are dense, no transaction is torn, money is kept at each end of one, and the end is the table's."""
    assert [entry["sequence-id"] for entry in entries] == list(range(1, len(entries) + 1))
    state: dict[str, int] = {}
    open_tx = None
    copied = False
    for entry in entries:
        assert open_tx in (None, entry["tx"]), f"{entry['sequence-id']} tears the transaction {open_tx}"
        open_tx = None if entry.get("tx-last") else entry["tx"]
        copied = copied or entry.get("control") == "copy-end"
        if "control" not in entry:
            state[entry["key"]] = entry["changes"]["balance"]
        if open_tx is None and copied:
            assert sum(state.values()) == 1000
    assert open_tx is None
    with closing(sqlite3.connect(path)) as app:
        rows = app.execute("SELECT id, balance FROM account").fetchall()
    assert state == {
        json.dumps(["main", "account", number], separators=(",", ":")): balance for number, balance in rows
    }


def transfer(app: sqlite3.Connection, rng: random.Random) -> None:
    """Move money between two accounts; one in ten takes it back."""
    one, other = rng.sample(range(10), 2)
    app.execute("BEGIN IMMEDIATE")
    app.execute("UPDATE account SET balance = balance - 1 WHERE id = ?", (one,))
    app.execute("UPDATE account SET balance = balance + 1 WHERE id = ?", (other,))
    app.execute("ROLLBACK" if rng.random() < 0.1 else "COMMIT")


class AgentProcess:
    """``headrace agent run`` as a process."""

    def __init__(self, path: Path, server: ServerProcess) -> None:
        config = path.with_name("agent.toml")
        config.write_text(f'agent-id = "agent-1"\nserver = "{server.url}"\nfeeds = ["bank"]\n')
        with path.with_name("agent.err").open("ab") as errors:
            self.process = forks.start(
                [*forks.HEADRACE, "agent", "run", "--config", str(config)],
                env={**os.environ, "HEADRACE_DSN": f"sqlite:///{path}"},
                stderr=errors,
            )

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


@pytest.mark.parametrize("seed", range(scaled(1)), ids=lambda seed: f"seed-{seed}")
def test_sigkill_of_agent_and_server_loses_and_doubles_nothing(
    path: Path, server: ServerProcess, seed: int
) -> None:
    rng = random.Random(SEED + seed)
    agent = AgentProcess(path, server)
    with application(path) as app:
        app.execute("PRAGMA busy_timeout = 30000").close()
        for life in range(sized(4, soak=6)):
            before = waiting_rows(path)
            for _ in range(rng.randrange(20, 200)):
                transfer(app, rng)
            wait_for_change(path, before)
            agent.end(signal.SIGKILL)
            if life % 2:
                server.kill()
            for _ in range(rng.randrange(20)):
                transfer(app, rng)
            agent = AgentProcess(path, server)
            if life % 2:
                server.start()
        wait_until(lambda: waiting_rows(path) == 0, within=60)
    assert agent.end(signal.SIGTERM) == 0
    check_bank(read_feed(server), path)


async def test_newer_process_of_the_same_agent_fences_the_older(path: Path, server: ServerProcess) -> None:
    async with running(settings_of(path, server)) as task, FeedClient(server.url) as client:
        await async_wait_until(lambda: waiting_rows(path) == 0)
        newer = await client.register_publisher("agent-1", "bank", instance="another-process")
        with application(path) as app:
            transfer(app, random.Random(7))
            app.execute("UPDATE account SET balance = balance")
        with pytest.raises(AgentFenced) as caught:
            await task
        assert caught.value.exit_code == 3
        assert (await client.tail("bank")).epoch == newer.epoch, "a fenced agent registered again"


async def test_other_agent_needs_takeover(path: Path, server: ServerProcess) -> None:
    async with running(settings_of(path, server)):
        await async_wait_until(lambda: waiting_rows(path) == 0)
    other = settings_of(path, server, agent="agent-2")
    with pytest.raises(FeedOwned):
        await run_agent(other, asyncio.Event())
    with application(path) as app:
        transfer(app, random.Random(7))
        async with running(other, takeover=True):
            await async_wait_until(lambda: waiting_rows(path) == 0)
    check_bank(read_feed(server), path)


async def test_restored_source_stops_the_feed_until_it_is_accepted(path: Path, server: ServerProcess) -> None:
    old = path.with_name("old.db")
    settings = settings_of(path, server)
    async with running(settings) as task:
        await async_wait_until(lambda: waiting_rows(path) == 0)
        with closing(sqlite3.connect(path)) as app, closing(sqlite3.connect(old)) as copy:
            app.backup(copy)
            app.isolation_level = None
            transfer(app, random.Random(7))
        await async_wait_until(lambda: waiting_rows(path) == 0)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        shutil.move(old, path)  # as an operator restores: another file under the same name
        with pytest.raises(OutboxBehindFeed) as caught:
            await task
    assert "publisher accept" in caught.value.advice
    done = forks.run(
        [
            *forks.HEADRACE,
            "publisher",
            "accept",
            "--feed",
            "bank",
            "--reason",
            "restored",
            "--json",
        ],
        env={**os.environ, "HEADRACE_DSN": f"sqlite:///{path}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["code"] == "outbox-behind-feed"
    with application(path) as app:
        transfer(app, random.Random(8))
    async with running(settings):
        await async_wait_until(lambda: waiting_rows(path) == 0 and len(read_feed(server)) > 20)
    entries = read_feed(server)
    truncate = max(number for number, entry in enumerate(entries) if entry.get("control") == "truncate")
    anew = [{**entry, "sequence-id": number + 1} for number, entry in enumerate(entries[truncate + 1 :])]
    check_bank([entry for entry in anew if entry.get("control") != "schema"], path)


async def test_refused_row_stops_its_feed_only(path: Path, server: ServerProcess) -> None:
    with application(path) as app:
        app.execute(
            "INSERT INTO headrace_outbox (change_feed_id, op, changes) VALUES ('large', 'put', ?)",
            (json.dumps({"a": "x" * (2 << 20)}),),
        )
    stop = asyncio.Event()
    task = asyncio.create_task(run_agent(settings_of(path, server, "large", "bank"), stop))
    await async_wait_until(lambda: waiting_rows(path) == 1)
    with application(path) as app:
        stored = await async_wait_until(
            lambda: app.execute("SELECT alarm FROM headrace_owner WHERE feed = 'large'").fetchone()[0]
        )
        transfer(app, random.Random(7))
        await async_wait_until(lambda: waiting_rows(path) == 1)
    assert json.loads(stored)["code"] == "too-large"
    stop.set()
    with pytest.raises(TooLarge):
        await task
    check_bank(read_feed(server), path)


async def test_new_column_is_seen_before_the_next_row_is_marked(path: Path, server: ServerProcess) -> None:
    async with running(settings_of(path, server)):
        await async_wait_until(lambda: waiting_rows(path) == 0)
        with application(path) as app:
            app.execute("ALTER TABLE account ADD COLUMN note TEXT")
            app.execute("UPDATE account SET note = 'new' WHERE id = 3")
        await async_wait_until(lambda: any("note" in entry["changes"] for entry in read_feed(server)))
        await async_wait_until(lambda: waiting_rows(path) == 0)
    last = [entry for entry in read_feed(server) if entry.get("key") == '["main","account",3]'][-1]
    assert (last["changes"], last["copy"]) == ({"id": 3, "balance": 100, "note": "new"}, True)


async def test_server_that_is_not_there_yet_is_waited_for(path: Path, server: ServerProcess) -> None:
    server.kill()
    async with running(settings_of(path, server)):
        with application(path) as app:
            transfer(app, random.Random(7))
        server.start()
        await async_wait_until(lambda: waiting_rows(path) == 0)
    check_bank(read_feed(server), path)


async def test_application_and_agent_share_one_outbox(path: Path, server: ServerProcess) -> None:
    async with running(settings_of(path, server, "mine")):
        with application(path) as app:
            app.execute("BEGIN")
            Outbox.add(app, "mine", b'{"uuid": "a",  "n": 1.50}', op="patch", changed=["n"])
            app.execute("COMMIT")
            await async_wait_until(
                lambda: (
                    app.execute(
                        "SELECT processed FROM headrace_outbox WHERE change_feed_id = 'mine'"
                    ).fetchone()
                    == (1,)
                )
            )
    with httpx.Client(base_url=server.url, trust_env=False, verify=NO_TLS) as http:
        answer = http.get("/feeds/mine/entries", params={"beg-sequence-id": 1})
    assert b'{"uuid": "a",  "n": 1.50}' in answer.content
    (entry,) = answer.json()["changes-list"]
    assert (entry["op"], entry["key"], entry["changed"], entry["tx-last"]) == ("patch", "a", ["n"], True)


async def test_database_without_an_outbox_is_refused_untouched(tmp_path: Path, server: ServerProcess) -> None:
    with application(tmp_path / "other.db") as app:
        app.execute("CREATE TABLE t (id)")
        with pytest.raises(TableNotFound):
            await run_agent(settings_of(tmp_path / "other.db", server), asyncio.Event())
        assert app.execute("SELECT name FROM sqlite_master").fetchall() == [("t",)]
    missing = settings_of(tmp_path / "missing.db", server)
    with pytest.raises(HeadraceError, match=r"missing\.db"):
        await run_agent(missing, asyncio.Event())
    assert not (tmp_path / "missing.db").exists()
