"""The agent dies, or loses an answer, at every single step: nothing is lost, nothing is in the feed twice.

Every call of the source and of the server is a step with a before and an after. The relay is cut at the n-th, for every n
there is, against a real server; then a new one goes on, and feed and outbox are compared row by row.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.client.http import FeedClient
from headrace.errors import HeadraceError
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.relay import FeedRelay
from headrace.publisher.sqlite.source import SqliteSource
from headrace.publisher.thread import SourceThread
from headrace.runtime.backoff import Backoff
from headrace.runtime.clock import SystemClock
from headrace.wire.documents import Appended, EntryIn
from tests.integration.publisher import relay_steps
from tests.integration.publisher.relay_steps import CUTS, Killed, SteppedServer, Steps
from tests.servers import ServerProcess, serving
from tests.unit.publisher.outboxes import application, opened

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
async def client(server: ServerProcess) -> AsyncIterator[FeedClient]:
    async with FeedClient(server.url) as found:
        yield found


def write(path: Path, feed: str, first: int, transactions: int) -> None:
    """Run transactions of two changes each on an attached table."""
    with application(path) as app, opened(path) as source:
        app.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, v)")
        source.attach(AttachRequest(feed=feed, tables=("t",), copy=False))
        for number in range(first, first + transactions):
            app.execute("BEGIN")
            app.execute("INSERT INTO t VALUES (?, 0)", (number,))
            app.execute("UPDATE t SET v = v + 1 WHERE id = ?", (number,))
            app.execute("COMMIT")


async def relay_all(
    path: Path, feed: str, client: FeedClient, steps: Steps | None = None, sides: str = ""
) -> None:
    """Relay ``feed`` until all is processed, or until a step of ``sides`` kills the relay."""
    await relay_steps.relay_all(
        lambda: SqliteSource(path), feed, client, lambda: is_processed(path), steps=steps, sides=sides
    )


def is_processed(path: Path) -> bool:
    with closing(sqlite3.connect(path, timeout=10)) as connection:
        query = "SELECT count(*) FROM headrace_outbox WHERE NOT processed"
        return int(connection.execute(query).fetchone()[0]) == 0


async def check_feed(path: Path, feed: str, client: FeedClient) -> None:
    """Compare feed and outbox row by row."""
    entries = (await client.read(feed, 1)).changes_list
    with application(path) as app:
        rows = app.execute(
            "SELECT o.sequence_id, o.op, r.c0, r.c1 FROM headrace_outbox o "
            "LEFT JOIN headrace_row_1 r USING (id) ORDER BY o.id"
        ).fetchall()
    assert [entry.sequence_id for entry in entries] == list(range(1, len(rows) + 1))
    assert [row[0] for row in rows] == [entry.sequence_id for entry in entries]
    for entry, (_, op, key, value) in zip(entries[1:], rows[1:], strict=True):
        assert (entry.op, json.loads(bytes(entry.changes))) == (op, {"id": key, "v": value})  # type: ignore[arg-type]  # changes are there
    assert entries[-1].tx_last is True


@pytest.mark.parametrize("cut", CUTS, ids=str)
async def test_every_step_may_be_the_last(tmp_path: Path, client: FeedClient, cut: str) -> None:
    for fatal in itertools.count(1):
        number = next(_numbers)
        path, feed = tmp_path / f"{number}.db", f"crash-{number}"
        write(path, feed, 1, 2)
        error, sides = CUTS[cut]
        steps = Steps(fatal, error)
        with suppress(Killed):
            await relay_all(path, feed, client, steps, sides)
        write(path, feed, 10, 1)
        await relay_all(path, feed, client)
        await check_feed(path, feed, client)
        if steps.taken < fatal:
            assert fatal > (4 if sides == "server" else 20), "there are fewer steps than a relay takes"
            return


async def test_late_packet_of_an_earlier_life_is_refused(tmp_path: Path, client: FeedClient) -> None:
    feed = f"crash-{next(_numbers)}"
    path = tmp_path / "late.db"
    write(path, feed, 1, 1)
    held: list[Callable[[], Any]] = []

    class Holding(SteppedServer):
        async def append(self, feed: str, entries: list[EntryIn], **named: Any) -> Appended:
            held.append(lambda: client.append(feed, entries, **named))
            raise Killed

    source = SourceThread(lambda: SqliteSource(path))
    relay = FeedRelay(
        feed, "agent-1", source, Holding(client, Steps(0, Killed)), clock=SystemClock(), backoff=Backoff()
    )
    await source.open()
    with pytest.raises(Killed):
        await relay.run(asyncio.Event())
    await source.close()
    registered = await client.register_publisher("agent-1", feed, instance="next-life")
    with pytest.raises(HeadraceError) as caught:
        await held[0]()
    assert caught.value.code == "fenced"
    assert registered.next_sequence_id == 1
    await relay_all(path, feed, client)
    await check_feed(path, feed, client)
