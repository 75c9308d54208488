"""A state read from SQLite is the feed's fold at its place: nothing of it is missing, nothing in it comes later."""

from __future__ import annotations

import random
import sqlite3
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from headrace.errors import AgentFenced, SnapshotUnavailable, SourceUnavailable
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.marked import MarkedRow
from headrace.publisher.outbox import Outbox
from headrace.publisher.sqlite.source import state_reader
from headrace.publisher.sqlite.state import SqliteStateReader
from headrace.runtime.dsn import parse_dsn
from tests.scale import scaled
from tests.states import read_lines, take
from tests.unit.publisher.outboxes import (
    AGENT,
    FEED,
    PLACE,
    application,
    attach,
    check_order,
    claim,
    drain,
    fold,
    opened,
)
from tests.waiting import wait_until

FAR_FUTURE_MS = 4_102_444_800_000


def reader_of(path: Path, query: str | None = None) -> SqliteStateReader:
    return state_reader(parse_dsn(f"sqlite:///{path}"), FEED, query)


def make_tables(path: Path, *, wal: bool) -> None:
    with application(path, wal=wal) as app:
        app.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL, doc JSON, data BLOB)")
        app.execute("CREATE TABLE part (a TEXT, b INTEGER, n, PRIMARY KEY (a, b)) WITHOUT ROWID")
        app.executemany("INSERT INTO item (id, name) VALUES (?, 'there before')", [(n,) for n in range(1, 8)])


class Turns:
    """How many transactions the writers may still make: so they write beside the test, and no more than it can check."""

    def __init__(self) -> None:
        self.ends = False
        self._allowed = threading.Semaphore(0)
        self._begun = 0
        self._given = 0

    def give(self, count: int) -> None:
        self._given += count
        self._allowed.release(count)

    def take(self) -> bool:
        self._allowed.acquire()
        self._begun += 1
        return not self.ends

    def are_taken(self) -> bool:
        return self._begun >= self._given


def write(path: Path, seed: int, turns: Turns, wal: bool) -> None:
    """Change rows in transactions of several statements until told to stop; some are taken back."""
    rng = random.Random(seed)
    values = [None, 1, 1.5, "text\nof two lines", b"\x00\xff", "", -(2**63), 1e300, "ß"]
    with application(path, wal=wal) as app:
        app.execute("PRAGMA busy_timeout = 60000").close()
        while turns.take():
            app.execute("BEGIN IMMEDIATE")
            for _ in range(rng.randrange(1, 5)):
                key, value = rng.randrange(20), rng.choice(values)
                statement, given = rng.choice([
                    ("INSERT OR REPLACE INTO item VALUES (?, ?, ?, ?, ?)", (key, value, value, value, value)),
                    ("UPDATE item SET name = ?, price = price + 1 WHERE id = ?", (value, key)),
                    ("UPDATE item SET id = ? WHERE id = ? AND NOT EXISTS (SELECT 1 FROM item WHERE id = ?)",
                     (key + 20, key, key + 20)),
                    ("DELETE FROM item WHERE id % 7 = ?", (key % 7,)),
                    ("INSERT OR REPLACE INTO part VALUES (?, ?, ?)", (str(key % 3), key, value)),
                    ("DELETE FROM part WHERE b = ?", (key,)),
                ])  # fmt: skip
                app.execute(statement, given)
            app.execute("ROLLBACK" if rng.random() < 0.1 else "COMMIT")


