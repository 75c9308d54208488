"""A feed as ``headrace capture`` writes it, from a history that a generator made: schemas, statements, rows, WATERMARKs."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import msgspec

from headrace.simple import json_codec
from headrace.simple.cache import SchemaKey
from headrace.simple.message import Bootstrap, Ddl, Dml, MessageType, Watermark
from headrace.simple.schema import TableSchema
from tests.servers import Feed
from tests.simple_tables import BUILD_TS
from tests.simple_topic import Source

AT_ONCE = 500


class History(Source):
    """A source whose TRUNCATE gives a table another version, as capture does."""

    def ddl(self) -> None:
        super().ddl()
        last = self.events[-1] if self.events else None
        if isinstance(last, Ddl) and last.type is MessageType.TRUNCATE and last.commit_ts == self.commit_ts:
            assert last.table_schema is not None
            after = msgspec.structs.replace(last.table_schema, version=self.commit_ts)
            self.events[-1] = msgspec.structs.replace(last, table_schema=after)
            self.schemas[after.table] = self.every_schema[after.key] = after


class CapturedFeed:
    """Puts a history's events into a feed, from where it stopped the last time."""

    def __init__(self, feed: Feed, source: Source, chance: random.Random) -> None:
        self.feed = feed
        self.source = source
        self.done = 0
        self.statements = 0
        self._chance = chance
        self._told: set[SchemaKey] = set()

    def write(self) -> None:
        """Append what is new; a WATERMARK follows now and then, and at the end."""
        entries: list[bytes] = []
        for event in self.source.events[self.done :]:
            if isinstance(event, Ddl):
                entries += self._statement(event)
            else:
                entries += self._rows(event)
            if self._chance.random() < 0.3:
                entries.append(watermark(event.commit_ts if isinstance(event, Ddl) else event[0].commit_ts))
        self.done = len(self.source.events)
        entries.append(watermark(self.source.commit_ts + 1))
        self.source.commit_ts += 1
        append(self.feed, entries)

    def _statement(self, message: Ddl) -> list[bytes]:
        schema = message.table_schema
        assert schema is not None
        self.statements += 1
        before = message.pre_table_schema or schema
        key = f"\0ddl/{before.schema}/{before.table}/{message.commit_ts}"
        table = [before.schema, before.table]
        found = [entry(json_codec.encode(message), key, table=table, control="ddl")]
        if message.type is not MessageType.ERASE:
            found += self._schema(schema)
        return found

    def _schema(self, schema: TableSchema) -> list[bytes]:
        if schema.key in self._told:
            return []
        self._told.add(schema.key)
        return [schema_entry(schema)]

    def _rows(self, rows: Sequence[Dml]) -> list[bytes]:
        found: list[bytes] = []
        for row in rows:
            found += self._schema(self.source.every_schema[row.schema_key])
        for place, row in enumerate(rows):
            found.append(row_entry(row, tx=f"0-1-{row.commit_ts}", index=place, last=place == len(rows) - 1))
        return found


def row_entry(row: Dml, *, tx: str = "", index: int = 0, last: bool = True) -> bytes:
    """The entry of a row's message."""
    image = row.data or row.old or {}
    key = msgspec.json.encode([row.database, row.table, str(next(iter(image.values())))]).decode()
    op = "delete" if row.type is MessageType.DELETE else "put"
    more = {"tx": tx, "tx-index": index, "tx-last": last} if tx else {}
    return entry(json_codec.encode(row), key, table=[row.database, row.table], op=op, **more)


def schema_entry(schema: TableSchema) -> bytes:
    """The entry of a table's schema."""
    key = f"\0schema/{schema.schema}/{schema.table}/{schema.version}"
    value = json_codec.encode(Bootstrap(BUILD_TS, schema))
    return entry(value, key, table=[schema.schema, schema.table], control="schema")


def watermark(commit_ts: int) -> bytes:
    """The entry of a WATERMARK."""
    value = json_codec.encode(Watermark(commit_ts, BUILD_TS))
    return entry(value, f"\0watermark/{commit_ts}", control="watermark")


def entry(message: bytes, key: str, **more: object) -> bytes:
    """An entry as it is posted, with the message's very bytes in it."""
    return msgspec.json.encode(
        {"agent-id": Feed.agent, "key": key, "changes": msgspec.Raw(message)} | {"op": "put"} | more
    )


def append(feed: Feed, entries: Iterable[bytes]) -> None:
    """Append entries in order."""
    waiting = list(entries)
    for start in range(0, len(waiting), AT_ONCE):
        body = b'{"entries":[' + b",".join(waiting[start : start + AT_ONCE]) + b"]}"
        answer = feed.post_raw(body)
        assert answer.status_code in {200, 201}, answer.text
