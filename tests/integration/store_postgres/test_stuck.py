"""A server whose appends wait in vain says so: not ready, with an alarm, until they go on. Nothing is lost or doubled."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg

from tests.postgres import Database
from tests.servers import Feed, serving
from tests.stuck import WITHIN, stalled
from tests.waiting import wait_until


def test_a_lock_that_appends_wait_for_is_an_alarm_while_it_lasts(database: Database, tmp_path: Path) -> None:
    with (
        serving(tmp_path, args=["--store", database.dsn, "--stalled-after", "2s"]) as server,
        ThreadPoolExecutor(1) as beside,
    ):
        feed = Feed(server, "shop")
        feed.register()
        feed.post({"changes": {"n": 1}})
        assert server.http.get("/readyz").status_code == 200
        with psycopg.connect(database.dsn) as holder:
            holder.execute("SELECT 1 FROM headrace_log.journal FOR UPDATE")
            waiting = beside.submit(feed.post, {"changes": {"n": 2}})
            wait_until(
                lambda: server.http.get("/readyz").status_code == 503, WITHIN, what="it not to be ready"
            )
            (reason,) = server.http.get("/readyz").json()["reasons"]
            assert reason.startswith("appends wait: the store has not made a group durable for ")
            (alarm,) = wait_until(lambda: stalled(server), WITHIN, what="the alarm")
            assert alarm.startswith("appends wait: ")
            assert server.http.get("/healthz").status_code == 200
            holder.rollback()
        assert waiting.result(WITHIN).status_code == 200
        assert server.http.get("/readyz").status_code == 200
        wait_until(lambda: not stalled(server), WITHIN, what="the alarm to be cleared")
        assert [entry["changes"]["n"] for entry in feed.entries()] == [1, 2]
        lines = [json.loads(line) for line in server.errors().splitlines() if line.startswith("{")]
        assert [line["code"] for line in lines if line["event"] == "alarm"] == ["stalled"]
