"""The document of ``GET /feeds/{id}/schemas``: which schemas of tables a feed has."""

from __future__ import annotations

from headrace.wire.documents import Answer


class SchemaPlace(Answer):
    """The newest schema of one table, and the entry that it stands in: that may be dropped already, the schema is not."""

    database: str
    table: str
    version: int
    sequence_id: int
    lsn: str


class SchemaList(Answer):
    """The newest schema of each table, in the order of their sequence ids."""

    change_feed_id: str
    incarnation: str
    schemas: list[SchemaPlace]
