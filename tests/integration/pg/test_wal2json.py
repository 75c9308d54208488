"""``pg_recvlogical`` with the plugin ``wal2json`` on a feed of attached tables, from the commit to the last line."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.agents import AgentProcess, headrace
from tests.integration.pipeline.source_tables import ID, SourceTables
from tests.pg import WAIT_S, Receiver, create_slot, replicating, slot_row
from tests.servers import Feed, ServerProcess
from tests.waiting import wait_until
from tests.wal2json import Replica

FEED = "shop"


def test_attached_tables_are_rebuilt_from_the_records(own: ServerProcess, tmp_path: Path) -> None:
    """The receiver is killed in the middle, and goes on."""
    dsn = f"sqlite:///{tmp_path}/shop.db"
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as app:
        app.execute("PRAGMA journal_mode = WAL")
        app.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT, size INTEGER)")
        words = ["publisher", "attach", "--table", "orders", "--feed", FEED]
        headrace(words, HEADRACE_DSN=dsn)
        with AgentProcess(tmp_path / "agent", own.url, dsn, FEED) as agent:
            wait_until(lambda: own.http.get(f"/feeds/{FEED}").status_code == 200, WAIT_S, what=agent.errors())
            create_slot(own, "s", plugin="wal2json", database=FEED)
            receiver = Receiver(own, "s", tmp_path / "out", "-o", "include-pk=1", database=FEED)
            app.execute("BEGIN")
            app.executemany("INSERT INTO orders VALUES (?, ?, ?)", [(n, f"é{n}", n * n) for n in range(50)])
            app.execute("COMMIT")
            receiver.wait(52)
            receiver.kill()
            wait_until(lambda: slot_row(own, "s")["active"] == "f", WAIT_S, what="the slot to be free")
            app.execute("BEGIN")
            app.execute("UPDATE orders SET note = NULL WHERE id % 2 = 0")
            app.execute("DELETE FROM orders WHERE id % 5 = 0")
            app.execute("UPDATE orders SET id = id + 1000 WHERE id = 7")
            app.execute("COMMIT")
            wanted = {(row[0],): row for row in app.execute("SELECT * FROM orders")}
            again = Receiver(own, "s", tmp_path / "more", "-o", "include-pk=1", database=FEED)
            wait_until(lambda: b'"value":1007' in b"".join(again.lines()), WAIT_S, what="the last row")
            wait_until(
                lambda: b'"action":"C"' in again.lines()[-1], WAIT_S, what="the end of the transaction"
            )
            assert again.interrupt() == 0
        replica = Replica()
        replica.apply(receiver.lines())
        replica.apply(again.lines())
        (rows,) = replica.tables.values()
        assert {key: tuple(row.values()) for key, row in rows.items()} == wanted
        assert set(replica.transactions) == {50, 25 + 10 + 2}, "as many as the application had, each whole"


def test_a_truncate_comes_with_any_prefix_of_its_feed(server: ServerProcess, feed: Feed, slot: str) -> None:
    source = SourceTables(feed)
    create_slot(server, slot, plugin="wal2json")
    source.schema("t", ID)
    for number in (1, 2):
        source.put("t", {"id": number})
    source.commit()
    source.truncate("t")
    source.put("t", {"id": 2})
    source.put("t", {"id": 3})
    source.commit()
    connection = replicating(server)
    with connection.cursor() as cursor:
        prefix = f'local:default:{feed.name}:["main", "t", 2'
        cursor.start_replication(slot_name=slot, options={"key-prefix": prefix}, decode=True)
        found = [json.loads(wait_until(cursor.read_message, what="a record").payload) for _ in range(7)]
    connection.close()
    assert [one["action"] for one in found] == ["B", "I", "C", "B", "T", "I", "C"]
    assert [one["columns"][0]["value"] for one in found if one["action"] == "I"] == [2, 2]
