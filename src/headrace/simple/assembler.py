"""Puts the partitions of a Simple topic together again: transactions in the order of their commits, DDL at its time.

A state machine without I/O. The caller reads messages of the partitions in any interleaving, gives each to ``take`` and does
what is returned, in order. What is guaranteed, whatever writers and consumers cut or send again:

- Nothing beyond the least of the partitions' WATERMARKs is returned, so nothing that comes later belongs before it.
- Rows of one commitTs are one :class:`Transaction`. Transactions come in the order of commitTs, rows of a table in theirs.
- A DDL comes once, behind the rows up to its commitTs and before all later ones. Partition 0 decides; the copies in others
  only bring the schema.
- Rows whose schema is not known wait, and all that was committed after them, until a DDL, a BOOTSTRAP or the caller brings
  it.
- What waits has a bound in rows and bytes. Behind it stands an error that says what is waited for; nothing is ever dropped.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.errors import SimpleBacklogFull, SimpleSchemaMissing
from headrace.simple.backlog import Backlog, Held, HeldRow, HeldStatement
from headrace.simple.cache import SchemaCache, SchemaKey
from headrace.simple.delivery import (
    Checkpoint,
    Delivery,
    Progress,
    RowChange,
    SchemaNeeded,
    Statement,
    Transaction,
    digest_of,
    in_order,
)
from headrace.simple.faults import Shown, invalid
from headrace.simple.message import Bootstrap, Ddl, Dml, Message, Watermark, name_of
from headrace.simple.schema import TableSchema

STATEMENTS_FROM: Final = 0
"""The partition whose DDL messages are executed."""


class Bounds(msgspec.Struct, frozen=True):
    """How much may wait: for WATERMARKs, and for schemas. A transaction must fit in."""

    rows_max: int = 500_000
    bytes_max: int = 256 * 1024 * 1024
    """Bytes of encoded messages; as Python values they take about five times as much."""


class Assembler:
    """One topic's consumer. ``partitions`` is how many it has; all of them must be read."""

    def __init__(
        self,
        partitions: int,
        checkpoint: Checkpoint = Checkpoint(),  # noqa: B008  # it is frozen
        *,
        cache: SchemaCache | None = None,
        bounds: Bounds = Bounds(),  # noqa: B008  # it is frozen
    ) -> None:
        """Begin at ``checkpoint``: what it says was applied is left out. ``cache`` may have schemas kept from before."""
        if partitions < 1:
            raise ValueError(f"a topic has one partition at least, not {partitions}")
        self.cache = cache if cache is not None else SchemaCache()
        self.bounds = bounds
        self._backlog = Backlog(partitions, checkpoint.commit_ts)
        self._watermarks = [checkpoint.commit_ts] * partitions
        self._watermark_positions: list[int | None] = [None] * partitions
        self._positions: list[int | None] = [None] * partitions
        self._checkpoint = checkpoint
        self._reported = checkpoint
        self._greatest_statement = max(checkpoint.commit_ts, checkpoint.statement_ts)
        self._blocked_by: SchemaKey | None = None

    @property
    def rows(self) -> int:
        """How many rows wait."""
        return self._backlog.rows

    @property
    def bytes(self) -> int:
        """How many bytes of messages wait."""
        return self._backlog.bytes

    @property
    def dropped(self) -> int:
        """How many rows and statements came again and were left out."""
        return self._backlog.dropped

    @property
    def commit_ts(self) -> int:
        """The commitTs watermark of the topic: the least of the partitions'; until each had one, what it began with."""
        return min(self._watermarks)

    @property
    def missing(self) -> list[SchemaKey]:
        """The schemas that waiting rows need and that are not known."""
        return [key for key in self._backlog.needed if key not in self.cache]

    @property
    def readable(self) -> tuple[int, ...]:
        """The partitions to read from next.

        All of them; once half of the room is taken only those that hold the others back. Reading the others on would fill
        it.
        """
        everything = tuple(range(len(self._watermarks)))
        room = self.rows * 2 < self.bounds.rows_max and self.bytes * 2 < self.bounds.bytes_max
        if room:
            return everything
        return tuple(partition for partition in everything if self._watermarks[partition] == self.commit_ts)

    def take(
        self, partition: int, message: Message, *, size: int, position: int | None = None
    ) -> list[Delivery]:
        """Take the next message of ``partition`` and return what is to be done now, in order.

        ``size``: its bytes as encoded. ``position``: its offset in the partition, if there is one; a message at or below the
        last is left out. Errors take nothing: SimpleSchemaMissing and SimpleBacklogFull where no more can wait,
        SimpleInvalid for a DDL that comes behind a WATERMARK which says that there is none, or a schema that contradicts
        another. IndexError: the topic has no such partition.
        """
        if not 0 <= partition < len(self._positions):
            raise IndexError(f"there is no partition {partition}: the topic has {len(self._positions)}")
        last = self._positions[partition]
        if position is not None and last is not None and position <= last:
            self._backlog.dropped += 1
            return []
        out: list[Delivery] = []
        match message:
            case Dml():
                out += self._take_row(
                    HeldRow(message=message, partition=partition, position=position, bytes=size)
                )
            case Watermark():
                if message.commit_ts > self._watermarks[partition]:
                    self._watermarks[partition] = message.commit_ts
                    self._watermark_positions[partition] = position
            case Bootstrap():
                self.cache.learn(message, self._backlog.needed)
            case Ddl():
                self._take_statement(
                    HeldStatement(
                        message=message,
                        partition=partition,
                        position=position,
                        bytes=size,
                        digest=digest_of(message),
                    )
                )
        if position is not None:
            self._positions[partition] = position
        if not isinstance(message, Dml) or message.commit_ts <= self.commit_ts:
            out += self._let_go()
        return out

    def supply(self, schema: TableSchema) -> list[Delivery]:
        """Take a schema that the caller has fetched, and return what is to be done now."""
        self.cache.add(schema, self._backlog.needed)
        return self._let_go()

    def _take_row(self, held: HeldRow) -> list[Delivery]:
        message = held.message
        self._check_room(held, 1)
        if not self._backlog.is_new(
            message, held.partition, self._checkpoint.commit_ts, self._checkpoint.statement_ts
        ):
            return []
        first = self._backlog.hold_row(held)
        return [SchemaNeeded(*message.schema_key)] if first and message.schema_key not in self.cache else []

    def _check_room(self, held: Held, rows: int) -> None:
        if self.rows + rows <= self.bounds.rows_max and self.bytes + held.bytes <= self.bounds.bytes_max:
            return
        waiting = f"{self.rows} rows of {self.bytes} bytes wait, and no more may"
        key = self._blocked_by or next(iter(self.missing), None)
        if key is not None:
            database, table, version = key
            raise SimpleSchemaMissing(
                f"{waiting}: the schema of {database}.{table} version {version} did not come",
                database=database,
                table=table,
                version=version,
            )
        partition = self._watermarks.index(self.commit_ts)
        raise SimpleBacklogFull(
            f"{waiting}: partition {partition} had no WATERMARK beyond {self.commit_ts}",
            partition=partition,
            commit_ts=self.commit_ts,
        )

    def _take_statement(self, held: HeldStatement) -> None:
        message = held.message
        commit_ts = message.commit_ts
        done = self._checkpoint
        late = done.commit_ts > commit_ts > self._greatest_statement
        if held.partition == STATEMENTS_FROM and late:
            expected = f"above the WATERMARK {done.commit_ts} that came before it"
            raise invalid(name_of(message), "commitTs", expected, Shown(str(commit_ts)))
        self.cache.learn(message, self._backlog.needed)
        if held.partition != STATEMENTS_FROM:
            return
        if self._blocked_by is None or self._blocked_by not in self.cache:
            self._check_room(held, 0)
        executed = done.statements if done.statement_ts == commit_ts else ()
        waiting = (other.digest for other in self._backlog.statements_at(commit_ts))
        if commit_ts < done.commit_ts or held.digest in executed or held.digest in waiting:
            self._backlog.dropped += 1
            return
        self._greatest_statement = max(self._greatest_statement, commit_ts)
        self._backlog.hold_statement(held)

    def _let_go(self) -> list[Delivery]:
        """Return what the WATERMARKs allow, up to the first transaction that has a row without a schema."""
        if self._blocked_by is not None and self._blocked_by not in self.cache:
            return []
        self._blocked_by = None
        out: list[Delivery] = []
        limit = self.commit_ts
        while (commit_ts := self._backlog.least) is not None and commit_ts <= limit:
            rows = self._rows_at(commit_ts)
            if rows is None:
                limit = commit_ts - 1
                break
            if rows:
                out.append(Transaction(commit_ts, in_order(rows)))
                self._backlog.release_rows(commit_ts)
            self._reach(commit_ts)
            for held in tuple(self._backlog.statements_at(commit_ts)):
                out += self._progress()
                out.append(self._execute(held.message))
                out += self._progress()
        self._reach(limit)
        self._backlog.forget(self._checkpoint.commit_ts)
        return out + self._progress()

    def _rows_at(self, commit_ts: int) -> list[tuple[int, RowChange]] | None:
        """The rows of this commitTs with their schemas; None if one is missing, which is noted."""
        rows = []
        for held in self._backlog.rows_at(commit_ts):
            key = held.message.schema_key
            schema = self.cache.get(key)
            if schema is None:
                self._blocked_by = key
                return None
            rows.append((held.partition, RowChange(held.message, schema)))
        return rows

    def _execute(self, message: Ddl) -> Statement:
        done = self._checkpoint
        before = done.statements if done.statement_ts == message.commit_ts else ()
        self._checkpoint = Checkpoint(done.commit_ts, message.commit_ts, (*before, digest_of(message)))
        self._backlog.release_statement(message.commit_ts)
        return Statement(message)

    def _reach(self, commit_ts: int) -> None:
        done = self._checkpoint
        if commit_ts > done.commit_ts:
            self._checkpoint = Checkpoint(commit_ts, done.statement_ts, done.statements)

    def _progress(self) -> list[Delivery]:
        """The checkpoint, if it is another than the one reported last."""
        if self._checkpoint == self._reported:
            return []
        self._reported = self._checkpoint
        resume_at = tuple(self._resume_at(partition) for partition in range(len(self._positions)))
        return [Progress(self._checkpoint, resume_at)]

    def _resume_at(self, partition: int) -> int | None:
        """The first message that is of use after a restart: one that waits, or a WATERMARK that others have not reached."""
        last = self._positions[partition]
        if last is None:
            return None
        ahead = self._watermarks[partition] > self._checkpoint.commit_ts
        watermark = self._watermark_positions[partition] if ahead else None
        waiting = self._backlog.first_position(partition)
        return min(place for place in (waiting, watermark, last + 1) if place is not None)
