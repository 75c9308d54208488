"""Binlog files for tests: their events, whole or as bytes, and their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace.capture.binlog.decode import Decoder
from headrace.capture.binlog.event import Event, RowsChanged, TableMap, TableMapped
from headrace.capture.binlog.rows import Row, RowDecoder
from tests.mariadb import Server

MAGIC = b"\xfebin"


def charsets_of(server: Server) -> dict[int, str]:
    """The id of each collation of the server -> the name of its character set."""
    rows = server.sql(
        "SELECT id, character_set_name FROM information_schema.collation_character_set_applicability"
    )
    return {number: charset for number, charset in rows if number is not None}


def split_events(data: bytes) -> Iterator[bytes]:
    """The events of a binlog file, as bytes."""
    assert data.startswith(MAGIC)
    at = len(MAGIC)
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        yield data[at : at + size]
        at += size


def read_events(file: Path, charsets: Mapping[int, str]) -> list[Event]:
    """The events of a binlog file; each ends where the next one begins."""
    decoder, at = Decoder(charsets), len(MAGIC)
    events = []
    for event in split_events(file.read_bytes()):
        at += len(event)
        events.append(decoder.decode(event))
        assert events[-1].end == at
    return events


def table_maps(events: list[Event]) -> dict[str, TableMap]:
    """The last shape of each table, by the table's name."""
    return {event.table.table: event.table for event in events if isinstance(event, TableMapped)}


def read_rows(events: list[Event], table: str, forms: Mapping[int, str] | None = None) -> list[Row]:
    """The rows of one table, in the order of their changes."""
    shapes = {event.table.table_id: event.table for event in events if isinstance(event, TableMapped)}
    rows: list[Row] = []
    for event in events:
        if isinstance(event, RowsChanged) and shapes[event.table_id].table == table:
            rows += RowDecoder(shapes[event.table_id], forms).rows(event)
    return rows
