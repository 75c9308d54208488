"""Schemas of a feed's tables by version, as the server keeps them: fetched once in each process, since they never change.

Called on workers, for rows whose place or form depends on their columns, and on the driver, for BOOTSTRAP messages.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from headrace.errors import SchemaNotFound, SimpleInvalid, SimpleSchemaMissing
from headrace.pipeline.connection import Connection, Endpoint
from headrace.simple import json_codec
from headrace.simple.message import Bootstrap
from headrace.simple.schema import TableSchema

KEPT_MAX: Final = 4_096
"""Schemas kept in one process."""


class FeedSchemas(NamedTuple):
    """The schemas of one feed's history. Small, and fit to be pickled to workers."""

    endpoint: Endpoint
    feed: str
    incarnation: str

    def find(self, database: str, table: str, version: int) -> TableSchema:
        """Return the schema of ``version``. SimpleSchemaMissing, naming it, if the feed never had it.

        The schema is another's if the server's entry does not say what its key says: SimpleInvalid.
        """
        key = (self, database, table, version)
        found = _kept.get(key)
        if found is None:
            found = _kept[key] = self._fetched(database, table, version)
            if len(_kept) > KEPT_MAX:
                _kept.popitem(last=False)
        return found

    def _fetched(self, database: str, table: str, version: int) -> TableSchema:
        try:
            with Connection(self.endpoint) as server:
                data = server.schema(self.feed, database, table, version)
        except SchemaNotFound:
            raise SimpleSchemaMissing(
                f"the feed {self.feed} has rows of {database}.{table} version {version}, and no such schema",
                hint="This feed was not written by `headrace capture`, or its schema entries are damaged.",
            ) from None
        message = json_codec.decode(data)
        if not isinstance(message, Bootstrap) or message.table_schema.key != (database, table, version):
            raise SimpleInvalid(
                f"the feed {self.feed} has a schema entry of {database}.{table} version {version} that says another"
            )
        return message.table_schema


_kept: OrderedDict[tuple[FeedSchemas, str, str, int], TableSchema] = OrderedDict()
