"""A source with its history, the topic that a writer makes of it, cut and begun again, and a consumer that may die."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import msgspec

from headrace.errors import SimpleSchemaMissing
from headrace.simple.assembler import Assembler, Bounds
from headrace.simple.cache import SchemaCache, SchemaKey
from headrace.simple.delivery import Checkpoint, Delivery, Progress, SchemaNeeded, Statement, Transaction
from headrace.simple.message import Bootstrap, Ddl, Dml, Message, MessageType, Watermark
from headrace.simple.partition import PartitionRule, placer_of
from headrace.simple.schema import TableSchema
from tests.simple_tables import BUILD_TS, change, column, table

Rows = dict[str, dict[str, str]]
Tables = dict[str, Rows]
NAMES = ("a", "b", "c")
_STEPS_MAX = 200_000


@dataclass
class Source:
    """Tables as they are, and all that happened to them: rows and DDL by commitTs."""

    rng: random.Random
    tables: Tables = field(default_factory=dict)
    schemas: dict[str, TableSchema] = field(default_factory=dict)
    every_schema: dict[SchemaKey, TableSchema] = field(default_factory=dict)
    events: list[list[Dml] | Ddl] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    commit_ts: int = 0
    table_id: int = 0

    def step(self) -> None:
        """A transaction mostly, now and then a DDL."""
        self.commit_ts += self.rng.randint(1, 3)
        if len(self.schemas) < 2 or self.rng.random() < 0.2:
            self.ddl()
        else:
            self.transaction()

    def ddl(self) -> None:
        name = self.rng.choice(NAMES)
        before = self.schemas.get(name)
        if before is None:
            self.table_id += 1
            after = table(f"shop.{name}", "id", version=self.commit_ts, table_id=self.table_id, key=("id",))
            kind = "CREATE"
        else:
            kind = self.rng.choice(["ALTER", "TRUNCATE", "ERASE", "RENAME"])
            after = before
        sql = kind
        if kind == "ALTER":
            added = column(f"c{self.commit_ts}")
            after = msgspec.structs.replace(after, columns=(*after.columns, added), version=self.commit_ts)
        elif kind == "TRUNCATE":
            self.table_id += 1
            after = msgspec.structs.replace(after, table_id=self.table_id)
        elif kind == "RENAME":
            free = [other for other in NAMES if other not in self.schemas]
            if not free:
                return
            after = msgspec.structs.replace(after, table=free[0])
            sql = f"RENAME {name}"
        self.schemas.pop(name, None)
        if kind != "ERASE":
            self.schemas[after.table] = after
        self.every_schema[after.key] = after
        pre = before if self.rng.random() < 0.5 else None
        event = Ddl(MessageType(kind), sql, self.commit_ts, BUILD_TS, after, pre)
        execute(self.tables, event)
        self.statements.append(f"{sql} {after.table} {self.commit_ts}")
        self.events.append(event)

    def transaction(self) -> None:
        rows: list[Dml] = []
        for _ in range(self.rng.randint(1, 4)):
            schema = self.schemas[self.rng.choice(sorted(self.schemas))]
            stored = self.tables[schema.table]
            key = str(self.rng.randint(0, 4))
            old = dict(stored[key]) if key in stored else None
            new = {one.name: str(self.rng.randint(0, 9)) for one in schema.columns} | {"id": key}
            if old is not None and self.rng.random() < 0.4:
                rows.append(change("DELETE", schema, self.commit_ts, None, old))
            elif old is not None:
                rows.append(change("UPDATE", schema, self.commit_ts, new, old))
            else:
                rows.append(change("INSERT", schema, self.commit_ts, new))
            apply(self.tables, rows[-1])
        self.events.append(rows)


def apply(tables: Tables, row: Dml) -> None:
    stored = tables[row.table]
    if row.data is None:
        assert row.old is not None
        stored.pop(str(row.old["id"]), None)
    else:
        stored[str(row.data["id"])] = {name: str(value) for name, value in row.data.items()}


def execute(tables: Tables, statement: Ddl) -> None:
    schema = statement.table_schema
    assert schema is not None
    match statement.type:
        case MessageType.CREATE | MessageType.TRUNCATE:
            tables[schema.table] = {}
        case MessageType.ERASE:
            del tables[schema.table]
        case MessageType.RENAME:
            tables[schema.table] = tables.pop(statement.sql.split()[1])
        case _:
            for row in tables[schema.table].values():
                row[schema.columns[-1].name] = "0"


@dataclass
class Writer:
    """Writes the partitions as TiCDC does. Cut, it begins again behind its last WATERMARK and sends that part once more."""

    rng: random.Random
    source: Source
    partitions: int
    cuts: int = 3

    def __post_init__(self) -> None:
        self.logs: list[list[Message]] = [[] for _ in range(self.partitions)]
        self.done = 0
        """Events behind the last WATERMARK that was sent."""

    def write(self) -> list[list[Message]]:
        events = self.source.events
        while self.done < len(events):
            end = min(len(events), self.done + self.rng.randint(1, 4))
            if not self._send(events[self.done : end]):
                continue
            self.done = end
            last = events[end - 1]
            self._all(Watermark(last.commit_ts if isinstance(last, Ddl) else last[0].commit_ts, BUILD_TS))
        self._all(Watermark(self.source.commit_ts + 1, BUILD_TS))
        return self.logs

    def _send(self, events: list[list[Dml] | Ddl]) -> bool:
        """Send events that lie between two WATERMARKs, False if cut. Tables are apart but for DDL, which is a barrier."""
        lanes: dict[int, list[Dml]] = {}
        for event in [*events, None]:
            if isinstance(event, list):
                for row in event:
                    lanes.setdefault(row.table_id, []).append(row)
                continue
            while lanes:
                key = self.rng.choice(sorted(lanes))
                row = lanes[key].pop(0)
                lanes = {one: rows for one, rows in lanes.items() if rows}
                if self._is_cut():
                    return False
                self._row(row)
            if event is not None:
                if self._is_cut():
                    return False
                self._all(event)
        return True

    def _is_cut(self) -> bool:
        if self.cuts and self.rng.random() < 0.1:
            self.cuts -= 1
            return True
        return False

    def _row(self, row: Dml) -> None:
        schema = self.source.every_schema[row.schema_key]
        if self.rng.random() < 0.1:
            self._all(Bootstrap(BUILD_TS, schema))
        sent = msgspec.structs.replace(row, build_ts=self.rng.randint(1, 9))
        place = placer_of(schema, PartitionRule.INDEX_VALUE).partition_of(row, self.partitions)
        self.logs[place].append(sent)

    def _all(self, message: Message) -> None:
        for log in self.logs:
            log.append(message)


@dataclass
class Consumer:
    """Reads the partitions in any order. What it has applied, its checkpoint and its places are stored in one go."""

    rng: random.Random
    source: Source
    logs: list[list[Message]]
    bounds: Bounds = field(default_factory=Bounds)
    deaths: int = 3
    greedy: bool = False
    rows_seen: int = 0

    def __post_init__(self) -> None:
        self.stored = (Checkpoint(), [0] * len(self.logs), {}, [])  # type: ignore[var-annotated]  # as _begin reads it
        self._begin()

    def _begin(self) -> None:
        checkpoint, places, tables, statements = self.stored
        self.places = list(places)
        self.tables: Tables = {
            name: {key: dict(row) for key, row in rows.items()} for name, rows in tables.items()
        }
        self.statements: list[str] = list(statements)
        self.machine = Assembler(len(self.logs), checkpoint, cache=SchemaCache(4), bounds=self.bounds)

    def run(self) -> None:
        for _ in range(_STEPS_MAX):
            unread = [place for place in self.machine.readable if self.places[place] < len(self.logs[place])]
            if not unread:
                missing = self.machine.missing
                if not missing:
                    return
                self._do(self.machine.supply(self.source.every_schema[missing[0]]))
                continue
            if self.deaths and self.rng.random() < 0.03:
                self.deaths -= 1
                self._begin()
                continue
            partition = unread[0] if self.greedy else self.rng.choice(unread)
            again = self.rng.randint(0, 3) if self.rng.random() < 0.05 else 0
            self.places[partition] = max(self.places[partition] - again, 0)
            self._read(partition)
        raise AssertionError("it does not come to an end")

    def _read(self, partition: int) -> None:
        position = self.places[partition]
        message = self.logs[partition][position]
        try:
            done = self.machine.take(partition, message, size=100, position=position)
        except SimpleSchemaMissing as missing:
            key = (missing.members["database"], missing.members["table"], missing.members["version"])
            self._do(self.machine.supply(self.source.every_schema[key]))
            return
        self.places[partition] = position + 1
        self.rows_seen = max(self.rows_seen, self.machine.rows)
        self._do(done)

    def _do(self, deliveries: list[Delivery]) -> None:
        reached = 0
        for one in deliveries:
            match one:
                case Transaction(commit_ts, rows):
                    assert reached < commit_ts <= self.machine.commit_ts
                    reached = commit_ts
                    for row in rows:
                        assert row.message.commit_ts == commit_ts
                        known = self.source.every_schema[row.message.schema_key]
                        assert row.schema.columns == known.columns
                        apply(self.tables, row.message)
                case Statement(message):
                    execute(self.tables, message)
                    assert message.table_schema is not None
                    text = f"{message.sql} {message.table_schema.table} {message.commit_ts}"
                    self.statements.append(text)
                case Progress(checkpoint, resume_at):
                    places = [place or 0 for place in resume_at]
                    self.stored = (checkpoint, places, self._copied(), list(self.statements))
                case SchemaNeeded():
                    assert one.key not in self.machine.cache

    def _copied(self) -> Tables:
        return {name: {key: dict(row) for key, row in rows.items()} for name, rows in self.tables.items()}
