"""A restore under a running agent, and answers that say nothing: against a real server, entry by entry."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.client.http import FeedClient
from headrace.client.http_problem import problem_of
from headrace.errors import (
    AgentFenced,
    Fenced,
    OutboxBehindFeed,
)
from headrace.publisher.agent import run_agent
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.attaching import attach_tables
from headrace.publisher.joined import FeedEnded
from headrace.publisher.relay import FeedRelay
from headrace.publisher.settings import AgentSettings
from headrace.publisher.sqlite.source import SqliteSource
from headrace.publisher.thread import SourceThread
from headrace.runtime.backoff import Backoff
from headrace.runtime.clock import SystemClock
from headrace.runtime.dsn import parse_dsn
from headrace.wire.documents import Appended, EntryIn, PublisherRegistered
from tests.servers import ServerProcess, serving
from tests.unit.publisher.outboxes import application, opened
from tests.waiting import async_wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


def attached(path: Path, feed: str) -> None:
    with application(path) as app:
        app.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x)")
    attach_tables(parse_dsn(f"sqlite:///{path}"), AttachRequest(feed=feed, tables=("t",)))


def insert(path: Path, value: str, *numbers: int) -> None:
    with application(path) as app:
        app.execute("BEGIN")
        app.executemany("INSERT INTO t VALUES (?, ?)", [(number, value) for number in numbers])
        app.execute("COMMIT")


def is_processed(path: Path) -> bool:
    with closing(sqlite3.connect(path, timeout=30)) as app:
        query = "SELECT (SELECT count(*) FROM headrace_outbox WHERE NOT processed)"
        return int(app.execute(query).fetchone()[0]) == 0


def state_of(server: ServerProcess, feed: str) -> dict[str, Any]:
    """Return what a consumer of ``feed`` holds in the end."""
    state: dict[str, Any] = {}
    answer = server.http.get(f"/feeds/{feed}/entries", params={"beg-sequence-id": 1})
    for entry in answer.json().get("changes-list", []):  # no feed before the first registration
        if entry.get("control") == "truncate":
            state.clear()
        elif "control" not in entry:
            state[entry["key"]] = entry["changes"]["x"]
    return state


def table_of(path: Path) -> dict[str, Any]:
    with closing(sqlite3.connect(path)) as app:
        return {f'["main","t",{key}]': value for key, value in app.execute("SELECT id, x FROM t")}


async def test_restore_into_the_open_file_stops_the_feed(tmp_path: Path, server: ServerProcess) -> None:
    path, old, feed = tmp_path / "app.db", tmp_path / "old.db", "in-place"
    attached(path, feed)
    settings = AgentSettings(agent_id="a", feeds=(feed,), server=server.url, dsn=f"sqlite:///{path}")
    task = asyncio.create_task(run_agent(settings, asyncio.Event()))
    insert(path, "first", 0)
    await async_wait_until(lambda: is_processed(path))
    with closing(sqlite3.connect(path)) as app, closing(sqlite3.connect(old)) as copy:
        app.backup(copy)
    insert(path, "after the backup", 1, 2, 3)
    await async_wait_until(lambda: is_processed(path))
    with closing(sqlite3.connect(path, timeout=30)) as app, closing(sqlite3.connect(old)) as copy:
        copy.backup(app)
    insert(path, "new", 1, 2, 3, 4, 5)
    with pytest.raises(OutboxBehindFeed):
        await asyncio.wait_for(task, 60)
    assert "new" not in state_of(server, feed).values()
    with opened(path) as source:
        source.accept(feed, "restored")
    stop = asyncio.Event()
    task = asyncio.create_task(run_agent(settings, stop))
    await async_wait_until(lambda: state_of(server, feed) == table_of(path))
    stop.set()
    await task
    assert set(table_of(path).values()) == {"first", "new"}


class RealServer:
    """Passes all on to the real server."""

    def __init__(self, client: FeedClient) -> None:
        self.client = client

    async def register_publisher(
        self,
        agent_id: str,
        feed: str,
        *,
        instance: str | None = None,
        takeover: bool = False,
        snapshot_url: str | None = None,
    ) -> PublisherRegistered:
        return await self.client.register_publisher(agent_id, feed, instance=instance, takeover=takeover)

    async def append(self, feed: str, entries: list[EntryIn], **named: Any) -> Appended:
        return await self.client.append(feed, entries, **named)


def relay_of(feed: str, source: SourceThread, server: RealServer) -> FeedRelay:
    backoff = Backoff(first_s=0.001, delay_s_max=0.002)
    return FeedRelay(feed, "agent-1", source, server, clock=SystemClock(), backoff=backoff)


async def test_source_replaced_during_a_post_is_not_marked(tmp_path: Path, server: ServerProcess) -> None:
    path, old, feed = tmp_path / "app.db", tmp_path / "old.db", "mid-post"
    attached(path, feed)
    names = iter([path])
    source = SourceThread(lambda: SqliteSource(next(names, old)))

    class Replacing(RealServer):
        async def append(self, feed: str, entries: list[EntryIn], **named: Any) -> Appended:
            answer = await super().append(feed, entries, **named)
            if b"lost" in b"".join(bytes(entry.changes) for entry in entries) and source.generation == 1:
                insert(old, "new", 1, 2, 3)
                await source.reopen()
            return answer

    async with FeedClient(server.url) as client:
        relay = relay_of(feed, source, Replacing(client))
        await source.open()
        task = asyncio.create_task(relay.run(asyncio.Event()))
        await async_wait_until(lambda: is_processed(path))
        with closing(sqlite3.connect(path)) as app, closing(sqlite3.connect(old)) as copy:
            app.backup(copy)
        insert(path, "lost", 1, 2, 3)
        relay.wake.set()
        with pytest.raises(FeedEnded) as caught:
            await asyncio.wait_for(task, 60)
        await source.close()
    assert isinstance(caught.value.error, OutboxBehindFeed)
    with closing(sqlite3.connect(old)) as app:
        waiting = app.execute("SELECT count(*) FROM headrace_outbox WHERE sequence_id IS NULL").fetchone()
    assert waiting == (3,)


@pytest.mark.parametrize("carried_out", [True, False], ids=["after", "before"])
@pytest.mark.parametrize(
    "answer",
    [
        (500, b'{"code":"failed","detail":"no space left","status":500}'),
        (404, b"default backend - 404"),
        (429, b"Too Many Requests"),
        (401, b'{"code":"unauthenticated","detail":"unknown key"}'),
    ],
    ids=lambda answer: str(answer[0]),
)
async def test_answers_that_settle_nothing(
    tmp_path: Path, server: ServerProcess, carried_out: bool, answer: tuple[int, bytes]
) -> None:
    """A server that fails, an ingress while servers are replaced, keys that rotate: the feed goes on by itself."""
    path, feed = tmp_path / "app.db", f"failing-{carried_out}-{answer[0]}"
    attached(path, feed)
    insert(path, "a", 1, 2)
    failures = {"register": 2, "append": 2}

    class Failing(RealServer):
        async def register_publisher(self, *given: Any, **named: Any) -> PublisherRegistered:
            done = await super().register_publisher(*given, **named) if carried_out else None
            self.fail("register")
            return done or await super().register_publisher(*given, **named)

        async def append(self, *given: Any, **named: Any) -> Appended:
            done = await super().append(*given, **named) if carried_out else None
            self.fail("append")
            return done or await super().append(*given, **named)

        def fail(self, what: str) -> None:
            if failures[what]:
                failures[what] -= 1
                raise problem_of(*answer)

    source = SourceThread(lambda: SqliteSource(path))
    ending = asyncio.Event()
    async with FeedClient(server.url) as client:
        relay = relay_of(feed, source, Failing(client))
        await source.open()
        task = asyncio.create_task(relay.run(ending))
        await async_wait_until(lambda: task.done() or state_of(server, feed) == table_of(path))
        await async_wait_until(lambda: task.done() or is_processed(path))
        ending.set()
        relay.wake.set()
        await task
        await source.close()
    assert failures["register"] == 0
    assert state_of(server, feed) == table_of(path)


async def test_fenced_at_any_answer_ends_the_agent(tmp_path: Path, server: ServerProcess) -> None:
    path = tmp_path / "app.db"
    attached(path, "fenced-early")

    class Refusing(RealServer):
        async def register_publisher(self, *given: Any, **named: Any) -> PublisherRegistered:
            raise Fenced("a newer one")

    source = SourceThread(lambda: SqliteSource(path))
    await source.open()
    async with FeedClient(server.url) as client:
        with pytest.raises(AgentFenced):
            await relay_of("fenced-early", source, Refusing(client)).run(asyncio.Event())
    await source.close()
