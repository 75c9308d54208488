"""When a table's schema is sent again, for consumers that begin in the middle. Time comes in, as milliseconds of any clock
that does not go back.

A table is active from its first row on: its BOOTSTRAP goes out before that row. After that it is due when ``interval_s`` has
passed or ``messages`` rows were sent, but this is looked at every 5 seconds only, so more rows may come in between. A table
without rows for 30 minutes is left out; its next row makes it active anew. A DDL carries the schema to every partition
itself, so both counts begin again with it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.simple.message import Bootstrap, Ddl, MessageType
from headrace.simple.schema import TableSchema

CHECK_MS: Final = 5_000
"""So often it is looked whether a BOOTSTRAP is due."""
IDLE_CHECK_MS: Final = 30_000
"""So often tables without rows are looked for."""
IDLE_MS_MAX: Final = 30 * 60_000
"""A table without rows for longer is not active."""


class BootstrapSettings(msgspec.Struct, frozen=True):
    """How often; the defaults are TiCDC's. Either number at 0 or below turns BOOTSTRAP messages off altogether."""

    interval_s: int = 120
    messages: int = 10_000
    to_all_partitions: bool = True
    """To every partition of the topic, or to the first one alone: consumers of the others then wait for ever."""

    @property
    def enabled(self) -> bool:
        """Are BOOTSTRAP messages sent at all?"""
        return self.interval_s > 0 and self.messages > 0


class BootstrapDue(msgspec.Struct, frozen=True):
    """A message that is to be sent to these partitions of the topic."""

    message: Bootstrap
    topic: str
    partitions: range


class _Active(msgspec.Struct):
    schema: TableSchema
    topic: str
    partitions: int
    sent_ms: int
    row_ms: int
    rows: int = 0


class BootstrapPolicy:
    """Which BOOTSTRAP messages are due. It keeps one schema for each active table, by the table's id, and nothing else."""

    def __init__(self, settings: BootstrapSettings) -> None:
        self.settings = settings
        self._active: dict[int, _Active] = {}
        self._checked_ms: int | None = None
        self._idle_checked_ms = 0

    @property
    def active(self) -> int:
        """How many tables are active."""
        return len(self._active)

    def row(
        self,
        schema: TableSchema,
        topic: str,
        partitions: int,
        now_ms: int,
        build_ts: int,
        *,
        rows: int = 1,
    ) -> BootstrapDue | None:
        """Note a row, or several (``rows``), about to be sent; what is returned must be sent before the first.

        ``schema`` is the rows', ``build_ts`` the wall clock in milliseconds since 1970, for the message.
        """
        if not self.settings.enabled:
            return None
        table = self._active.get(schema.table_id)
        if table is None or table.topic != topic:
            # Another topic after a RENAME: its consumers have never seen the schema.
            table = _Active(schema, topic, partitions, sent_ms=now_ms, row_ms=now_ms, rows=rows - 1)
            self._active[schema.table_id] = table
            return self._due(table, build_ts)
        table.schema, table.partitions, table.row_ms = schema, partitions, now_ms
        table.rows += rows
        return None

    def ddl(self, message: Ddl, now_ms: int) -> None:
        """Note a DDL that is sent to every partition of its table's topic."""
        schema = message.table_schema
        if schema is None:
            return
        if message.type is MessageType.ERASE:
            self._active.pop(schema.table_id, None)
            return
        before = message.pre_table_schema
        if before is not None and before.table_id != schema.table_id and message.type is MessageType.TRUNCATE:
            self._active.pop(before.table_id, None)
        table = self._active.get(schema.table_id)
        if table is not None:
            table.schema, table.sent_ms, table.rows = schema, now_ms, 0

    def tick(self, now_ms: int, build_ts: int) -> list[BootstrapDue]:
        """Return what is due now. Call it as often as you like: it looks every 5 seconds, first 5 after the first call."""
        if self._checked_ms is None:
            self._checked_ms = self._idle_checked_ms = now_ms
        if now_ms - self._checked_ms < CHECK_MS:
            return []
        self._checked_ms = now_ms
        if now_ms - self._idle_checked_ms >= IDLE_CHECK_MS:
            self._idle_checked_ms = now_ms
            idle = [key for key, table in self._active.items() if now_ms - table.row_ms > IDLE_MS_MAX]
            for key in idle:
                del self._active[key]
        due = []
        for table in self._active.values():
            waited = now_ms - table.sent_ms >= self.settings.interval_s * 1000
            if waited or table.rows >= self.settings.messages:
                table.sent_ms, table.rows = now_ms, 0
                due.append(self._due(table, build_ts))
        return due

    def _due(self, table: _Active, build_ts: int) -> BootstrapDue:
        count = table.partitions if self.settings.to_all_partitions else 1
        return BootstrapDue(Bootstrap(build_ts, table.schema), table.topic, range(count))
