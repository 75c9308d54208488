"""An agent that can't go on says so (its health, its report, an alarm), connects anew, and loses nothing."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from headrace.client.tls import NO_TLS
from headrace.errors import SourceUnavailable, Stalled
from headrace.publisher.agent import run_agent
from headrace.publisher.outbox import Outbox
from headrace.publisher.settings import AgentSettings
from headrace.publisher.source import Source
from headrace.publisher.sqlite.source import SqliteSource
from headrace.publisher.thread import SourceThread
from tests.agents import AgentProcess
from tests.ports import free_port
from tests.postgres import Database
from tests.proxy import Proxy
from tests.servers import Feed, ServerProcess, serving
from tests.unit.publisher.outboxes import application
from tests.waiting import async_wait_until, wait_until

WITHIN = 90.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server") as running:
        yield running


def add(path: Path, number: int) -> None:
    with application(path) as app:
        app.execute("BEGIN")
        Outbox.add(app, "shop", {"n": number}, str(number))
        app.execute("COMMIT")


def ready(port: int) -> Any:
    return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=30, trust_env=False, verify=NO_TLS).json()


def values(server: ServerProcess) -> list[int]:
    answer = Feed(server, "shop").read()
    return (
        [entry["changes"]["n"] for entry in answer.json()["changes-list"]]
        if answer.status_code == 200
        else []
    )


def report(server: ServerProcess) -> dict[str, Any]:
    """The agent's report, empty before the first."""
    found = server.http.get("/reports").json()["reports"]
    return found[0] if found else {}


def stalled(server: ServerProcess) -> list[str]:
    """The details of alarms of this kind that stand."""
    alarms = server.http.get("/alarms").json()["alarms"]
    return [one["detail"] for one in alarms if one["code"] == "stalled" and one["cleared-at"] is None]


def test_a_server_that_stands_still_is_seen_and_the_agent_goes_on_after_it(
    server: ServerProcess, tmp_path: Path
) -> None:
    path, port = tmp_path / "app.db", free_port()
    with application(path) as app:
        Outbox.create(app)
    with Proxy("127.0.0.1", int(server.address.rpartition(":")[2])) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        settings = {"health": f"127.0.0.1:{port}", "stalled_after": "2s"}
        with AgentProcess(tmp_path / "agent", url, f"sqlite:///{path}", "shop", **settings) as agent:
            add(path, 1)
            wait_until(lambda: values(server) == [1], WITHIN, what="the first row")
            wait_until(
                lambda: report(server).get("state") == "idle", WITHIN, what="the report of an idle agent"
            )
            assert ready(port)["status"] == "ok"
            proxy.freeze()
            add(path, 2)
            wait_until(
                lambda: ready(port)["reasons"], WITHIN, what="the agent to be stuck on a half-open line"
            )
            (reason,) = ready(port)["reasons"]
            assert reason.startswith("relay shop does not move at 1 though ")
            assert "the server's answer to an append" in reason
            wait_until(lambda: '"code": "stalled"' in agent.errors(), WITHIN, what="the alarm in its log")
            proxy.thaw()
            wait_until(lambda: values(server) == [1, 2], WITHIN, what="the second row")
            wait_until(lambda: ready(port)["status"] == "ok", WITHIN, what="the agent to be ready again")

            assert server.process is not None
            server.process.send_signal(signal.SIGSTOP)
            try:
                add(path, 3)
                wait_until(lambda: ready(port)["reasons"], WITHIN, what="the agent to be stuck")
                assert (
                    httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False, verify=NO_TLS).status_code
                    == 200
                )
            finally:
                server.process.send_signal(signal.SIGCONT)
            wait_until(lambda: values(server) == [1, 2, 3], WITHIN, what="the third row")
            wait_until(lambda: ready(port)["status"] == "ok", WITHIN, what="the agent to be ready again")
            assert agent.stop() == 0
    wait_until(lambda: report(server)["state"] == "ending", WITHIN, what="the last report")


def test_a_held_lock_in_the_source_is_named_and_an_alarm_while_it_lasts(
    server: ServerProcess, database: Database, tmp_path: Path
) -> None:
    with closing(psycopg.connect(database.dsn)) as app:
        Outbox.create(app)
        app.commit()
        settings = {"stalled_after": "8s"}
        with AgentProcess(tmp_path / "agent", server.url, database.dsn, "shop", **settings):
            Outbox.add(app, "shop", {"n": 1}, "1")
            app.commit()
            wait_until(lambda: values(server) == [1], WITHIN, what="the first row")
            app.execute("LOCK TABLE headrace.headrace_outbox IN ACCESS EXCLUSIVE MODE")
            Outbox.add(app, "shop", {"n": 2}, "2")
            (detail,) = wait_until(lambda: stalled(server), WITHIN, what="the alarm")
            assert "the agent agent-1" in detail
            assert "lock" in detail
            shown = report(server)
            assert shown["state"] == "stuck"
            assert shown["report"]["works"][0]["feed"] == "shop"
            app.commit()
        # The process was killed; another one finds what it left.
        with AgentProcess(tmp_path / "agent", server.url, database.dsn, "shop", **settings):
            wait_until(lambda: values(server) == [1, 2], WITHIN, what="the second row")
            wait_until(lambda: not stalled(server), WITHIN, what="the alarm to be cleared")


async def test_a_call_that_never_returns_is_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with application(path) as app:
        Outbox.create(app)
    hung, release, closed = threading.Event(), threading.Event(), threading.Event()

    class Closing(SqliteSource):
        def close(self) -> None:
            super().close()
            closed.set()

    def hangs(_source: Source) -> str:
        hung.set()
        release.wait(WITHIN)
        return "late"

    source = SourceThread(lambda: Closing(path))
    await source.open()
    hanging = asyncio.create_task(source.run(hangs))
    waiting = asyncio.create_task(source.run(lambda opened: opened.schema_version()))
    await async_wait_until(hung.is_set)
    assert source.busy_s > 0
    source.abandon(Stalled("no answer"))
    for task in (hanging, waiting):
        with pytest.raises(Stalled):
            await task
    with pytest.raises(SourceUnavailable):
        await source.run(lambda opened: opened.schema_version())
    generation = source.generation
    await source.reopen()
    assert source.generation == generation + 1
    assert isinstance(await source.run(lambda opened: opened.schema_version()), int)
    assert not closed.is_set(), "what hangs still uses it"
    release.set()
    await async_wait_until(closed.is_set, what="the old connection to be closed once its call came back")
    await source.close()


@asynccontextmanager
async def running(settings: AgentSettings) -> AsyncIterator[asyncio.Task[None]]:
    stop = asyncio.Event()
    task = asyncio.create_task(run_agent(settings, stop))
    try:
        yield task
    finally:
        stop.set()
        await asyncio.wait({task})


async def test_the_agent_connects_its_source_anew_when_a_call_never_returns(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "app.db"
    with application(path) as app:
        Outbox.create(app)
    release, hung = threading.Event(), threading.Event()
    real = SqliteSource.batch

    def hangs_once(self: SqliteSource, *given: Any) -> Any:
        if not hung.is_set():
            hung.set()
            release.wait(WITHIN)
        return real(self, *given)

    monkeypatch.setattr(SqliteSource, "batch", hangs_once)
    add(path, 1)
    settings = AgentSettings(
        agent_id="agent-1", feeds=("shop",), server=server.url, dsn=f"sqlite:///{path}", stalled_after="1s"
    )
    try:
        async with running(settings):
            await async_wait_until(
                lambda: values(server) == [1], WITHIN, what="the row, over a new connection"
            )
            assert hung.is_set()
    finally:
        release.set()
