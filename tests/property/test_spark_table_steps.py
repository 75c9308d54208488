"""A generated history of a table, statements and rows mixed, read late or in time: the steps come to what it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipeline.tables.simple.spark_types import arrow_type, reader
from headrace.simple.message import MessageType
from headrace.simple.schema import DataType, TableSchema
from headrace.simple.values import kind_of
from headrace.wire.arrays import array_of
from tests.scale import sized
from tests.unit.pipeline.tables.simple.history import (
    BIGINT,
    EXACT,
    EXACTER,
    INT,
    TEXT,
    WORD,
    Feed,
    labels,
    schema_of,
    versioned,
)
from tests.unit.pipeline.tables.simple.steps_folded import Table, Tables, numbered

NAMES: Final = ["a", "b", "c", "D", "e f"]
SMALL: Final = labels("x", "y")
MORE: Final = labels("z", "y", "x")


@dataclass(frozen=True)
class Kind:
    """A type as SQL says it, some of its values, and what old rows have in it: by default, and as NOT NULL."""

    sql: str
    data_type: DataType
    values: tuple[Any, ...]
    default: tuple[str, Any]
    zero: Any
    becomes: dict[str, Callable[[Any], Any]]


def same(value: Any) -> Any:
    return value


KINDS: Final = {
    "int": Kind("INT", INT, (0, 1, -7), ("3", 3), 0, {"big": same, "exacter": Decimal, "word": str}),
    "big": Kind("BIGINT", BIGINT, (0, 5, 1 << 40), ("-4", -4), 0, {"word": str}),
    "exact": Kind(
        "DEC(8,2)", EXACT, (Decimal(0), Decimal("-1.5")), ("1.5", Decimal("1.5")), Decimal(0), {"exacter": same}
    ),
    "exacter": Kind(
        "NUMERIC(14,4)", EXACTER, (Decimal("0.1234"), Decimal("7.0000")), ("2", Decimal(2)), Decimal(0), {}
    ),
    "word": Kind("VARCHAR(20)", WORD, ("", "é", "it's"), ("'w''x'", "w'x"), "", {"text": same}),
    "text": Kind("TEXT", TEXT, ("long",), ("('t')", "t"), "", {}),
    "small": Kind("ENUM('x','y')", SMALL, ("x", "y"), ("'y'", "y"), "x", {"more": same, "word": same}),
    "more": Kind("ENUM('z','y','x')", MORE, ("x", "y", "z"), ("'x'", "x"), "z", {"word": same}),
}  # fmt: skip


class History:
    """The table as a database keeps it. ``told``: the schema that the feed has last."""

    def __init__(self) -> None:
        self.feed = Feed()
        self.columns: dict[str, str] = {"id": "int", "other": "int"}
        self.key = "id"
        self.rows: dict[int, dict[str, Any]] = {}
        self.version = 1
        self.waiting: list[str] = []
        self.told = self.schema()
        self.feed.schema(self.told)

    def schema(self) -> TableSchema:
        columns = {name: KINDS[kind].data_type for name, kind in self.columns.items()}
        return schema_of(columns, version=self.version, key=(self.key,))

    def alter(self, clauses: str) -> None:
        self.version += 1
        self.waiting.append(clauses)

    def say(self, *, late: bool) -> None:
        """Statements since the last row go into the feed; read late, each with the schema that the last one left."""
        waiting, self.waiting = self.waiting, []
        first = self.version - len(waiting) + 1
        for place, clauses in enumerate(waiting):
            if late or place == len(waiting) - 1:
                self.told = versioned(self.schema(), version=first + place)
                self.feed.alter(clauses, self.told)
            else:
                self.feed.ddl(MessageType.ALTER, f"ALTER TABLE t {clauses}", None)

    def write(self, number: int, data: dict[str, Any] | None, old: dict[str, Any] | None) -> None:
        schema = self.schema()
        if schema != self.told:
            self.feed.schema(schema)
            self.told = schema
        self.feed.row(schema, data, old)
        if data is None:
            del self.rows[number]
        else:
            self.rows[number] = data


@st.composite
def histories(draw: st.DrawFn) -> History:
    history = History()
    for number in range(draw(st.integers(3, 14))):
        for _ in range(draw(st.integers(0, 3))):
            change(history, draw)
        history.say(late=draw(st.booleans()))
        for _ in range(draw(st.integers(0, 2))):
            touch(history, draw, number)
        if draw(st.integers(0, 12)) == 0:
            history.rows.clear()
            history.feed.ddl(MessageType.TRUNCATE, "TRUNCATE TABLE t", None)
    return history


def touch(history: History, draw: st.DrawFn, number: int) -> None:
    """A row comes, changes or goes."""
    values: dict[str, Any] = {}
    for name, kind in history.columns.items():
        values[name] = draw(st.sampled_from([None, *KINDS[kind].values]))
    again: bool = draw(st.booleans())
    if history.rows and again:
        chosen = draw(st.sampled_from(sorted(history.rows)))
        old = history.rows[chosen]
        kept = {"id": old["id"], "other": old["other"]}
        goes = draw(st.booleans())
        history.write(chosen, None if goes else values | kept, old)
    elif number not in history.rows:
        history.write(number, values | {"id": number, "other": -number}, None)


def change(history: History, draw: st.DrawFn) -> None:
    """One statement of one or two clauses."""
    free = [name for name in NAMES if name.lower() not in {one.lower() for one in history.columns}]
    own = [name for name in history.columns if name not in {"id", "other"}]
    match draw(st.sampled_from(["add", "drop", "rename", "swap", "modify", "again", "key"])):
        case "add" if free:
            history.alter(add(history, draw, draw(st.sampled_from(free))))
        case "drop" if own:
            name = draw(st.sampled_from(own))
            drop(history, name)
            history.alter(f"DROP COLUMN `{name.upper()}`")
        case "again" if own:
            name = draw(st.sampled_from(own))
            drop(history, name)
            history.alter(f"DROP `{name}`, {add(history, draw, name)}")
        case "rename" if own and free:
            old, new = draw(st.sampled_from(own)), draw(st.sampled_from(free))
            rename(history, {old: new})
            history.alter(f"RENAME COLUMN `{old}` TO `{new}`")
        case "swap" if len(own) > 1:
            one, other = own[0], own[1]
            rename(history, {one: other, other: one})
            history.alter(f"RENAME COLUMN `{one}` TO `{other}`, RENAME COLUMN `{other}` TO `{one}`")
        case "modify" if own:
            name = draw(st.sampled_from(own))
            ways = KINDS[history.columns[name]].becomes
            if ways:
                kind = draw(st.sampled_from(sorted(ways)))
                history.columns[name] = kind
                for row in history.rows.values():
                    row[name] = None if row[name] is None else ways[kind](row[name])
                verb = draw(st.sampled_from([f"MODIFY `{name}`", f"CHANGE COLUMN `{name}` `{name}`"]))
                history.alter(f"{verb} {KINDS[kind].sql}")
        case "key":
            history.key = "other" if history.key == "id" else "id"
            history.alter(f"DROP PRIMARY KEY, ADD PRIMARY KEY ({history.key})")


def add(history: History, draw: st.DrawFn, name: str) -> str:
    """A new column, with what old rows have in it."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    of = KINDS[kind]
    words, value = draw(
        st.sampled_from([("", None), (f" DEFAULT {of.default[0]}", of.default[1]), (" NOT NULL", of.zero)])
    )
    history.columns[name] = kind
    for row in history.rows.values():
        row[name] = value
    # NULL is allowed again, so that rows of any values may follow.
    return f"ADD COLUMN `{name}` {of.sql}{words}"


