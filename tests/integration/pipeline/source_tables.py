"""Tables in memory whose every change goes to a feed as an attached table's would; the truth that tables are held to."""

from __future__ import annotations

import itertools
import json
from typing import Any

from tests.servers import Feed

Row = dict[str, Any]
Table = str | tuple[str, str]
"""A table's name: (schema, table), or the table alone in the schema ``main``."""


def parts(table: Table) -> list[str]:
    """The ``table`` of an entry."""
    return ["main", table] if isinstance(table, str) else list(table)


def column(name: str, kind: str, *, nullable: bool = True, was: str = "") -> Row:
    """A column as a schema entry has it; ``was``: what it was called in the version before."""
    renamed = {"renamed-from": was} if was else {}
    return {"name": name, "type": kind, "source-type": kind.upper(), "nullable": nullable, **renamed}


ID = column("id", "int64", nullable=False)


class SourceTables:
    """Keeps rows by table and key; :meth:`commit` posts what was done since the last one as one transaction."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.rows: dict[Table, dict[Any, Row]] = {}
        self.plain: dict[str, Any] = {}
        self._versions: dict[Table, int] = {}
        self._copies: dict[Table, int] = {}
        self._pending: list[Row] = []
        self._transactions = itertools.count(1)

    def schema(self, table: Table, *columns: Row) -> None:
        """Announce a table, or a newer version of its columns."""
        version = self._versions[table] = self._versions.get(table, 0) + 1
        self.rows.setdefault(table, {})
        database, name = parts(table)
        self._pending.append(
            {
                "control": "schema",
                "key": f"\0schema/{database}/{name}/{version}",
                "table": [database, name],
                "changes": {
                    "database": database,
                    "table": name,
                    "version": version,
                    "columns": list(columns),
                    "key": ["id"],
                },
            }
        )

    def put(self, table: Table, row: Row, *, shown: Row | None = None, copy: bool = False) -> None:
        """Insert or replace a row. ``shown``: the members that a table shows otherwise than they stand in JSON."""
        self.rows[table][row["id"]] = row | (shown or {})
        self._entry(table, row["id"], row, "put", **({"copy": True} if copy else {}))

    def patch(self, table: Table, key: Any, changes: Row) -> None:
        """Change some members of a row (none of them an object: those are merged, see the unit tests)."""
        current = self.rows[table].setdefault(key, {"id": key})
        for name, value in changes.items():
            current[name] = value
        self._entry(table, key, changes, "patch")

    def delete(self, table: Table, key: Any) -> None:
        """Delete a row."""
        self._entry(table, key, self.rows[table].pop(key), "delete")

    def truncate(self, table: Table) -> None:
        """Clear a table."""
        self.rows[table].clear()
        self.control("truncate", table)

    def object(self, op: str, key: str, changes: Row) -> None:
        """Change an object that belongs to no table; patches must not go deeper than one level."""
        if op == "delete":
            self.plain.pop(key)
        elif op == "patch":
            merged = self.plain.get(key, {}) | changes
            self.plain[key] = {name: value for name, value in merged.items() if value is not None}
        else:
            self.plain[key] = changes
        self._pending.append({"op": op, "key": key, "changes": changes})

    def control(self, name: str, table: Table, **members: Any) -> None:
        """A control entry about a table: a truncate, or the begin or end of its newest copy."""
        database, own = parts(table)
        if name == "copy-begin":
            self._copies[table] = self._copies.get(table, 0) + 1
        changes = {"database": database, "table": own, "version": self._versions[table], **members}
        number = self._copies.get(table, 1) if name.startswith("copy") else 1
        self._pending.append(
            {
                "control": name,
                "key": f"\0{name}/{database}/{own}/{number}",
                "table": [database, own],
                "changes": changes,
            }
        )

    def commit(self, *, last: bool = True, tx: str | None = None) -> int:
        """Post everything since the last commit as one transaction, or as a part of one; returns its last sequence id."""
        name = tx or f"tx-{next(self._transactions)}"
        entries = [
            {**entry, "change-feed-id": self.feed.name, "tx": name, "tx-index": index}
            for index, entry in enumerate(self._pending)
        ]
        if last:
            entries[-1]["tx-last"] = True
        self._pending = []
        answer = self.feed.post(*entries)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["last-sequence-id"])

    def _entry(self, table: Table, key: Any, changes: Row, op: str, **members: Any) -> None:
        self._pending.append(
            {
                "op": op,
                "key": json.dumps([*parts(table), key]),
                "changes": changes,
                "table": parts(table),
                **members,
            }
        )
