"""The demo's application: a process of its own that runs real transactions and knows nothing of Headrace.

It moves money between accounts, records each transfer, and writes and deletes notes. Every row carries a ``revision`` that
the application raises by one at each change of the row, so that a reader can tell what is missing, doubled or out of
order. Some transactions roll back. After each commit it writes the transfer's id and the wall clock to a file.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

ACCOUNTS: Final = 40
OPENING_BALANCE: Final = 1_000
TOTAL: Final = ACCOUNTS * OPENING_BALANCE
"""Sum of all balances after every transaction: money moves, none is made or lost."""

TABLES: Final = ("accounts", "transfers", "notes")

AFTERWARDS: Final = "written after the mistake"
"""Title of a note."""

SCHEMA: Final = """
PRAGMA journal_mode = WAL;
CREATE TABLE accounts (
    id INTEGER PRIMARY KEY, owner TEXT NOT NULL, balance INTEGER NOT NULL, revision INTEGER NOT NULL
);
CREATE TABLE transfers (
    id INTEGER PRIMARY KEY, source INTEGER NOT NULL, target INTEGER NOT NULL, amount INTEGER NOT NULL,
    rate REAL NOT NULL, revision INTEGER NOT NULL
);
CREATE TABLE notes (
    title TEXT PRIMARY KEY NOT NULL, body TEXT, scan BLOB, score REAL, revision INTEGER NOT NULL
);
"""


def create(path: Path) -> None:
    """Make the application's database with its opening rows (they are there before Headrace is attached)."""
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.executescript(SCHEMA)
        database.execute("BEGIN")
        database.executemany(
            "INSERT INTO accounts VALUES (?, ?, ?, 1)",
            [(number, f"owner {number}", OPENING_BALANCE) for number in range(1, ACCOUNTS + 1)],
        )
        database.execute("INSERT INTO notes VALUES ('welcome', 'äöü ☃ \"quoted\"', x'00ff10', 0.1, 1)")
        database.execute("COMMIT")
    finally:
        database.close()


def spoil(path: Path) -> None:
    """Make the mistake that everybody makes once, an UPDATE without its WHERE; then go on, as nobody has noticed."""
    database = sqlite3.connect(path, isolation_level=None, timeout=30.0)
    try:
        database.execute("UPDATE accounts SET balance = 0, revision = revision + 1")
        database.execute("INSERT INTO notes VALUES (?, NULL, NULL, NULL, 1)", (AFTERWARDS,))
    finally:
        database.close()


class Application:
    """Runs transactions on its own connection; ``committed`` is called after each commit with the transfer's id."""

    def __init__(self, path: Path, seed: int, committed: Callable[[int], None]) -> None:
        self._database = sqlite3.connect(path, isolation_level=None, timeout=30.0)
        self._rng = random.Random(seed)  # a workload that can be repeated, nothing secret
        self._committed = committed
        self._transfer = 0
        self._notes = 0

    def step(self) -> None:
        """Run one transaction: a transfer, often with work on the notes; about one in ten rolls back."""
        rng, database = self._rng, self._database
        self._transfer += 1
        source, target = rng.sample(range(1, ACCOUNTS + 1), 2)
        amount = rng.randrange(1, 50)
        database.execute("BEGIN IMMEDIATE")
        for account, change in ((source, -amount), (target, amount)):
            database.execute(
                "UPDATE accounts SET balance = balance + ?, revision = revision + 1 WHERE id = ?",
                (change, account),
            )
        database.execute(
            "INSERT INTO transfers VALUES (?, ?, ?, ?, ?, 1)",
            (self._transfer, source, target, amount, rng.random()),
        )
        if rng.random() < 0.4:
            self._touch_notes()
        if rng.random() < 0.1:
            database.execute("ROLLBACK")
            return
        database.execute("COMMIT")
        self._committed(self._transfer)

    def _touch_notes(self) -> None:
        rng, database = self._rng, self._database
        self._notes += 1
        title = f"note {self._notes:05d} é"
        database.execute(
            "INSERT INTO notes VALUES (?, ?, ?, ?, 1)",
            (
                title,
                rng.choice([None, "", "text\nlines", "{}"]),
                rng.randbytes(rng.randrange(12)),
                rng.gauss(0, 1e6),
            ),
        )
        if rng.random() < 0.5:
            database.execute(
                "UPDATE notes SET score = score / 3, revision = revision + 1 WHERE title = ?", (title,)
            )
        if rng.random() < 0.3:
            database.execute(
                "DELETE FROM notes WHERE title = (SELECT title FROM notes ORDER BY title LIMIT 1 OFFSET ?)",
                (rng.randrange(1, 4),),
            )

    def close(self) -> None:
        """Close the connection."""
        self._database.close()


def main(arguments: list[str]) -> None:
    """Run ``DATABASE COMMITS_FILE SECONDS PER_SECOND SEED``: steps at an even pace for that long."""
    database, commits, seconds, per_second, seed = arguments
    with Path(commits).open("a", encoding="ascii") as file:
        application = Application(
            Path(database), int(seed), lambda transfer: print(transfer, time.time_ns(), file=file, flush=True)
        )
        try:
            start, step = time.monotonic(), 0
            while (now := time.monotonic() - start) < float(seconds):
                if now * float(per_second) >= step:
                    application.step()
                    step += 1
                else:
                    time.sleep(0.0005)
        finally:
            application.close()


if __name__ == "__main__":
    main(sys.argv[1:])
