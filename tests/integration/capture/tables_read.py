"""Readers of chunks of a real table, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

from headrace.capture.catalogue_schema import catalogue_forms, from_catalogue
from headrace.capture.ddl import TableName
from headrace.capture.mariadb.catalogue import read_table
from headrace.capture.mariadb.chunks import Chunk, ChunkReader, RawValues
from headrace.capture.mariadb.connection import Source, connect
from headrace.capture.position import RawKey
from headrace.runtime.dsn import parse_dsn
from tests.mariadb import Database


def chunk_reader(
    database: Database,
    table: str,
    delivered: Sequence[int] | None = None,
    *,
    before_snapshot: Callable[[], object] = lambda: None,
    **bounds: Any,
) -> ChunkReader:
    """A reader of the table as it is now.

    ``before_snapshot`` is called in its first chunk, when it holds the metadata lock and takes the snapshot next.
    """
    sessions: list[Source] = []

    def connected() -> Source:
        sessions.append(connect(parse_dsn(database.dsn)))
        if len(sessions) == 2:
            before_snapshot()
        return sessions[-1]

    with closing(connect(parse_dsn(database.dsn))) as session:
        found = read_table(session, TableName(database.name, table))
    assert found is not None
    return ChunkReader(connected, from_catalogue(found, 7, 9), catalogue_forms(found), delivered, **bounds)


def read_chunks(reader: ChunkReader, last: RawKey | None = None) -> Iterator[Chunk]:
    """Read all of the table that is behind ``last``, chunk by chunk."""
    while True:
        chunk = reader.read(last)
        assert isinstance(chunk, Chunk), chunk
        yield chunk
        if chunk.whole:
            return
        last = chunk.last_key


def read_rows(reader: ChunkReader) -> list[RawValues]:
    """Read the whole table."""
    with closing(reader):
        return [row for chunk in read_chunks(reader) for row in chunk.rows]
