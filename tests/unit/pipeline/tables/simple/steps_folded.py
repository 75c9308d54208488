"""Steps of a plan carried out in plain Python, in place of Delta tables: what tests compare with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.entries.entry import Change
from headrace.pipeline.tables.rows import GONE, SEQUENCE_ID
from headrace.pipeline.tables.simple.expressions import (
    Cast,
    Constant,
    Encoded,
    Expression,
    Field,
    Ordered,
    Padded,
)
from headrace.pipeline.tables.simple.plan import Control, Run, cuts, plan
from headrace.pipeline.tables.simple.rows import COMMIT_TS, typed_batches
from headrace.pipeline.tables.simple.state import TableState
from headrace.pipeline.tables.simple.steps import (
    Empty,
    Erase,
    Evolve,
    Make,
    RenameTo,
    Rows,
    Step,
    Stop,
    TableColumn,
)

Row = dict[str, Any]
NUMBERS = (pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC"))


class Entry(NamedTuple):
    """An entry of a feed at its place."""

    sequence_id: int
    change: Change


class Table:
    """A Delta table in memory: its columns, and its rows by their place, which nobody sees."""

    def __init__(self, columns: Sequence[TableColumn]) -> None:
        self.columns = tuple(columns)
        self.rows: list[Row] = []

    def names(self) -> list[str]:
        return [column.name for column in self.columns]


class Tables:
    """All tables of a feed, kept by the steps of its batches."""

    def __init__(self, feed: str = "shop") -> None:
        self.feed = feed
        self.states: tuple[TableState, ...] = ()
        self.tables: dict[int, Table] = {}
        self.stops: dict[int, Stop] = {}
        self.steps: list[Step] = []
        self.places: dict[int, int] = {}
        self.watermark: int | None = None

    def take(self, entries: Sequence[Entry]) -> list[Step]:
        """Carry out one batch, and return its steps."""
        controls = [
            Control(at, one.control, one.table, one.value or b"", one.source_time_ms // 1000 or None)
            for at, one in entries
            if one.control
        ]
        found = plan(self.states, controls, runs_of(entries, cuts(controls)), feed=self.feed)
        assert found == plan(self.states, controls, runs_of(entries, cuts(controls)), feed=self.feed)
        for step in found.steps:
            assert step.place > self.places.get(step.identity, 0), step
            self.places[step.identity] = step.place
            self._carry_out(step, entries)
        self.states, self.watermark = found.tables, found.watermark or self.watermark
        self.steps += found.steps
        return found.steps

    def named(self) -> dict[tuple[str, str], Table]:
        """The tables that are not stopped, by their names."""
        return {state.name: self.tables[state.identity] for state in self.states if not state.stopped}

    def stopped(self) -> dict[tuple[str, str], str]:
        """Why tables are stopped."""
        return {state.name: state.stopped for state in self.states if state.stopped}

    def _carry_out(self, step: Step, entries: Sequence[Entry]) -> None:
        match step:
            case Make():
                assert step.identity not in self.tables
                self.tables[step.identity] = Table(step.columns)
            case Empty():
                self.tables[step.identity] = Table(step.columns)
            case Erase():
                del self.tables[step.identity]
            case Evolve():
                evolve(self.tables[step.identity], step)
            case Rows():
                merge(self.tables[step.identity], step, entries)
            case Stop():
                self.stops[step.identity] = step
            case RenameTo():
                assert step.identity in self.tables


def runs_of(entries: Iterable[Entry], places: Sequence[int]) -> list[Run]:
    """Where rows stand between cuts, as the tables job counts them."""
    runs: dict[tuple[tuple[str, ...], int], list[int]] = {}
    for at, change in entries:
        if not change.control:
            runs.setdefault((change.table, sum(place < at for place in places)), []).append(at)
    return [Run((table[0], table[1]), places[0], places[-1]) for (table, _), places in runs.items()]


def typed(step: Rows, entries: Iterable[Entry]) -> list[Row]:
    """The rows of a step, with dates and timestamps as numbers."""
    wanted = [
        (at, change.value or b"")
        for at, change in entries
        if step.first <= at <= step.last and not change.control and change.table in step.names
    ]
    batch = pa.record_batch(
        {
            "sequence_id": pa.array([at for at, _ in wanted], pa.int64()),
            "value": pa.array([value for _, value in wanted], pa.binary()),
        }
    )
    (out,) = typed_batches(iter([batch]), step.reading)
    return numbered(out)


def numbered(batch: Any) -> list[Row]:
    """The rows of a record batch, with dates and timestamps as numbers."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if column.type in NUMBERS:
            column = column.cast(pa.int32() if column.type == pa.date32() else pa.int64())
        columns[name] = column.to_pylist()
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def merge(table: Table, step: Rows, entries: Iterable[Entry]) -> None:
    """MERGE: the latest of each key by (commitTs, sequence id)."""
    assert step.reading.columns == table.columns

    def key(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in step.reading.key)

    rows = {key(row): row for row in table.rows}
    assert len(rows) == len(table.rows), "rows are equal in the new key"

    def rank(row: Row) -> tuple[int, int]:
        return row[COMMIT_TS], row[SEQUENCE_ID]

    for row in sorted(typed(step, entries), key=rank):
        assert None not in key(row)
        known = rows.get(key(row))
        if known is not None and rank(known) > rank(row):
            continue
        if row.pop(GONE):
            rows.pop(key(row), None)
        else:
            rows[key(row)] = row
    table.rows = list(rows.values())


