"""A captured feed that goes on and on, written without a database, and the plain model of every moment of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.simple import json_codec
from headrace.simple.message import Ddl, Dml, MessageType
from headrace.simple.schema import DataType, TableSchema
from headrace.simple.values import RowTypes
from tests.integration.pipeline.kafka.captured_feed import append, entry, row_entry, schema_entry, watermark
from tests.servers import Feed
from tests.simple_tables import BUILD_TS
from tests.unit.pipeline.tables.simple.history import BIGINT, INT, WORD, schema_of, versioned

DATABASE: Final = "shop"
COLUMNS_MAX: Final = 5
Row = dict[str, Any]
Shown = dict[str, list[Row]]
"""Each table that readers see, and its rows by their key."""


@dataclass
class Told:
    """One table as its source has it."""

    name: str
    columns: dict[str, DataType]
    version: int
    rows: dict[int, Row] = field(default_factory=dict)
    copying: bool = False

    @property
    def schema(self) -> TableSchema:
        """Its schema as the feed has it."""
        return schema_of(self.columns, version=self.version, name=(DATABASE, self.name))


class Story:
    """Tables that change, one append a happening. ``moments``: sequence id of an append's end -> what readers see there."""

    def __init__(self, feed: Feed, chance: random.Random, *, tables: int = 3) -> None:
        self.feed = feed
        self.chance = chance
        self.tables: dict[str, Told] = {}
        self.moments: dict[int, Shown] = {}
        self.head = 0
        self.ticks = 0
        self._names = iter(f"t{number}" for number in range(1, 1_000))
        for _ in range(tables):
            self._create(copied=False)

    def go_on(self, count: int = 1) -> None:
        """Let so many things happen."""
        for _ in range(count):
            happening: Callable[[], None] = self.chance.choices(
                [self._change, self._alter, self._move, self._truncate, self._replace, self._copy],
                [12, 5, 1, 1, 1, 2],
            )[0]
            happening()

    def names(self) -> list[str]:
        """The tables that there are, and are whole."""
        return sorted(name for name, one in self.tables.items() if not one.copying)

    # -- what happens ----------------------------------------------------------------------------------------------------

    def _change(self) -> None:
        """A transaction over any tables."""
        changes: list[tuple[Told, Row | None, Row | None]] = []
        for _ in range(self.chance.randrange(1, 9)):
            table = self.tables[self.chance.choice(sorted(self.tables))]
            key = self.chance.randrange(1, 30)
            old = table.rows.pop(key, None)
            moved = self.chance.randrange(1, 30) if self.chance.random() < 0.2 else key
            new = None
            if old is None or (self.chance.random() < 0.7 and moved not in table.rows):
                new = self._row(table, moved if moved not in table.rows else key)
                table.rows[new["id"]] = new
            changes.append((table, new, old))
        self.ticks += 1
        tx = f"0-1-{self.ticks}"
        last = len(changes) - 1
        entries = [
            self._entry(table, new, old, tx=tx, index=place, last=place == last)
            for place, (table, new, old) in enumerate(changes)
        ]
        self._append(entries)

    def _alter(self) -> None:
        table = self.tables[self.chance.choice(self.names())]
        own = [name for name in table.columns if name not in {"id", "v"}]
        name = self.chance.choice(own) if own else "v"
        self.ticks += 1
        ways = ["add", "fill", "widen"][: 3 if len(table.columns) < COLUMNS_MAX else 0]
        match self.chance.choice(ways + (["drop", "rename", "text", "again", "both"] if own else ["widen"])):
            case "add":
                self._fill(table, f"c{self.ticks}", WORD, None)
                clauses = f"ADD COLUMN c{self.ticks} VARCHAR(20)"
            case "fill":
                self._fill(table, f"c{self.ticks}", INT, self.ticks)
                clauses = f"ADD COLUMN c{self.ticks} INT NOT NULL DEFAULT {self.ticks}"
            case "widen":
                table.columns["v"] = BIGINT
                clauses = "MODIFY v BIGINT"
            case "drop":
                self._drop(table, name)
                clauses = f"DROP COLUMN {name}"
            case "rename":
                clauses = self._rename(table, name)
            case "both":  # several commits in Delta: done twice, the second one would fail
                clauses = f"{self._rename(table, name)}, ADD COLUMN c{self.ticks} INT"
                self._fill(table, f"c{self.ticks}", INT, None)
            case "text":
                table.columns[name] = WORD
                for row in table.rows.values():
                    row[name] = None if row[name] is None else str(row[name])
                clauses = f"MODIFY {name} VARCHAR(20)"
            case _:
                self._drop(table, name)
                self._fill(table, name, INT, 7)
                clauses = f"DROP COLUMN {name}, ADD COLUMN {name} INT DEFAULT 7"
        self._statement(table, MessageType.ALTER, f"ALTER TABLE {table.name} {clauses}")

    def _move(self) -> None:
        table = self.tables.pop(self.chance.choice(self.names()))
        before, table.name = table.schema, next(self._names)
        self.tables[table.name] = table
        self.ticks += 1
        self._statement(table, MessageType.RENAME, f"RENAME TABLE {before.table} TO {table.name}", before)

    def _truncate(self) -> None:
        table = self.tables[self.chance.choice(self.names())]
        table.rows.clear()
        self.ticks += 1
        self._statement(table, MessageType.TRUNCATE, f"TRUNCATE TABLE {table.name}")

    def _replace(self) -> None:
        """One table goes for good, another one comes: of a new name, or of the same."""
        table = self.tables.pop(self.chance.choice(self.names()))
        self.ticks += 1
        message = Ddl(
            MessageType.ERASE, f"DROP TABLE {table.name}", self.commit_ts, BUILD_TS, table.schema, None
        )
        self._append([self._ddl(message, table.name)])
        self._create(copied=self.chance.random() < 0.5, name=table.name if self.chance.random() < 0.5 else "")

    def _copy(self) -> None:
        """Rows of a table that is there come once more, as ``headrace capture copy`` sends them after a TRUNCATE."""
        table = self.tables[self.chance.choice(self.names())]
        self.ticks += 1
        self._statement(table, MessageType.TRUNCATE, f"TRUNCATE TABLE {table.name}")
        self._copied(table)

    # -- how it is told --------------------------------------------------------------------------------------------------

    @property
    def commit_ts(self) -> int:
        """Of the transaction that is told now."""
        return (BUILD_TS + self.ticks * 1000) << 18

    def _create(self, *, copied: bool, name: str = "") -> None:
        self.ticks += 1
        table = Told(name or next(self._names), {"id": INT, "v": INT}, self.commit_ts)
        self.tables[table.name] = table
        for key in self.chance.sample(range(1, 30), 6):
            table.rows[key] = self._row(table, key)
        if copied:
            self._copied(table)
        else:
            rows = [self._entry(table, row, None) for row in table.rows.values()]
            self._append([schema_entry(table.schema), *rows])

    def _copied(self, table: Told) -> None:
        """A copy in three appends: readers see nothing of it before its end."""
        table.copying = True
        names = [DATABASE, table.name]
        rows = [self._entry(table, row, None) for row in table.rows.values()]
        begin, end = (
            entry(b"{}", f"\0copy/{word}/{self.ticks}", table=names, control=f"copy-{word}")
            for word in ("begin", "end")
        )
        self._append([schema_entry(table.schema), begin, *rows[: len(rows) // 2]])
        self._append(rows[len(rows) // 2 :])
        table.copying = False
        self._append([end])

    def _statement(self, table: Told, kind: MessageType, sql: str, before: TableSchema | None = None) -> None:
        was = before or table.schema
        table.version = self.commit_ts
        message = Ddl(kind, sql, self.commit_ts, BUILD_TS, table.schema, was)
        self._append([self._ddl(message, was.table), schema_entry(table.schema)])

    def _ddl(self, message: Ddl, name: str) -> bytes:
        key = f"\0ddl/{DATABASE}/{name}/{message.commit_ts}"
        return entry(json_codec.encode(message), key, table=[DATABASE, name], control="ddl")

    def _entry(self, table: Told, new: Row | None, old: Row | None, **more: Any) -> bytes:
        schema = versioned(table.schema)
        types = RowTypes(schema)
        kind = MessageType.INSERT if old is None else MessageType.UPDATE
        message = Dml(
            MessageType.DELETE if new is None else kind,
            *(schema.schema, schema.table, schema.table_id, self.commit_ts, BUILD_TS, schema.version),
            None if new is None else types.write(new, "a story's row"),
            None if old is None else types.write(old, "a story's row"),
        )
        return row_entry(message, **more)

    def _append(self, entries: Iterable[bytes]) -> None:
        told = list(entries)
        if self.chance.random() < 0.4 or not told:
            self.ticks += 1
            told.append(watermark(self.commit_ts))
        append(self.feed, told)
        self.head += len(told)
        self.moments[self.head] = {
            name: sorted((dict(row) for row in one.rows.values()), key=lambda row: int(row["id"]))
            for name, one in self.tables.items()
            if not one.copying
        }

    def _row(self, table: Told, key: int) -> Row:
        values: Row = {"id": key}
        for name, kind in table.columns.items():
            if name != "id":
                number = self.chance.randrange(1_000)
                values[name] = number if kind in {INT, BIGINT} else f"w{number}"
        return values

    def _rename(self, table: Told, name: str) -> str:
        kind = table.columns[name]
        values = [row[name] for row in table.rows.values()]
        self._drop(table, name)
        self._fill(table, f"r{self.ticks}", kind, None)
        for row, value in zip(table.rows.values(), values, strict=True):
            row[f"r{self.ticks}"] = value
        return f"RENAME COLUMN {name} TO r{self.ticks}"

    @staticmethod
    def _fill(table: Told, name: str, kind: DataType, value: Any) -> None:
        table.columns[name] = kind
        for row in table.rows.values():
            row[name] = value

    @staticmethod
    def _drop(table: Told, name: str) -> None:
        del table.columns[name]
        for row in table.rows.values():
            del row[name]
