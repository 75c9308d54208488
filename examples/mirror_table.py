"""Mirrors a feed into a table of PostgreSQL, each change exactly once, and begins from the publisher's snapshot if it must.

    python examples/mirror_table.py --feed shop --dsn postgresql://app@127.0.0.1/app

The bookmark commits in the transaction that writes the rows. Kill this program at any moment and start it again: what was
committed is there with its bookmark, and what was not comes again. ``--once`` ends at the head.
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import closing
from typing import Any

import psycopg

from headrace.client.snapshot_body import SnapshotRow
from headrace.listener import (
    Batch,
    Change,
    Listener,
    ListenerSettings,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotRows,
    apply_patch,
)
from headrace.listener.parts import Delivery
from headrace.listener.postgres import PostgresBookmarks
from headrace.wire.documents import EntryOut

TABLES = """
CREATE TABLE IF NOT EXISTS mirror (key text PRIMARY KEY, of_table text[] NOT NULL, state text NOT NULL);
CREATE TABLE IF NOT EXISTS mirror_coming (key text PRIMARY KEY, of_table text[] NOT NULL, state text NOT NULL);
CREATE TABLE IF NOT EXISTS mirror_count (changes bigint NOT NULL)"""
PUT = """INSERT INTO {} VALUES (%s, %s, %s)
ON CONFLICT (key) DO UPDATE SET of_table = excluded.of_table, state = excluded.state"""


def apply(app: psycopg.Connection[Any], delivery: Delivery) -> None:
    """Write what came, in one transaction with its bookmark."""
    with app.transaction():
        match delivery:
            case Batch(changes=changes):
                for change in changes:
                    apply_change(app, change)
                app.execute("UPDATE mirror_count SET changes = changes + %s", (len(changes),))
                delivery.move_in(app)
            case SnapshotBegin():
                app.execute("TRUNCATE mirror_coming")
            case SnapshotRows(rows=rows):
                for row in rows:
                    if not row.is_control:
                        app.execute(
                            PUT.format("mirror_coming"), (row.key, table_of(row), bytes(row.changes).decode())
                        )
            case SnapshotEnd():
                app.execute("TRUNCATE mirror")
                app.execute("INSERT INTO mirror SELECT * FROM mirror_coming")
                delivery.move_in(app)


def apply_change(app: psycopg.Connection[Any], change: Change) -> None:
    """Write one change; of the control entries only TRUNCATE concerns rows."""
    if change.entry.control == "truncate":
        table = change.state()
        app.execute("DELETE FROM mirror WHERE of_table = %s", ([table["database"], table["table"]],))
    elif change.is_control:
        return
    elif change.op == "delete":
        app.execute("DELETE FROM mirror WHERE key = %s", (change.key,))
    else:
        text = change.text()  # as it came: numbers keep their digits
        if change.op == "patch":
            row = app.execute("SELECT state FROM mirror WHERE key = %s", (change.key,)).fetchone()
            text = apply_patch(row[0].encode() if row else None, text)
        app.execute(PUT.format("mirror"), (change.key, table_of(change.entry), text.decode()))


def table_of(row: EntryOut | SnapshotRow) -> list[str]:
    """The table that a row belongs to; empty for an object of ``Outbox.add``."""
    return list(row.table) if isinstance(row.table, list) else []


async def mirror(server: str, feed: str, dsn: str, listener_id: str, *, once: bool) -> None:
    """Follow the feed until told to stop."""
    settings = ListenerSettings(drain=once)
    with closing(PostgresBookmarks(dsn)) as bookmarks, psycopg.connect(dsn, autocommit=True) as app:
        app.execute(TABLES)
        app.execute("INSERT INTO mirror_count SELECT 0 WHERE NOT EXISTS (SELECT FROM mirror_count)")
        async with Listener(server, feed, listener_id, bookmarks, settings=settings) as listener:
            async for delivery in listener.deliveries():
                await asyncio.to_thread(apply, app, delivery)
                if isinstance(delivery, Batch):
                    print(f"mirrored up to {delivery.place.sequence_id}", flush=True)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", default="http://127.0.0.1:8470")
    parser.add_argument("--feed", default="shop")
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--listener-id", default="mirror")
    parser.add_argument("--once", action="store_true")
    given = parser.parse_args()
    asyncio.run(mirror(given.server, given.feed, given.dsn, given.listener_id, once=given.once))


if __name__ == "__main__":
    main()
