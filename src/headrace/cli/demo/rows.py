"""Rows of the demo's tables in one form, wherever they come from: source, feed, listener or Spark."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from headrace.cli.demo.application import TABLES
from headrace.cli.demo.verdict import Key, Row, Step
from headrace.wire.documents import EntryOut

PRIMARY_KEYS = {"accounts": "id", "transfers": "id", "notes": "title"}


def source_rows(path: Path) -> dict[Key, Row]:
    """Return all rows of the application's database, by table and key; binary values as base64 text."""
    found: dict[Key, Row] = {}
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        for table in TABLES:
            found |= keyed(table, map(dict, database.execute(f"SELECT * FROM {table}")))  # noqa: S608  # our own table names
    return found


def keyed(table: str, rows: Iterable[Mapping[str, Any]]) -> dict[Key, Row]:
    """Return rows of one table by their key, in the one form."""
    return {(table, str(row[PRIMARY_KEYS[table]])): {name: _plain(row[name]) for name in row} for row in rows}


def steps(entries: Iterable[EntryOut]) -> Iterator[Step]:
    """Turn a reader's entries into steps; control entries are passed over."""
    for entry in entries:
        if not isinstance(entry.control, str) and isinstance(entry.table, list):
            yield _step(entry, str(entry.table[-1]))


def _step(entry: EntryOut, table: str) -> Step:
    row = json.loads(bytes(entry.changes))  # type: ignore[arg-type]  # a data entry of an attached table has changes
    return Step(
        sequence_id=entry.sequence_id,
        table=table,
        key=str(row[PRIMARY_KEYS[table]]),
        row=row,
        deleted=entry.op == "delete",
        copied=entry.copy is True,
        ends_transaction=entry.tx_last is True,
    )


def _plain(value: object) -> object:
    return base64.b64encode(value).decode() if isinstance(value, bytes | bytearray) else value
