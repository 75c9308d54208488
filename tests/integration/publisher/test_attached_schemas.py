"""The schemas of an attached table, asked for at the server that its agent posts to."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests import forks
from tests.agents import AgentProcess
from tests.servers import Feed, serving
from tests.waiting import wait_until


def test_each_version_of_an_attached_table_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "bank.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as bank, serving(tmp_path / "server") as server:
        bank.execute('CREATE TABLE "order/line" (id INTEGER PRIMARY KEY, owner TEXT)')
        attach = ["publisher", "attach", f"sqlite:///{path}", "--table", "order/line", "--feed", "bank"]
        forks.run([*forks.HEADRACE, *attach], check=True, capture_output=True)
        feed = Feed(server, "bank")

        def versions() -> list[tuple[str, str, int]]:
            answer = server.http.get(f"{feed.path}/schemas")
            schemas = answer.json()["schemas"] if answer.status_code == 200 else []
            return [(one["database"], one["table"], one["version"]) for one in schemas]

        with AgentProcess(tmp_path / "agent", server.url, f"sqlite:///{path}", "bank"):
            wait_until(lambda: versions() == [("main", "order/line", 1)], what="the first schema")
            bank.execute('ALTER TABLE "order/line" ADD COLUMN rate REAL')
            bank.execute("INSERT INTO \"order/line\" VALUES (1, 'Ada', 0.5)")
            wait_until(lambda: versions() == [("main", "order/line", 2)], what="the second schema")
        posted = [entry["changes"] for entry in feed.entries() if entry.get("control") == "schema"]
        kept = [server.http.get(f"{feed.path}/schemas/main/order%2Fline/{n}").json() for n in (1, 2)]
        assert kept == posted
        assert [len(schema["columns"]) for schema in kept] == [2, 3]