def evolve(table: Table, step: Evolve) -> None:
    """Change columns, in the way that the step names."""
    assert step.before == table.columns
    own = (SEQUENCE_ID, COMMIT_TS)
    kinds = {column.name: column.kind for column in table.columns}
    if not step.in_place:
        table.columns = tuple(TableColumn(one.name, one.kind) for one in step.projection)
        table.rows = [
            {name: row[name] for name in own}
            | {one.name: cast(*value_of(one.value, row, kinds), one.kind) for one in step.projection}
            for row in table.rows
        ]
        assert step.after == table.columns
        return
    seen = [set(table.columns)]
    for rename in (lambda name: None if name in step.drops else name, *map(_renaming, step.renames)):
        _rename(table, rename)
        seen.append(set(table.columns))
    for wide in step.widenings:
        narrow = next(one.kind for one in table.columns if one.name == wide.name)
        table.columns = tuple(wide if one.name == wide.name else one for one in table.columns)
        table.rows = [row | {wide.name: cast(row[wide.name], narrow, wide.kind)} for row in table.rows]
        seen.append(set(table.columns))
    table.columns = (*table.columns, *step.adds)
    table.rows = [row | {one.name: None for one in step.adds} for row in table.rows]
    assert set(step.after) == set(table.columns)
    assert all(len({column.name.lower() for column in columns}) == len(columns) for columns in seen)
    table.columns = step.after


def _renaming(pair: tuple[str, str]) -> Callable[[str], str | None]:
    return lambda name: pair[1] if name == pair[0] else name


def _rename(table: Table, rename: Callable[[str], str | None]) -> None:
    named = {name: rename(name) for name in table.names()}
    table.columns = tuple(
        TableColumn(new, one.kind) for one in table.columns if (new := named[one.name]) is not None
    )
    table.rows = [
        {new: value for name, value in row.items() if (new := named.get(name, name)) is not None}
        for row in table.rows
    ]


def value_of(value: Expression, row: Row, kinds: dict[str, str]) -> tuple[Any, str]:
    """What Spark makes of an expression, where the checks of its step hold, and its type."""
    match value:
        case Field(name):
            return row[name], kinds[name]
        case Constant(constant, of):
            exact = isinstance(constant, str) and of.startswith("decimal")
            return (Decimal(constant) if exact else constant), of  # type: ignore[arg-type]  # it is text
        case Cast(inner, of):
            return cast(*value_of(inner, row, kinds), of), of
    found, _ = value_of(value.value, row, kinds)
    match value:
        case Encoded():
            return None if found is None else found.encode(), "binary"
        case Padded(_, size):
            return None if found is None else found.ljust(size, b"\0"), "binary"
        case Ordered(_, labels):
            present = found.split(",") if found is not None else []
            return None if found is None else ",".join(
                label for label in labels if label in present
            ), "string"


def cast(value: Any, old: str, kind: str) -> Any:
    """A value as another type has it."""
    if value is None or old == kind:
        return value
    if kind.startswith("decimal"):
        return Decimal(value).quantize(Decimal((0, (1,), -int(kind[:-1].rpartition(",")[2]))))
    if kind in {"tinyint", "smallint", "int", "bigint"}:
        return int(value)
    if kind in {"float", "double"}:
        return float(value)
    if kind == "timestamp_ntz":
        return value * 86_400_000_000
    return str(value)