@pytest.mark.parametrize("wal", [True, False], ids=["wal", "delete"])
@pytest.mark.parametrize("seed", range(scaled(3)), ids=lambda seed: f"seed-{seed}")
def test_state_at_its_place_is_what_the_feed_folds_to(tmp_path: Path, seed: int, wal: bool) -> None:
    path = tmp_path / "app.db"
    make_tables(path, wal=wal)
    rng = random.Random(seed)
    turns = Turns()
    with opened(path) as source:
        attach(source, "item", "part")
        claim(source)
        writers = [threading.Thread(target=write, args=(path, seed + n, turns, wal)) for n in range(2)]
        for writer in writers:
            writer.start()
        posted: list[MarkedRow] = []
        states = []
        try:
            for _ in range(25):
                wait_until(turns.are_taken, what="the writers")
                turns.give(rng.randrange(2, 12))
                if rng.random() < 0.6:  # else it has marked rows that are not posted
                    posted += drain(source)
                states.append(take(source, reader_of(path), FEED, AGENT))
        finally:
            turns.ends = True
            turns.give(2)
            for writer in writers:
                writer.join(60)
        last, lines = take(source, reader_of(path), FEED, AGENT)
        posted += drain(source)
    check_order(posted)
    for place, its_lines in [*states, (last, lines)]:
        rows, controls = read_lines(line.rstrip(b"\n") for line in its_lines)
        until = [row for row in posted if row.sequence_id <= place.sequence_id]
        assert rows == fold(until), f"seed {seed}, at {place}"
        after = dict(rows)
        for row in posted[place.sequence_id :]:
            assert row.control is None
            if row.op == "delete":
                after.pop(str(row.key), None)
            else:
                after[str(row.key)] = row.changes
        assert after == fold(posted)
        assert [one["key"] for one in controls] == [row.key for row in posted if row.control == "schema"]
    assert len({place.sequence_id for place, _ in states}) > 8, "the states were hardly different"
    assert last.sequence_id == len(posted)


