"""A server whose appends wait in vain says so: not ready, with an alarm, until they go on. Nothing is lost or doubled."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg

from tests.postgres import Database
from tests.servers import Feed, ServerProcess, serving
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


def standing(server: ServerProcess) -> dict[str, int]:
    """Whose alarm ``stalled`` stands as this server says, each with its id."""
    alarms = server.http.get("/alarms").json()["alarms"]
    return {
        one["agent-id"]: one["alarm-id"]
        for one in alarms
        if one["code"] == "stalled" and one["cleared-at"] is None
    }


def test_each_server_has_an_alarm_of_its_own_and_clears_no_other(database: Database, tmp_path: Path) -> None:
    args = ["--store", database.dsn, "--stalled-after", "1s"]
    with (
        serving(tmp_path / "a", args=args) as a,
        serving(tmp_path / "b", args=args) as b,
        ThreadPoolExecutor(2) as beside,
    ):
        names = [f"server {socket.gethostname()}:{one.address.rpartition(':')[2]}" for one in (a, b)]
        feed = Feed(a, "shop")
        feed.register()
        with psycopg.connect(database.dsn) as holder:
            holder.execute("SELECT 1 FROM headrace_log.journal FOR UPDATE")
            waiting = beside.submit(feed.post, {"changes": {"n": 1}})
            beside.submit(Feed(b, "shop-2").register)
            wait_until(lambda: sorted(standing(a)) == sorted(names), WITHIN, what="both alarms")
            b.kill()
            holder.rollback()
        assert waiting.result(WITHIN).status_code == 200
        wait_until(lambda: names[0] not in standing(a), WITHIN, what="the first server to clear its own")
        a.restart()
        assert list(standing(a)) == [names[1]], "nothing is known of what the other one waits for"
        b.start()
        assert standing(b) == standing(a) == {}


def test_an_alarm_that_the_database_does_not_take_stands_all_the_same(
    database: Database, tmp_path: Path
) -> None:
    with (
        serving(tmp_path, args=["--store", database.dsn, "--stalled-after", "1s"]) as server,
        ThreadPoolExecutor(1) as beside,
    ):
        feed = Feed(server, "shop")
        feed.register()
        with psycopg.connect(database.dsn) as holder:
            holder.execute("SELECT 1 FROM headrace_log.journal FOR UPDATE")
            holder.execute("LOCK TABLE headrace_log.alarm IN SHARE MODE")  # it can be read, and not written
            waiting = beside.submit(feed.post, {"changes": {"n": 1}})
            found = wait_until(lambda: standing(server), WITHIN, what="the alarm")
            assert list(found.values()) == [0], "it is not stored"
            holder.rollback()
        assert waiting.result(WITHIN).status_code == 200
        wait_until(lambda: not standing(server), WITHIN, what="the alarm to be cleared")
