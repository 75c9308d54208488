"""A real server's binlog, read from its files, for tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from headrace.capture.binlog.decode import Decoder
from headrace.capture.binlog.event import (
    Begin,
    Commit,
    Event,
    Place,
    RowsChanged,
    Statement,
    TableMap,
    TableMapped,
)
from headrace.capture.binlog.rows import Row, RowDecoder
from headrace.capture.mariadb.connection import connect
from headrace.capture.mariadb.server import read_collations, read_server
from headrace.runtime.dsn import parse_dsn
from tests.mariadb import Database

_EVENTS_AT = 4


class StoredTransaction(NamedTuple):
    """A transaction that was committed: where it ends, and the rows of one table that it changed."""

    place: Place
    rows: list[Row]


def stored_events(database: Database) -> Iterator[tuple[str, Event]]:
    """All events since the database was made, each with the name of its file; and what each of these files begins with."""
    with closing(connect(parse_dsn(database.dsn))) as session:
        collations = read_collations(session, read_server(session))
    charsets = {number: collation.charset for number, collation in collations.items()}
    created, is_there = f"CREATE DATABASE `{database.name}`".encode(), False
    for path in database.server.binlogs():
        decoder = Decoder(charsets)
        data, at = path.read_bytes(), _EVENTS_AT
        since = 0 if is_there else data.find(created)
        while since >= 0 and at < len(data):
            size = int.from_bytes(data[at + 9 : at + 13], "little")
            if at == _EVENTS_AT or at + size > since:
                yield path.name, decoder.decode(data[at : at + size])
            at += size
        is_there = is_there or since >= 0


def stored_transactions(
    database: Database, table: str, forms: Mapping[int, str] | None = None, skip: tuple[int, ...] = ()
) -> Iterator[StoredTransaction]:
    """All transactions, with their rows of ``table``; ``forms`` and ``skip`` are :class:`RowDecoder`'s."""
    rows: list[Row] = []
    maps: dict[int, TableMap] = {}
    decoders: dict[bytes, RowDecoder] = {}
    for file, event in stored_events(database):
        match event:
            case Begin(standalone=False):
                rows = []
            case TableMapped(table=shape):
                maps[shape.table_id] = shape
            case RowsChanged(table_id=number):
                shape = maps[number]
                if (shape.database, shape.table) == (database.name, table):
                    decoder = decoders.setdefault(shape.identity, RowDecoder(shape, forms, skip))
                    rows += decoder.rows(event)
            case Commit() | Statement():
                yield StoredTransaction(Place(file, event.end), rows)
