"""A table that is altered only in ways that can always be followed, and what tells that its copy followed: nothing else.

``followed = FollowedTable(database); followed.make(); …; followed.change(); …; followed.check(folder)``. It is read from its
Delta table without Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headrace.pipeline.tables.ledger import PublishedTable, read_published, read_tables_file
from headrace.pipeline.tables.schemas import OWN_PREFIX
from headrace.pipeline.tables.snapshot_files import Snapshot, rows_of, snapshot_at
from tests.mariadb import Database

TABLE: Final = "followed"
_MADE: Final = (
    "(id INT PRIMARY KEY, amount INT, label VARCHAR(10), spare VARCHAR(10)) CHARSET utf8mb4",
    "SELECT seq, seq * 3, CONCAT('n', seq), 'old' FROM seq_1_to_50",
)
CHANGES: Final = (
    ("ADD COLUMN note VARCHAR(20)", "note = 'given'"),
    ("MODIFY amount BIGINT", "amount = 70000000000 + id"),
    ("RENAME COLUMN note TO remark", "remark = 'é'"),
    ("ADD COLUMN rate DECIMAL(5,2) NOT NULL DEFAULT 1.5", "rate = 2.25"),
    ("DROP COLUMN spare", "label = 'late'"),
    ("ADD COLUMN note INT FIRST", "note = id"),
)
"""Statement, and what the rows that are written behind it are given. The last name comes back for another column."""
TYPES: Final = {
    "note": "integer",
    "id": "integer",
    "amount": "long",
    "label": "string",
    "remark": "string",
    "rate": "decimal(5,2)",
}
"""The columns behind all of them, as Delta has them."""


class FollowedTable:
    """``changed``: so many of :data:`CHANGES` were made."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.name = f"{database.name}.{TABLE}"
        self.changed = 0
        self._path = ""

    def make(self) -> None:
        """Make the table, with rows."""
        definition, rows = _MADE
        self._database.sql(f"CREATE TABLE {TABLE} {definition}")
        self._database.sql(f"INSERT INTO {TABLE} {rows}")

    def is_published(self, to: Path) -> bool:
        """Whether its rows are in the tables' folder ``to``: what is altered before may be copied as it is by then."""
        found = self._published(to)
        if found is not None and not self._path:
            self._path = found.path
        return found is not None

    def change(self) -> None:
        """Make the next change, then change an old row and add one; nothing if there is none left."""
        if self.changed == len(CHANGES):
            return
        statement, given = CHANGES[self.changed]
        self.changed += 1
        self._database.sql(f"ALTER TABLE {TABLE} {statement}")
        self._database.sql(f"UPDATE {TABLE} SET {given} WHERE id = {self.changed}")
        self._database.sql(f"INSERT INTO {TABLE} SET id = {100 + self.changed}, {given}")

    def check(self, to: Path) -> None:
        """The Delta table that was there before the first change has followed all of them: columns, types and rows.

        It was never stopped: nothing but a new copy brings a stopped table back, and none was asked for.
        """
        assert self.changed == len(CHANGES)
        known = read_tables_file(to)
        stops = (
            {".".join(one.table): one.stopped for one in (known.tables or ())} if known is not None else {}
        )
        assert stops[self.name] is None, stops[self.name]
        published = self._published(to)
        assert published is not None
        assert published.path == self._path, "it was begun anew"
        snapshot = snapshot_at(to / published.path, published.version)
        fields = [one for one in snapshot.fields if not one.name.startswith(OWN_PREFIX)]
        assert {one.name: one.type for one in fields} == TYPES
        wanted = self._database.sql(f"SELECT {', '.join(TYPES)} FROM {TABLE} ORDER BY id")
        assert _rows(snapshot, list(TYPES)) == wanted

    def _published(self, to: Path) -> PublishedTable | None:
        moment = read_published(to)
        tables = moment.tables if moment is not None else []
        return next((one for one in tables if ".".join(one.table) == self.name), None)


def _rows(snapshot: Snapshot, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """The rows of these columns by ``id``."""
    places = {one.name: one for one in snapshot.fields}
    fields = [places[name] for name in columns]
    kinds = {
        "integer": pa.int32(),
        "long": pa.int64(),
        "string": pa.string(),
        "decimal(5,2)": pa.decimal128(5, 2),
    }
    schema = pa.schema([(one.name, kinds[one.type]) for one in fields])
    rows = [row for batch in rows_of(snapshot.files, fields, schema) for row in batch.to_pylist()]
    return [tuple(row[name] for name in columns) for row in sorted(rows, key=lambda one: int(one["id"]))]
