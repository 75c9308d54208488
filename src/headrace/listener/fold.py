"""The state that a feed's changes come to: put, delete, patches merged (RFC 7396); for consumers that keep state. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.client.snapshot_body import SnapshotRow
from headrace.listener.change import Change
from headrace.listener.parts import SnapshotBegin, SnapshotPart, SnapshotRows
from headrace.wire.merge_patch import apply_patch


class Fold:
    """The rows of a feed by key, each as JSON text: give it each change in order, and each part of a snapshot.

    A snapshot takes the place of all rows in one step, when its end comes. A change that is given twice in a row does no
    harm. Feeds of the Simple Protocol fold by its rules instead.
    """

    def __init__(self) -> None:
        self._rows: dict[str, tuple[bytes, tuple[str, ...]]] = {}
        self._coming: dict[str, tuple[bytes, tuple[str, ...]]] | None = None

    def rows(self) -> Mapping[str, bytes]:
        """Return the rows as they are now: key → JSON text."""
        return {key: text for key, (text, _) in self._rows.items()}

    def change(self, change: Change) -> None:
        """Apply one change. ValueError for one whose key or value is no text."""
        entry = change.entry
        if isinstance(entry.control, str):
            if entry.control == "truncate":
                self._truncate(change.state())
            return
        if not isinstance(entry.key, str) or not isinstance(entry.changes, msgspec.Raw):
            raise ValueError(f"entry {entry.sequence_id} is no row of JSON under a key of text")
        table = tuple(entry.table) if isinstance(entry.table, list) else ()
        match change.op:
            case "delete":
                self._rows.pop(entry.key, None)
            case "patch":
                known = self._rows.get(entry.key)
                merged = apply_patch(known[0] if known is not None else None, bytes(entry.changes))
                self._rows[entry.key] = (merged, table or (known[1] if known is not None else ()))
            case "put":
                self._rows[entry.key] = (bytes(entry.changes), table)
            case other:
                raise ValueError(f"entry {entry.sequence_id} has the op {other}, which no fold knows")

    def snapshot(self, part: SnapshotPart) -> None:
        """Take a part of a snapshot; the rows change only with its end."""
        if isinstance(part, SnapshotBegin):
            self._coming = {}
            return
        if self._coming is None:
            raise ValueError("a snapshot begins with its begin")
        if isinstance(part, SnapshotRows):
            for row in part.rows:
                if not row.is_control:
                    self._coming[row.key] = (bytes(row.changes), _table_of(row))
            return
        self._rows, self._coming = self._coming, None

    def _truncate(self, said: Any) -> None:
        table = (said["database"], said["table"])
        self._rows = {key: row for key, row in self._rows.items() if row[1] != table}


def _table_of(row: SnapshotRow) -> tuple[str, ...]:
    return tuple(row.table) if isinstance(row.table, list) else ()
