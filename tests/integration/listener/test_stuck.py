"""A listener that can't go on says so (its health, its report, an alarm), and gives each change once all the same."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from headrace.listener import Listener, ListenerSettings, SqliteBookmarks
from tests import forks
from tests.ports import free_port
from tests.postgres import Database
from tests.proxy import Proxy
from tests.servers import Feed, ServerProcess, serving
from tests.stuck import WITHIN, reasons, stalled, wait_over, wait_ready, wait_state, wait_stuck
from tests.waiting import async_wait_until, wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server") as running:
        yield running


def shop(server: ServerProcess) -> Feed:
    feed = Feed(server, "shop")
    feed.register()
    feed.post({"changes": {"n": 1}})
    return feed


async def test_a_half_open_line_to_the_server(server: ServerProcess, tmp_path: Path) -> None:
    feed, port, got = shop(server), free_port(), list[int]()
    settings = ListenerSettings(
        poll_timeout_ms=1000, health=f"127.0.0.1:{port}", stalled_after="2s", reports=True
    )

    async def follow(listener: Listener) -> None:
        async for change in listener:
            got.append(change.sequence_id)

    with Proxy("127.0.0.1", int(server.address.rpartition(":")[2])) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        with closing(SqliteBookmarks(tmp_path / "bookmarks.db")) as store:
            async with Listener(url, feed.name, "l", store, settings=settings) as listener:
                task = asyncio.create_task(follow(listener))
                await async_wait_until(lambda: got == [1] or task.done(), WITHIN, what="the first change")
                await asyncio.to_thread(wait_state, server, "listener", "idle")
                proxy.freeze()
                feed.post({"changes": {"n": 2}})
                (reason,) = await async_wait_until(lambda: asyncio.to_thread(reasons, port), WITHIN)
                assert reason.startswith("listener l does not move at 1 though 1 wait")
                proxy.thaw()
                await async_wait_until(lambda: got == [1, 2] or task.done(), WITHIN, what="the second one")
                await asyncio.to_thread(wait_ready, port)
                task.cancel()
                await asyncio.wait({task})


def test_a_bookmark_that_is_locked(server: ServerProcess, database: Database, tmp_path: Path) -> None:
    feed, port, out = shop(server), free_port(), tmp_path / "out"
    words = [*forks.HEADRACE, "listen", "shop", "--server", server.url, "--bookmark", database.dsn]
    with out.open("wb") as lines, (tmp_path / "err").open("wb") as errors:
        process = forks.start(
            [*words, "--health", f"127.0.0.1:{port}", "--stalled-after", "3s"],
            stdout=lines,
            stderr=errors,
            stdin=subprocess.DEVNULL,
        )

    def got() -> list[int]:
        return [json.loads(line)["sequence-id"] for line in out.read_text().splitlines()]

    try:
        wait_until(lambda: got() == [1], WITHIN, what="the first change")
        shown = wait_state(server, "listener", "idle")
        assert shown["name"] == "listen@shop"
        assert shown["report"]["works"][0]["source-position"] == "1"
        with psycopg.connect(database.dsn) as other:
            other.execute("SELECT * FROM headrace_listener.bookmark FOR UPDATE")
            feed.post({"changes": {"n": 2}})
            wait_stuck(server, port, "listener listen does not move at 1", "the bookmark store")
            (alarm,) = stalled(server)
            assert "the listener listen@shop on " in alarm
            other.rollback()
        feed.post({"changes": {"n": 3}})
        wait_until(lambda: got() == [1, 2, 3], WITHIN, what="all changes, each once")
        wait_over(server, port)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN) == 0
        wait_state(server, "listener", "ending")
    finally:
        process.kill()
        process.wait(WITHIN)


def test_a_consumer_that_takes_nothing(server: ServerProcess, tmp_path: Path) -> None:
    feed, port, gate = shop(server), free_port(), tmp_path / "gate"
    feed.post({"changes": {"n": 2}})
    script = tmp_path / "take"
    script.write_text(f"#!/bin/sh\ncat >> {tmp_path / 'taken'}\ntest -e {gate} || exec tail -f /dev/null\n")
    script.chmod(0o700)
    words = [*forks.HEADRACE, "listen", "shop", "--server", server.url, "--exec", str(script)]
    words += [
        "--bookmark",
        str(tmp_path / "bookmark"),
        "--health",
        f"127.0.0.1:{port}",
        "--stalled-after",
        "3s",
    ]
    process = forks.start(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_stuck(server, port, "listener listen does not move", "though 2 wait: it waits for the consumer")
    finally:
        process.kill()
        process.wait(WITHIN)
    gate.touch()
    process = forks.start(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(
            lambda: (tmp_path / "taken").read_text().count('"n":2') == 1, WITHIN, what="the second change"
        )
        wait_over(server, port)
    finally:
        process.kill()
        process.wait(WITHIN)