def drop(history: History, name: str) -> None:
    del history.columns[name]
    for row in history.rows.values():
        del row[name]


def rename(history: History, names: dict[str, str]) -> None:
    history.columns = {names.get(name, name): kind for name, kind in history.columns.items()}
    for number, row in history.rows.items():
        history.rows[number] = {names.get(name, name): value for name, value in row.items()}


def as_held(history: History, table: Table) -> list[dict[str, Any]]:
    """The model's rows as the table's columns hold them."""
    arrays = {}
    for column in table.columns:
        data_type = KINDS[history.columns[column.name]].data_type
        write, read = kind_of(data_type).write_json, reader(data_type, column.kind)
        cells = [row[column.name] for row in history.rows.values()]
        arrays[column.name] = array_of(
            [None if cell is None else read(write(cell)) for cell in cells], arrow_type(column.kind)
        )
    return numbered(pa.record_batch(arrays))


@settings(max_examples=sized(45, soak=150), deadline=None)
@given(histories(), st.lists(st.integers(1, 12), min_size=1))
def test_the_steps_come_to_what_the_table_is(history: History, sizes: list[int]) -> None:
    tables, entries = Tables(), history.feed.entries
    at = turn = 0
    while at < len(entries):
        size = sizes[turn % len(sizes)]
        tables.take(entries[at : at + size])
        at, turn = at + size, turn + 1
    assert tables.stopped() == {}
    (table,) = tables.tables.values()
    kept = [{name: row[name] for name in table.names()} for row in table.rows]
    assert sorted(map(repr, kept)) == sorted(map(repr, as_held(history, table)))
    if history.rows:
        assert set(table.names()) == set(history.columns)
