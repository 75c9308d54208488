"""What a consumer is given to do, in this order and one after the other: values that the assembler returns."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from headrace.simple.cache import SchemaKey
from headrace.simple.message import Ddl, Dml, MessageType, Raw
from headrace.simple.schema import TableSchema

_ORDER: Final = {MessageType.DELETE: 0, MessageType.UPDATE: 1, MessageType.INSERT: 2}


class RowChange(msgspec.Struct, frozen=True):
    """A row that was changed, and the schema that it is to be read by."""

    message: Dml
    schema: TableSchema


class Transaction(msgspec.Struct, frozen=True):
    """All rows of one commitTs, from all partitions, in the order in which they are to be applied.

    Apply an INSERT or UPDATE as "put the whole row under its handle key" (and drop the old key, should an UPDATE change it),
    a DELETE as "drop it if it is there": where a writer was cut in a transaction and begins again with that very one, rows
    of it may come twice, the last sending whole and at the end.
    """

    commit_ts: int
    rows: tuple[RowChange, ...]


class Statement(msgspec.Struct, frozen=True):
    """A DDL that is to be executed now: all that was committed before it is applied, nothing that came after it."""

    message: Ddl


class SchemaNeeded(msgspec.Struct, frozen=True):
    """Rows wait for this schema. A DDL or BOOTSTRAP may bring it; who can fetch it gives it to ``Assembler.supply``."""

    database: str
    table: str
    version: int

    @property
    def key(self) -> SchemaKey:
        """What the schema is found by."""
        return self.database, self.table, self.version


class Checkpoint(msgspec.Struct, frozen=True):
    """How far a consumer is: what an assembler begins with after a restart. Store it with what was applied, in one go.

    Rows up to ``commit_ts`` are applied, and the statements up to it, but for those that are committed at exactly it and are
    not in ``statements``: digests of the ones executed at ``statement_ts``.
    """

    commit_ts: int = 0
    statement_ts: int = 0
    statements: tuple[str, ...] = ()


class Progress(msgspec.Struct, frozen=True):
    """All that was returned before this belongs to ``checkpoint``.

    ``resume_at``: for each partition the position from which to read again after a restart, None if positions are not given.
    """

    checkpoint: Checkpoint
    resume_at: tuple[int | None, ...]


Delivery = Transaction | Statement | SchemaNeeded | Progress


def digest_of(message: Ddl) -> str:
    """Return what tells a DDL from others of the same commitTs, whenever and however often it was sent."""
    schema = message.table_schema
    table = (schema.schema, schema.table, str(schema.table_id)) if schema is not None else ()
    return hashlib.sha256(
        "\0".join((message.type, message.sql, *table)).encode(errors="replace")
    ).hexdigest()[:16]


def in_order(rows: Sequence[tuple[int, RowChange]]) -> tuple[RowChange, ...]:
    """Return the rows of one transaction, each with its partition, in an order in which they can be applied.

    Rows of one partition keep their order. Rows of several touch different keys and commute, unless a rule puts one key into
    several: then they count as writers sort a transaction, DELETE before UPDATE before INSERT.
    """
    ordered = sorted(rows, key=lambda row: row[0])
    if not ordered or ordered[0][0] == ordered[-1][0]:
        return tuple(change for _, change in ordered)
    partitions = defaultdict(set)
    for partition, change in ordered:
        for key in _keys(change):
            partitions[key].add(partition)
    shared = {key for key, found in partitions.items() if len(found) > 1}
    apart = [change for _, change in ordered if shared.isdisjoint(_keys(change))]
    together = [change for _, change in ordered if not shared.isdisjoint(_keys(change))]
    return (*apart, *sorted(together, key=lambda change: _ORDER[change.message.type]))


def _keys(change: RowChange) -> Iterator[tuple[str, str, tuple[Raw, ...]]]:
    message = change.message
    names = change.schema.handle_key
    for row in (message.data, message.old):
        if row is not None:
            yield message.database, message.table, tuple(row.get(name) for name in names)
