"""The schemas of a log's tables, as outputs ask for them; the index that the server keeps anyway answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headrace.errors import SchemaNotFound
from headrace.log.log import Log
from headrace.log.metadata.contract import SchemaRow
from headrace.log.schemas.entries import SchemaName

ROWS_MAX: Final = 100
"""Schemas read at a time, values and all: entries are at most 1 MiB each."""
VERSIONS_MAX: Final = 1_000
"""How many versions of a table are asked for, from its newest downwards, until one stands before a row."""


class IndexedSchemas:
    """The schemas of one log. Blocks: used from worker threads."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def newest(self, feed: str, database: str, table: str, below: int) -> bytes | None:
        """Return the last schema of a table below a sequence id; of an attached table, whose versions grow by 1.

        Raises StoreUnavailable, JournalCorrupt and MetadataCorrupt.
        """
        self._catch_up()
        row = next(
            (one for one in self._rows(feed) if (one.database_name, one.table_name) == (database, table)),
            None,
        )
        for _ in range(VERSIONS_MAX):
            if row is None or row.sequence_id < below:
                break
            row = self._version(feed, SchemaName(database, table, row.version - 1))
        return row.value if row is not None and row.sequence_id < below else None

    def version(self, feed: str, database: str, table: str, version: int) -> bytes | None:
        """Return the schema of a table that has this version; the errors of :meth:`newest`."""
        self._catch_up()
        row = self._version(feed, SchemaName(database, table, version))
        return row.value if row is not None else None

    def _version(self, feed: str, name: SchemaName) -> SchemaRow | None:
        try:
            return self._log.schemas.schema(feed, name)
        except SchemaNotFound:
            return None

    def _rows(self, feed: str) -> Iterator[SchemaRow]:
        after = -1
        while rows := self._log.schemas.newest(feed, after, ROWS_MAX):
            yield from rows
            after = rows[-1].sequence_id

    def _catch_up(self) -> None:
        """Let the index have everything that is durable now."""
        end = self._log.store.end()
        if self._log.schemas.position < end:
            self._log.schemas.read_up_to(end)
