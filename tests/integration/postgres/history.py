"""Reads a whole feed and holds it against the rules: nothing torn, nothing missing between two changes, money kept.

It needs the tables to be attached with ``--before``: each change then says what it changed. So one that is missing, doubled
or in the wrong place is found at the next change of that row, also while rows are still being copied.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec

from headrace.client.tls import NO_TLS

PAGE_ENTRIES = 5_000

BALANCES = {
    "pgbench_accounts": ("aid", "abalance"),
    "pgbench_tellers": ("tid", "tbalance"),
    "pgbench_branches": ("bid", "bbalance"),
}
"""Tables of pgbench whose balances have one sum after every transaction: key and balance column."""


class Entry(msgspec.Struct, rename="kebab"):
    """An entry as the feed gives it; rows as the bytes they are."""

    sequence_id: int
    changes: msgspec.Raw
    tx: str
    op: str = "put"
    key: str = ""
    before: msgspec.Raw = msgspec.Raw(b"")  # where there is none
    table: list[str] | None = None
    tx_last: bool = False
    copy: bool = False
    control: str | None = None


class _Page(msgspec.Struct, rename="kebab"):
    changes_list: list[Entry]


_PAGE = msgspec.json.Decoder(_Page)


def entries_of(url: str, feed: str) -> Iterator[Entry]:
    """Yield every entry of a feed, in order."""
    after = 0
    with httpx.Client(base_url=url, trust_env=False, timeout=120, verify=NO_TLS) as http:
        while True:
            params = {"beg-sequence-id": after + 1, "limit": PAGE_ENTRIES}
            answer = http.get(f"/feeds/{feed}/entries", params=params)
            answer.raise_for_status()
            page = _PAGE.decode(answer.content).changes_list
            if not page:
                return
            yield from page
            after = page[-1].sequence_id


class History:
    """The state of every row after the entries taken so far. :meth:`take` fails at the first entry that breaks a rule."""

    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}
        self.last = 0
        self.controls: Counter[str] = Counter()
        self.bank_transactions = 0
        self.copied: set[str] = set()
        self._tables: dict[str, str] = {}
        self._open: str | None = None
        self._closed: set[str] = set()
        self._sums = dict.fromkeys(BALANCES, 0)
        self._moved: list[tuple[str, int]] = []
        self._dropped: bytes | None = None

    def take(self, entry: Entry) -> None:
        """Apply the next entry."""
        where = f"entry {entry.sequence_id} ({entry.op} {entry.control or entry.key}, tx {entry.tx})"
        assert entry.sequence_id == self.last + 1, f"{where} follows {self.last}"
        self.last = entry.sequence_id
        assert self._open in {None, entry.tx}, f"{where} tears transaction {self._open}"
        assert entry.tx not in self._closed, f"{where}: its transaction was whole already"
        self._open = entry.tx
        if entry.control is not None:
            self._control(entry)
        else:
            assert entry.table is not None, f"{where} names no table"
            self._row(entry, entry.table[-1], where)
        if entry.tx_last:
            self._end(where)

    def finish(self) -> None:
        """Check that no transaction is left open."""
        assert self._open is None, f"transaction {self._open} never ends"

    def rows_of(self, table: str) -> list[Any]:
        """The rows of a table as the feed leaves them; numbers keep their digits as text."""
        return [
            json.loads(row, parse_float=str) for key, row in self.rows.items() if self._tables[key] == table
        ]

    def _control(self, entry: Entry) -> None:
        assert entry.control is not None
        self.controls[entry.control] += 1
        table = json.loads(bytes(entry.changes))["table"]
        if entry.control == "copy-end":
            self.copied.add(table)
        if entry.control == "truncate":
            for key in [key for key, its in self._tables.items() if its == table]:
                self.rows.pop(key, None)
                del self._tables[key]

    def _row(self, entry: Entry, table: str, where: str) -> None:
        known = self.rows.get(entry.key)
        row = bytes(entry.changes)
        before = bytes(entry.before) or None
        if entry.op == "delete":
            assert known in {None, row}, f"{where} deletes {row!r}, but the feed's last state is {known!r}"
        elif entry.copy:
            assert known in {None, row}, f"{where} copies {row!r}, but the feed's last state is {known!r}"
        elif before is None or before == self._dropped:
            assert known is None, f"{where} inserts a row that is there: {known!r}"
        else:
            assert known in {None, before}, (
                f"{where} changes {before!r}, but the feed's last state is {known!r}"
            )
        self._dropped = (
            row if entry.op == "delete" else None
        )  # an update of the key: the old row goes, the new one comes
        if table in BALANCES:
            self._bank(entry, table, known, before, where)
        if entry.op == "delete":
            self.rows.pop(entry.key, None)
            self._tables.pop(entry.key, None)
        else:
            self.rows[entry.key] = row
            self._tables[entry.key] = table

    def _bank(self, entry: Entry, table: str, known: bytes | None, before: bytes | None, where: str) -> None:
        balance = BALANCES[table][1]
        now = json.loads(bytes(entry.changes))[balance]
        self._sums[table] += now - (json.loads(known)[balance] if known is not None else 0)
        if not entry.copy:
            assert before is not None, f"{where} is no update, and pgbench does nothing else"
            self._moved.append((table, now - json.loads(before)[balance]))

    def _end(self, where: str) -> None:
        if self._moved:
            assert sorted(table for table, _ in self._moved) == sorted(BALANCES), (
                f"{where} ends {self._moved}"
            )
            assert len({amount for _, amount in self._moved}) == 1, f"{where} ends {self._moved}"
            self.bank_transactions += 1
            self._moved = []
        if self.copied >= set(BALANCES):
            assert len(set(self._sums.values())) == 1, f"after {where} the balances are {self._sums}"
        if self._open is not None:
            self._closed.add(self._open)
        self._open = None
