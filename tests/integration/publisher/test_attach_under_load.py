"""Attach, copy, alter and relay while the application writes: no transaction of it fails, and the fold is the table."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
from pathlib import Path

from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.marked import MarkedRow
from headrace.publisher.owner import FeedPlace
from headrace.publisher.sqlite.copying import copy_chunk
from headrace.publisher.sqlite.source import SqliteSource
from tests.scale import SEED, scaled, sized
from tests.unit.publisher.outboxes import FEED, PLACE, application, check_order, claim, drain, fold, opened
from tests.waiting import wait_until

ROWS = sized(3_000, soak=8_000)


class Writer(threading.Thread):
    """An application's thread; what it raised is kept."""

    def __init__(self, path: Path, seed: int) -> None:
        super().__init__()
        self.path = path
        self.rng = random.Random(seed)
        self.ending = threading.Event()
        self.commits = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with application(self.path) as app:
                app.execute("PRAGMA busy_timeout = 30000").close()
                while not self.ending.wait(0.001):
                    self.transact(app)
                    self.commits += 1
        except sqlite3.Error as error:
            self.error = error

    def transact(self, app: sqlite3.Connection) -> None:
        app.execute("BEGIN IMMEDIATE")
        for _ in range(self.rng.randrange(1, 6)):
            key = self.rng.randrange(ROWS)
            if self.rng.random() < 0.3:
                app.execute("DELETE FROM item WHERE id = ?", (key,))
            else:
                app.execute("INSERT OR REPLACE INTO item (id, v) VALUES (?, ?)", (key, self.rng.random()))
        app.execute("ROLLBACK" if self.rng.random() < 0.1 else "COMMIT")


def test_application_never_notices_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with application(path) as app:
        app.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, v REAL)")
        app.executemany("INSERT INTO item VALUES (?, 0)", [(number,) for number in range(0, ROWS, 2)])
    writers = [Writer(path, SEED + number) for number in range(2)]
    for writer in writers:
        writer.start()
    try:
        with opened(path) as source:
            posted = relay_under_load(source, path)
            wait_until(
                lambda: all(writer.commits > 20 or writer.error for writer in writers),
                what="the writers to get on",
            )
            posted += drain(source)
    finally:
        for writer in writers:
            writer.ending.set()
            writer.join()
    assert [writer.error for writer in writers] == [None, None]
    with opened(path) as source:
        claim(source, FeedPlace(PLACE.incarnation, posted[-1].sequence_id + 1, 2))
        posted += drain(source, epoch=2)
        check_order(posted)
        rows = source.connection.execute("SELECT id, v, w FROM item").fetchall()
    state = {key: json.loads(changes) for key, changes in fold(posted).items()}
    assert {(row["id"], row["v"], row.get("w")) for row in state.values()} == set(rows)


def relay_under_load(source: SqliteSource, path: Path) -> list[MarkedRow]:
    (attached,) = source.attach(AttachRequest(feed=FEED, tables=("item",)))
    claim(source)
    posted: list[MarkedRow] = []
    while copy_chunk(source.connection, attached.number, rows_max=50):
        posted += drain(source)
    for column in range(scaled(1)):
        with application(path) as app:
            app.execute("PRAGMA busy_timeout = 30000").close()
            app.execute(f"ALTER TABLE item ADD COLUMN {'w' if not column else f'w{column}'}")
        posted += drain(source)
        assert source.mend(FEED) == []
        while source.copy_pending(FEED):
            posted += drain(source)
    return posted
