"""Which schemas go out as BOOTSTRAP messages, and when. Pure: clocks come in as arguments.

What TiCDC does is :class:`~headrace.simple.bootstrap.BootstrapPolicy`: at a table's first row, then by time and by number of
rows. Beyond that, each version of a schema goes to every partition of its topic before the first row of it, unless a DDL
has brought it. Nothing is kept over a restart: a new job sends the schema of each table again before its first row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.pipeline.kafka.steps import Rows
from headrace.simple.bootstrap import BootstrapDue, BootstrapPolicy, BootstrapSettings
from headrace.simple.message import Bootstrap, Ddl
from headrace.simple.schema import TableSchema


class Now(NamedTuple):
    """Milliseconds of a clock that never goes back, and of the wall clock since 1970."""

    steady_ms: int
    wall_ms: int


class Announcer:
    """Knows what each topic has of schemas, for the length of a job. With BOOTSTRAP switched off it never sends any."""

    def __init__(
        self,
        settings: BootstrapSettings,
        topic_of: Callable[[str, str], str],
        partitions_of: Callable[[str], int],
    ) -> None:
        """``topic_of`` (database, table) and ``partitions_of`` (topic) say where a table's messages go."""
        self._policy = BootstrapPolicy(settings)
        self._topic_of = topic_of
        self._partitions_of = partitions_of
        self._sent: dict[tuple[str, str, str], TableSchema] = {}

    def before_rows(
        self, rows: Sequence[Rows], schema_of: Callable[[Rows], TableSchema], now: Now
    ) -> list[BootstrapDue]:
        """Return what must be sent before these rows are."""
        due: list[BootstrapDue] = []
        if not self._policy.settings.enabled:
            return due
        for one in rows:
            schema = schema_of(one)
            topic = self._topic_of(schema.schema, schema.table)
            partitions = self._partitions_of(topic)
            first = self._policy.row(schema, topic, partitions, now.steady_ms, now.wall_ms, rows=one.rows)
            known = self._sent.get((topic, schema.schema, schema.table))
            if first is not None or known is None or known.key != schema.key:
                # To every partition, whatever the setting says of those that are sent again: a row must find its schema.
                due.append(BootstrapDue(Bootstrap(now.wall_ms, schema), topic, range(partitions)))
                self._sent[topic, schema.schema, schema.table] = schema
        return due

    def statement(self, message: Ddl, topic: str, now: Now) -> None:
        """Note a DDL that was sent to every partition of ``topic``."""
        self._policy.ddl(message, now.steady_ms)
        schema = message.table_schema
        if schema is not None:
            self._sent[topic, schema.schema, schema.table] = schema

    def again(self, now: Now) -> list[BootstrapDue]:
        """Return what is due by time or by number of rows. It looks every 5 seconds, as TiCDC does."""
        return self._policy.tick(now.steady_ms, now.wall_ms)