def test_large_backlog_is_marked_whole(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    make_tables(path, wal=True)
    with opened(path) as source, application(path) as app:
        attach(source, "item")
        claim(source)
        for start in range(0, 12_000, 1_000):
            app.executemany(
                "INSERT INTO item (id) VALUES (?)", [(n,) for n in range(100 + start, 1_100 + start)]
            )
        place, lines = take(source, reader_of(path), FEED, AGENT)
        posted = drain(source)
    rows, _ = read_lines(line.rstrip(b"\n") for line in lines)
    assert place.sequence_id == len(posted)
    assert rows == fold(posted)


def test_reading_goes_on_while_others_write_and_mark(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    make_tables(path, wal=True)
    with opened(path) as source, application(path) as app:
        attach(source, "item")
        claim(source)
        reader = reader_of(path)
        reader.open()
        place = source.begin_snapshot(FEED, AGENT, 1, reader, lambda *_: None)
        lines = reader.lines()
        first = [next(lines), next(lines)]
        app.execute("UPDATE item SET name = 'later'")
        later = drain(source)
        assert later[-1].sequence_id > place.sequence_id
        rest = list(lines)
        reader.close()
    assert b"later" not in b"".join(first + rest)


def test_state_of_a_fenced_agent_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    make_tables(path, wal=True)
    with opened(path) as source:
        attach(source, "item")
        claim(source)
        with opened(path) as other:
            other.claim(FEED, "agent-2", PLACE._replace(epoch=2), 0)
        with pytest.raises(AgentFenced):
            take(source, reader_of(path), FEED, AGENT)


def test_nothing_is_marked_if_the_spool_fails_inside_the_transaction(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    make_tables(path, wal=False)
    with opened(path) as source, application(path, wal=False) as app:
        attach(source, "item")
        claim(source)
        drain(source)
        app.execute("UPDATE item SET name = 'new'")

        def full(*_: object) -> None:
            raise SourceUnavailable("the spool is full")

        reader = reader_of(path)
        with pytest.raises(SourceUnavailable):
            source.begin_snapshot(FEED, AGENT, 1, reader, full)
        marked = app.execute("SELECT count(*) FROM headrace_outbox WHERE sequence_id IS NULL").fetchone()[0]
        assert marked == 7
        assert len(drain(source)) == 7


class TestRowsOfTheApplication:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "app.db"
        with application(path) as app:
            Outbox.create(app)
            app.execute("CREATE TABLE thing (name TEXT PRIMARY KEY, doc TEXT)")
            for name in ("a", "b"):
                app.execute("BEGIN")
                app.execute("INSERT INTO thing VALUES (?, ?)", (name, '{"n": 1,\n "name": "' + name + '"}'))
                Outbox.add(app, FEED, {"n": 1, "name": name}, key=name)
                app.execute("COMMIT")
        return path

    def test_feed_of_outbox_add_alone_is_refused_by_name(self, path: Path) -> None:
        with opened(path) as source:
            claim(source)
            with pytest.raises(SnapshotUnavailable, match=FEED) as caught:
                take(source, reader_of(path), FEED, AGENT)
            assert "snapshot-sql" in caught.value.advice

    def test_feed_with_tables_and_outbox_add_is_refused_by_name(self, path: Path) -> None:
        with application(path) as app:
            app.execute("CREATE TABLE item (id INTEGER PRIMARY KEY)")
        with opened(path) as source:
            attach(source, "item")
            claim(source)
            with pytest.raises(SnapshotUnavailable, match=r"Outbox\.add"):
                take(source, reader_of(path), FEED, AGENT)

    def test_rows_that_were_swept_are_not_forgotten(self, path: Path) -> None:
        with application(path) as app:
            app.execute("CREATE TABLE item (id INTEGER PRIMARY KEY)")
        with opened(path) as source:
            attach(source, "item")
            claim(source)
            drain(source)
            while source.sweep(FEED, FAR_FUTURE_MS):
                pass
            with pytest.raises(SnapshotUnavailable, match=r"had, rows of Outbox\.add") as caught:
                take(source, reader_of(path), FEED, AGENT)
            assert "snapshot-sql" in caught.value.advice
            _, lines = take(source, reader_of(path, "SELECT name, doc FROM thing"), FEED, AGENT)
            assert len(lines) == 3

    def test_rows_of_another_feed_say_nothing_of_this_one(self, path: Path) -> None:
        with application(path) as app:
            app.execute("CREATE TABLE item (id INTEGER PRIMARY KEY)")
        with opened(path) as source:
            source.attach(AttachRequest(feed="other", tables=("item",)))
            claim(source)
            drain(source)
            while source.sweep(FEED, FAR_FUTURE_MS):
                pass
            claim(source, feed="other")
            reader = state_reader(parse_dsn(f"sqlite:///{path}"), "other", None)
            assert len(take(source, reader, "other", AGENT)[1]) == 1

    def test_query_of_the_application_gives_their_state(self, path: Path) -> None:
        query = "SELECT name AS key, doc AS changes FROM thing"
        with opened(path) as source:
            claim(source)
            place, lines = take(source, reader_of(path, query), FEED, AGENT)
        assert place.sequence_id == 2
        assert lines == [
            b'{"key":"a","changes":{"n": 1,  "name": "a"}}\n',
            b'{"key":"b","changes":{"n": 1,  "name": "b"}}\n',
        ]

    @pytest.mark.parametrize(
        "query",
        [
            "SELECT 1",
            "SELECT 1, '{}'",
            "SELECT 'k', '[]'",
            "SELECT 'k', 'x'",
            "SELECT 'k', 1.5",
            "SELECT 'k', x'7b7d'",
            "SELECT 'k', NULL",
            "SELEC",
            "DELETE FROM thing RETURNING 1, 2",
        ],
    )
    def test_query_that_gives_no_state_is_refused_by_name(self, path: Path, query: str) -> None:
        with opened(path) as source:
            claim(source)
            with pytest.raises(SnapshotUnavailable, match="snapshot-sql of shop"):
                take(source, reader_of(path, query), FEED, AGENT)
        with application(path) as app:
            assert app.execute("SELECT count(*) FROM thing").fetchone() == (2,)


def test_reading_under_the_write_lock_can_be_cancelled(tmp_path: Path) -> None:
    """In a rollback journal the source's own connection reads: that one is to be interrupted."""
    path = tmp_path / "app.db"
    make_tables(path, wal=False)
    # The numbers are never at an end, and none of them is given.
    endless = (
        "WITH RECURSIVE n (v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n) SELECT v, v FROM n WHERE v < 0"
    )
    reader = reader_of(path, endless)
    reading = threading.Event()
    ended: list[BaseException] = []

    def read() -> None:
        with opened(path) as source:
            attach(source, "item")
            claim(source)

            def sink(_: object, lines: Iterable[bytes]) -> None:
                reading.set()
                list(lines)

            try:
                source.begin_snapshot(FEED, AGENT, 1, reader, sink)
            except SourceUnavailable as error:
                ended.append(error)
            drain(source)  # its connection is of use afterwards

    reader.open()
    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    reading.wait(60)

    def is_over() -> bool:
        reader.cancel()  # as the agent does: the statement may have begun just after
        return not thread.is_alive()

    wait_until(is_over, what="the reading to end")
    reader.cancel()
    reader.close()
    assert "interrupted" in str(ended[0])


def test_journal_mode_is_advised(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    sqlite3.connect(path).execute("CREATE TABLE item (id INTEGER PRIMARY KEY)").connection.close()
    with opened(path) as source:
        (advice,) = source.advice()
        assert "while a snapshot is read all writers wait" in advice
        assert "PRAGMA journal_mode = WAL" in advice
