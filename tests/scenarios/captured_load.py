"""A shop under load: threads that write to its tables and one that alters them, through every restart of the server.

``load = Load(server, seed); load.make_tables(); load.start(); …; load.stop()``.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from tests.mariadb import USER, Server
from tests.scenarios.captured_tables import (
    EVERY_ALTERS,
    FILL,
    KEYS,
    SEQ_WRITTEN_FIRST,
    TABLES,
    Column,
    alters,
    entry_statements,
    value,
)

DATABASE = "shop"
WRITERS = 3

_LOCK_WAIT_S = 2
_PAUSE_S_MAX = 0.06
_ALTER_PAUSE_S_MAX = 0.3
_ROWS_AT_ONCE_MAX = 40


class Load:
    """``transactions`` were committed, ``statements`` altered a table, ``refused`` came to nothing."""

    def __init__(
        self, server: Server, seed: int, *, write_pause: float = 1.0, alter_pause: float = 1.0
    ) -> None:
        """``write_pause`` and ``alter_pause``: so many times as long as else is waited between two things that are done."""
        self.database = server.create_captured(DATABASE)
        server.sql(f"GRANT RELOAD ON *.* TO `{USER}`@`%`")
        self.transactions = self.statements = self.refused = 0
        self._seed = seed
        self._pauses = write_pause, alter_pause
        self._next_seq = SEQ_WRITTEN_FIRST
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def make_tables(self) -> None:
        """Make the tables, with rows in most of them."""
        for name, definition in TABLES.items():
            self.database.sql(f"CREATE TABLE {name} {definition}")
        for statement in FILL:
            self.database.sql(statement)

    def start(self) -> None:
        """Begin to write and to alter."""
        write, alter = self._pauses
        workers: list[_Writer | _Alterer] = [
            _Writer(self, self._chance(number), write) for number in range(WRITERS)
        ]
        for worker in (*workers, _Alterer(self, self._chance(WRITERS), alter)):
            self._threads.append(threading.Thread(target=self._repeat, args=(worker.work, worker.pause_s)))
            self._threads[-1].start()

    def stop(self) -> None:
        """Let everybody end what is under way; fails with the first failure of one."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def take_seqs(self, count: int) -> int:
        """The first of ``count`` numbers that nobody else gets."""
        with self._lock:
            first = self._next_seq
            self._next_seq += count
        return first

    def _chance(self, number: int) -> random.Random:
        return random.Random(self._seed * 100 + number)

    def _repeat(self, work: Callable[[Cursor], None], pause_s: Callable[[], float]) -> None:
        """Work until the load stops; what the server refuses is rolled back, and a broken connection made anew."""
        app: Connection[Cursor] | None = None
        try:
            while not self._stop.wait(pause_s()):
                try:
                    app = app or self._connect()
                    with app.cursor() as cursor:
                        work(cursor)
                except pymysql.err.MySQLError:
                    self.refused += 1
                    app = _rolled_back(app)
        except BaseException as error:  # noqa: BLE001 stop raises it
            self._failures.append(error)
        finally:
            if app is not None:
                _close(app)

    def _connect(self) -> Connection[Cursor]:
        app = self.database.connect(charset="utf8mb4")
        with app.cursor() as cursor:
            cursor.execute("SET sql_mode = '', time_zone = '+00:00', innodb_lock_wait_timeout = 1")
            cursor.execute(f"SET lock_wait_timeout = {_LOCK_WAIT_S}")
        return app


