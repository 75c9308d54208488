"""A consumer that knows wal2json's format version 2 alone, and rebuilds tables from its lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Tables = dict[str, dict[tuple[Any, ...], dict[str, Any]]]


class Replica:
    """Tables by name, their rows by key; ``transactions``: how many changes each transaction had."""

    def __init__(self) -> None:
        self.tables: Tables = {}
        self.transactions: list[int] = []
        self._open: int | None = None

    def apply(self, lines: Iterable[bytes]) -> None:
        """Take the lines of one run of a receiver: between B and C is one transaction, outside of them is nothing.

        A run that was killed may end anywhere. The next one repeats whole transactions, and nothing of them is lost by that.
        """
        self._open = None
        for line in lines:
            record = json.loads(line)
            match record["action"]:
                case "B":
                    assert self._open is None, "a transaction within a transaction"
                    self._open = 0
                case "C":
                    assert self._open is not None, "an end without a beginning"
                    self.transactions.append(self._open)
                    self._open = None
                case action:
                    assert self._open is not None, "a change outside a transaction"
                    self._open += 1
                    self._change(action, record)

    def _change(self, action: str, record: dict[str, Any]) -> None:
        rows = self.tables.setdefault(f"{record['schema']}.{record['table']}", {})
        if action == "T":
            rows.clear()
            return
        columns = {one["name"]: one["value"] for one in record.get("columns", ())}
        key = tuple(one["value"] for one in record.get("identity", ()))
        if action in {"U", "D"}:
            rows.pop(key, None)
        if action in {"I", "U"}:
            names = [one["name"] for one in record.get("pk", record.get("identity", ()))]
            rows[tuple(columns[name] for name in names)] = columns
