"""An application with one attached table in SQLite, for scenarios: it writes, and says what its table is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.attaching import attach_tables
from headrace.runtime.dsn import parse_dsn
from tests.unit.publisher.outboxes import application


class Shop:
    """The table ``item``, attached to a feed."""

    def __init__(self, path: Path, feed: str) -> None:
        self.path = path
        self.dsn = f"sqlite:///{path}"
        self.written = 0
        with application(path) as app:
            app.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
        attach_tables(parse_dsn(self.dsn), AttachRequest(feed=feed, tables=("item",)))

    def write(self, rows: int) -> None:
        """Write so many more rows, one transaction each; every third one replaces row 1, every seventh deletes one."""
        with application(self.path) as app:
            app.execute("PRAGMA busy_timeout = 60000").close()
            for number in range(self.written + 1, self.written + rows + 1):
                row = 1 if number % 3 == 0 else number
                app.execute("INSERT OR REPLACE INTO item VALUES (?, ?)", (row, f"name {number}" * 5))
                if number % 7 == 0:
                    app.execute("DELETE FROM item WHERE id = ?", (number - 3,))
        self.written += rows

    def truth(self) -> dict[str, Any]:
        """The table as it is, by key."""
        with application(self.path) as app:
            rows = app.execute("SELECT id, name FROM item").fetchall()
        return {
            json.dumps(["main", "item", n], separators=(",", ":")): {"id": n, "name": name}
            for n, name in rows
        }

    def backlog(self) -> int:
        """Rows of the outbox that the agent has not posted."""
        with application(self.path) as app:
            ((count,),) = app.execute("SELECT count(*) FROM headrace_outbox WHERE NOT processed").fetchall()
        return int(count)


def fold(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The state that the lines of ``headrace listen`` add up to."""
    state: dict[str, Any] = {}
    for line in lines:
        if line.get("snapshot") == "begin":
            state = {}
        if "key" not in line or "control" in line:
            continue
        if line.get("op") == "delete":
            state.pop(line["key"], None)
        else:
            state[line["key"]] = line["changes"]
    return state
