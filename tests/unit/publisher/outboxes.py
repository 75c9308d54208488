"""What the publisher's tests share: a database that is closed, draining an outbox, and folding what came out of it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.marked import MarkedRow, RowPlace
from headrace.publisher.owner import FeedPlace
from headrace.publisher.sqlite.source import SqliteSource

FEED = "shop"
AGENT = "agent-1"
PLACE = FeedPlace("incarnation-1", 1, 1)


@contextmanager
def application(path: Path, *, wal: bool = True) -> Iterator[sqlite3.Connection]:
    """Give the application's connection in autocommit mode, and close it."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        if wal:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute("PRAGMA synchronous = OFF")
        yield connection
    finally:
        connection.close()


@contextmanager
def opened(path: Path) -> Iterator[SqliteSource]:
    """Give the database at ``path`` as a source, and close it."""
    source = SqliteSource(path)
    try:
        source.connection.execute("PRAGMA synchronous = OFF")
        yield source
    finally:
        source.close()


def attach(source: SqliteSource, *tables: str, **options: Any) -> None:
    """Attach ``tables`` to :data:`FEED` and copy their rows to the end."""
    request = AttachRequest(feed=FEED, tables=tables, **options)
    for attached in source.attach(request):
        while source.copy_chunk(attached.number):
            pass


def claim(source: SqliteSource, place: FeedPlace = PLACE, feed: str = FEED, agent: str = AGENT) -> None:
    """Own ``feed``."""
    source.claim(feed, agent, place, 1_000)


def drain(source: SqliteSource, feed: str = FEED, agent: str = AGENT, epoch: int = 1) -> list[MarkedRow]:
    """Mark and process all that waits, as an agent whose posts all succeed; returns what it would have posted."""
    posted: list[MarkedRow] = []
    batch = source.batch(feed, agent)
    while True:
        posted += batch
        done = RowPlace(batch[-1].id, batch[-1].sequence_id) if batch else None
        source.advance(feed, agent, epoch, done, 2_000)
        batch = source.batch(feed, agent)
        if not batch:
            return posted


def changes_of(row: MarkedRow) -> Any:
    """Return the row's ``changes`` as a value."""
    return json.loads(row.changes)


def data_rows(rows: Iterable[MarkedRow]) -> list[MarkedRow]:
    """Leave the control entries out."""
    return [row for row in rows if row.control is None]


def fold(rows: Iterable[MarkedRow]) -> dict[str, bytes]:
    """Return the state that a consumer has after ``rows``: latest ``changes`` by key."""
    state: dict[str, bytes] = {}
    for row in rows:
        if row.control == "truncate":
            gone = [key for key in state if tuple(json.loads(key)[:2]) == row.table]
            for key in gone:
                del state[key]
        elif row.control is not None:
            continue
        elif row.op == "delete":
            state.pop(str(row.key), None)
        else:
            state[str(row.key)] = row.changes
    return state


def check_order(rows: list[MarkedRow], first: int = 1) -> None:
    """Check that places are dense, outbox ids grow, and transactions are whole and in order."""
    assert [row.sequence_id for row in rows] == list(range(first, first + len(rows)))
    assert [row.id for row in rows] == sorted({row.id for row in rows})
    index, tx = 0, None
    for row in rows:
        if index:
            assert row.tx == tx
        assert row.tx_index == index
        tx, index = row.tx, 0 if row.tx_last else index + 1
    assert index == 0, "the last transaction is torn"