class _Writer:
    def __init__(self, load: Load, chance: random.Random, pause: float) -> None:
        self._load = load
        self._chance = chance
        self._pause = pause
        self._columns: dict[str, list[Column]] = {}

    def pause_s(self) -> float:
        return self._chance.random() * _PAUSE_S_MAX * self._pause

    def work(self, cursor: Cursor) -> None:
        """One transaction; some are rolled back, as a whole or to a savepoint."""
        chance = self._chance
        if not self._columns or chance.random() < 0.1:
            self._columns = _columns(cursor)
        for number in range(chance.choice((1, 1, 2, 3, 8, 25))):
            if number and chance.random() < 0.1:
                cursor.execute("SAVEPOINT here")
                self._write(cursor)
                cursor.execute("ROLLBACK TO here")
            else:
                self._write(cursor)
        if chance.random() < 0.1:
            cursor.execute("ROLLBACK")
            return
        cursor.execute("COMMIT")
        self._load.transactions += 1

    def _write(self, cursor: Cursor) -> None:
        """One statement. One that meets a table or a column that is another by now is left out."""
        chance = self._chance
        table = chance.choice(list(KEYS))
        if table not in self._columns:
            return
        try:
            cursor.execute(*self._statement(table))
        except pymysql.err.MySQLError as error:
            if error.args[0] not in {1054, 1062, 1146}:  # no such column, a duplicate, no such table
                raise
            self._load.refused += 1
            self._columns = self._columns if error.args[0] == 1062 else _columns(cursor)

    def _statement(self, table: str) -> tuple[str, tuple[object, ...]]:
        chance, load = self._chance, self._load
        key = KEYS[table](chance)
        where = " AND ".join(f"`{name}` = %s" for name in key)
        if chance.random() < 0.15:
            return f"DELETE FROM {table} WHERE {where}", (*key.values(),)
        if chance.random() < 0.1:
            first, limit = load.take_seqs(_ROWS_AT_ONCE_MAX), chance.randrange(1, _ROWS_AT_ONCE_MAX)
            name = next(iter(key))
            return (
                f"UPDATE {table} SET seq = {first} + (@n := COALESCE(@n, 0) + 1) %% {_ROWS_AT_ONCE_MAX} "
                f"WHERE `{name}` >= %s ORDER BY `{name}` LIMIT {limit}",
                (key[name],),
            )
        given: dict[str, object] = {"seq": load.take_seqs(1)}
        fitting = [column for column in self._columns[table] if column.name not in {*key, "seq", "x_auto"}]
        for column in chance.sample(fitting, chance.randrange(len(fitting) + 1)):
            given[column.name] = value(chance, column)
        if chance.random() < 0.5:
            return _replace(table, given | key)
        if chance.random() < 0.2:
            given |= KEYS[table](chance)
        pairs = ", ".join(f"`{name}` = %s" for name in given)
        return f"UPDATE IGNORE {table} SET {pairs} WHERE {where}", (*given.values(), *key.values())


class _Alterer:
    def __init__(self, load: Load, chance: random.Random, pause: float) -> None:
        self._load = load
        self._chance = chance
        self._pause = pause
        self._every = list(EVERY_ALTERS)
        self._number = 0

    def pause_s(self) -> float:
        return self._chance.random() * _ALTER_PAUSE_S_MAX * self._pause

    def work(self, cursor: Cursor) -> None:
        """One change of one table, some of them several statements; now and then the next file of the binlog."""
        chance = self._chance
        self._number += 1
        dice = chance.random()
        if dice < 0.1:
            cursor.execute("FLUSH BINARY LOGS")
        elif dice < 0.4:
            self._alter_every(cursor)
        elif dice < 0.7:
            table = chance.choice(("account", "account", "tag"))
            columns = [column.name for column in _columns(cursor)[table]]
            for alter in alters(chance, table, columns, self._number):
                self._try(cursor, f"ALTER TABLE {table} {alter}")
        else:
            for statement in entry_statements(chance):
                self._try(cursor, statement)
            for name in ("entry", "draft"):
                self._try(cursor, f"CREATE TABLE IF NOT EXISTS {name} {TABLES[name]}")

    def _alter_every(self, cursor: Cursor) -> None:
        if self._every and self._try(cursor, f"ALTER TABLE every {self._every[0]}"):
            self._every.pop(0)

    def _try(self, cursor: Cursor, statement: str) -> bool:
        try:
            cursor.execute(statement)
        except pymysql.err.OperationalError as error:
            if error.args[0] not in {1050, 1054, 1060, 1061, 1072, 1091, 1146, 1205, 1213}:
                raise
            self._load.refused += 1
            return error.args[0] not in {1205, 1213}
        self._load.statements += 1
        return True


def _columns(cursor: Cursor) -> dict[str, list[Column]]:
    """The columns of all tables that are written to; those that are computed are left out."""
    cursor.execute(
        "SELECT table_name, column_name, data_type, is_nullable = 'YES' FROM information_schema.columns "
        f"WHERE table_schema = '{DATABASE}' AND is_generated = 'NEVER'"
    )
    found: dict[str, list[Column]] = {}
    for table, *column in cursor.fetchall():
        found.setdefault(table, []).append(Column(*column))
    return found


def _replace(table: str, given: dict[str, Any]) -> tuple[str, tuple[object, ...]]:
    names = ", ".join(f"`{name}`" for name in given)
    return f"REPLACE INTO {table} ({names}) VALUES ({', '.join(['%s'] * len(given))})", (*given.values(),)


def _rolled_back(app: Connection[Cursor] | None) -> Connection[Cursor] | None:
    """The connection, ready for another try; None if it is gone."""
    if app is None:
        return None
    try:
        app.rollback()
    except pymysql.err.MySQLError:
        _close(app)
        return None
    return app


def _close(app: Connection[Cursor]) -> None:
    if app.open:
        try:
            app.close()
        except pymysql.err.MySQLError:
            return
