"""The operator's own query for the objects that no attached table holds: what it reads, and its rows as lines.

All is read as the text that the database gives: numbers keep their digits. The query is a cursor from the start, so what was
planned, locked and compared is what is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import msgspec
import psycopg
from psycopg.types.string import TextLoader

from headrace.errors import SnapshotUnavailable
from headrace.publisher.postgres.connection import Source
from headrace.publisher.state import STATE_HINT, TWO_COLUMNS, object_line

FETCH_ROWS: Final = 200
"""Rows fetched at a time: so many large ones may be in memory at once."""

_CURSOR: Final = "headrace_objects"
_RELATIONS: Final = """
SELECT relation::bigint, relation::regclass::text, pg_relation_filenode(relation)::bigint FROM pg_locks
WHERE pid = pg_backend_pid() AND locktype = 'relation' AND relation >= 16384
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
_TYPES: Final = "SELECT oid::bigint, typname, typcategory::text FROM pg_type WHERE oid = ANY(%s::oid[])"
_JSON: Final = ("json", "jsonb")
_TEXT_CATEGORY: Final = "S"


class Relation(NamedTuple):
    """A relation as it is now, whatever the transaction's snapshot sees: a rewrite gives it another file."""

    oid: int
    name: str
    file: int | None


def read_relations(connection: Source) -> set[Relation]:
    """Return the relations that the transaction has locked, those of PostgreSQL itself left out."""
    return {Relation(*row) for row in connection.execute(_RELATIONS)}


class Query:
    """One query of two columns, key and changes. Use: :meth:`open` and :meth:`close` at will, then :meth:`lines` once."""

    def __init__(self, query: str, feed: str) -> None:
        self._query = query
        self._feed = feed
        self._cursor: psycopg.ServerCursor[tuple[Any, ...]] | None = None
        self._compacts = False

    def open(self, connection: Source) -> None:
        """Plan the query in the caller's transaction, which locks what it reads; SnapshotUnavailable if it can't be used."""
        with self._errors():
            cursor = self._cursor = connection.cursor(name=_CURSOR)
            cursor.itersize = FETCH_ROWS
            cursor.execute(self._query.encode())
            if cursor.description is None or len(cursor.description) != 2:
                raise ValueError(TWO_COLUMNS)
            self._check_types(connection, cursor)

    def close(self) -> None:
        """Forget the plan; does nothing the second time."""
        if self._cursor is not None:
            with suppress(psycopg.Error):  # its transaction is over, or the database is away
                self._cursor.close()
            self._cursor = None

    def lines(self) -> Iterator[bytes]:
        """Give the objects as lines of a snapshot. Raises SnapshotUnavailable."""
        assert self._cursor is not None  # noqa: S101  # our caller has opened it
        with self._errors():
            for key, changes in self._cursor:
                # jsonb has no white space of its own: what its text has is the database's.
                text = msgspec.json.format(changes, indent=-1) if self._compacts and changes else changes
                yield object_line(key, text)
            self.close()

    def _check_types(self, connection: Source, cursor: psycopg.ServerCursor[tuple[Any, ...]]) -> None:
        """Refuse what is no text and no JSON by the column's name; read all else as the text that it is."""
        columns = cursor.description or []
        oids = [column.type_code for column in columns]
        types = {oid: (name, kind) for oid, name, kind in connection.execute(_TYPES, (oids,))}
        for column, others in zip(columns, (("uuid",), _JSON), strict=True):
            name, kind = types[column.type_code]
            if kind != _TEXT_CATEGORY and name not in others and name != "unknown":
                raise ValueError(
                    f"its column {column.name} is of type {name}: it must be text or {' or '.join(others)}"
                )
        for oid in oids:
            cursor.adapters.register_loader(oid, TextLoader)
        self._compacts = types[oids[1]][0] == "jsonb"

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.ProgrammingError, psycopg.DataError, ValueError) as error:
            raise SnapshotUnavailable(
                f"snapshot-sql of {self._feed}: {error}", hint=STATE_HINT.format(feed=self._feed)
            ) from None
