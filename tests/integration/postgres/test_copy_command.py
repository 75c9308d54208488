"""``headrace publisher copy`` on PostgreSQL: beside a load, killed, interrupted, paused, at a rate, and with an agent."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.publisher.attaching import drive_copy
from headrace.runtime.dsn import parse_dsn
from tests import forks
from tests.agents import headrace
from tests.integration.postgres.captured import captured
from tests.integration.postgres.shop import FEED, attach, make_table, refused, running_shop, write
from tests.postgres import Cluster, Database
from tests.waiting import wait_until

ROWS = 6_000


@pytest.fixture
def items(database: Database) -> Database:
    """A database with an attached table of many rows, none of them copied."""
    database.sql("CREATE TABLE item (id bigint PRIMARY KEY, v text)")
    database.sql(f"INSERT INTO item SELECT g * 7, repeat('x', 50) FROM generate_series(1, {ROWS}) AS g")
    database.sql("ANALYZE item")
    headrace(["publisher", "attach", database.dsn, "--table", "item", "--feed", FEED, "--no-copy"])
    return database


@contextmanager
def copying(database: Database, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command in the background."""
    process = forks.start(
        [
            *forks.HEADRACE,
            "publisher",
            "copy",
            database.dsn,
            "--table",
            "item",
            *words,
        ],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def copy(database: Database, *words: str) -> Any:
    """Run the command to its end; returns the copies that it tells of."""
    return headrace(["publisher", "copy", database.dsn, "--table", "item", *words])["copies"]


def rows_of(database: Database, number: int = 1) -> int:
    """How many rows a copy has copied, 0 before it began."""
    found = database.sql(f"SELECT rows FROM headrace.headrace_copy WHERE id = {number}")
    return int(found[0][0]) if found else 0


def has_copied(database: Database, rows: int) -> bool:
    return rows_of(database) >= rows


def assert_each_copied_once(database: Database) -> None:
    ((rows, keys),) = database.sql(
        "SELECT count(*), count(DISTINCT changes::json ->> 'id') FROM headrace.headrace_outbox WHERE copy"
    )
    assert (rows, keys) == (ROWS, ROWS)
    with captured(database) as source:
        source.assert_equal("item")


def test_killed_in_the_middle_it_goes_on_where_it_was(items: Database) -> None:
    with copying(items, "--rows-per-second", "3000") as process:
        wait_until(lambda: rows_of(items) > ROWS // 10, 60, what="some rows to be copied")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert 0 < rows_of(items) < ROWS
    (done,) = copy(items, "--rows-per-second", "10000000")
    assert (done["copy"], done["state"], done["copied-rows"]) == (1, "done", ROWS)
    assert_each_copied_once(items)


def test_interrupted_it_says_who_goes_on(items: Database) -> None:
    with copying(items, "--rows-per-second", "1000") as process:
        wait_until(lambda: rows_of(items) > 0, 60, what="some rows to be copied")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "The agent goes on with the copy" in errors
    assert "--pause" in errors
    assert "Traceback" not in errors
    (running,) = copy(items, "--status")
    assert running["state"] == "running"


def test_rate_is_kept(items: Database) -> None:
    rate = 1_000
    look = "SELECT rows, extract(epoch FROM clock_timestamp() - begun_at)::float8 FROM headrace.headrace_copy"
    with copying(items, "--rows-per-second", str(rate)) as process:
        for wanted in (1, rate, 3 * rate):
            wait_until(partial(has_copied, items, wanted), 60, what=f"{wanted} rows")
            ((rows, seconds),) = items.sql(look)
            assert rows <= rate * (seconds + 0.25)
        assert process.poll() is None


def test_paused_it_stands_still_until_it_is_resumed(items: Database) -> None:
    with copying(items, "--rows-per-second", "2000") as process:
        wait_until(lambda: rows_of(items) > 0, 60, what="some rows to be copied")
        (paused,) = copy(items, "--pause")
        out, _ = process.communicate(timeout=60)
    assert (paused["state"], process.returncode, "paused" in out) == ("paused", 0, True)
    assert paused["estimated-rows"] == ROWS
    stood = rows_of(items)
    words = ["publisher", "copy", items.dsn, "--table", "item"]
    assert refused(*words)["code"] == "usage"
    assert refused(*words, "--pause")["code"] == "usage"
    assert rows_of(items) == stood < ROWS
    items.sql("UPDATE headrace.headrace_copy SET rows_per_second = NULL")
    (done,) = copy(items, "--resume")
    assert (done["state"], done["copied-rows"]) == ("done", ROWS)
    assert_each_copied_once(items)


def test_terminal_shows_how_far_it_is(items: Database) -> None:
    ours, theirs = os.openpty()
    words = ["publisher", "copy", items.dsn, "--table", "item", "--rows-per-second", "6000"]
    with forks.start(
        [*forks.HEADRACE, *words],
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # what Linux says once the other side is closed
            while part := os.read(ours, 4096):
                shown += part
    os.close(ours)
    assert process.returncode == 0, shown.decode()
    assert f"{ROWS}/{ROWS}" in shown.decode()
    assert "rows/s" in shown.decode()


def test_two_drivers_take_turns(items: Database) -> None:
    (begun,) = copy(items, "--no-wait")
    with ThreadPoolExecutor() as pool:
        drivers = [pool.submit(drive_copy, parse_dsn(items.dsn), begun["copy"]) for _ in range(2)]
        assert [(driver.result().state, driver.result().rows) for driver in drivers] == [("done", ROWS)] * 2
    assert_each_copied_once(items)


def test_cancelled_it_ends_without_a_copy_end(items: Database) -> None:
    copy(items, "--no-wait", "--where", "id > 70")
    (cancelled,) = copy(items, "--cancel")
    assert (cancelled["state"], cancelled["where"]) == ("cancelled", "id > 70")
    with captured(items) as source:
        assert source.controls() == ["schema", "copy-begin"]
    assert refused("publisher", "copy", items.dsn, "--table", "item", "--resume")["code"] == "usage"


def test_refusals(items: Database) -> None:
    for words, code in (
        (("--table", "nope"), "table-not-found"),
        ((), "usage"),
        (("--table", "item", "--where", " "), "usage"),
        (("--table", "item", "--where", "id = 'x"), "usage"),
        (("--table", "item", "--rows-per-second", "0"), "usage"),
        (("--table", "item", "--pause", "--cancel"), "usage"),
        (("--table", "item", "--pause", "--where", "true"), "usage"),
    ):
        found = refused("publisher", "copy", items.dsn, *words)
        assert (found["code"], found["exit"]) == (code, 2), words


def test_agent_goes_on_with_copies_but_not_with_paused_ones(cluster: Cluster, tmp_path: Path) -> None:
    make_table(cluster, "shop_copies")
    dsn = cluster.dsn("shop_copies")
    words = ["publisher", "copy", dsn, "--table", "orders"]
    try:
        attach(dsn)
        headrace([*words, "--where", "id < 5", "--no-wait"])
        headrace([*words, "--pause"])
        with running_shop(tmp_path, dsn) as shop:
            headrace([*words, "--no-wait", "--where", "id > 2"])
            wait_until(
                lambda: [e.control for e in shop.entries()].count("copy-end") == 2, 60, what="the copy's end"
            )
            write(cluster, range(3), "after", "shop_copies")
            wait_until(lambda: shop.state().get(2) == "after", 60, what="the feed to be awake")
            states = {one["where"]: one["state"] for one in headrace([*words, "--status"])["copies"]}
            assert states == {"id < 5": "paused", "id > 2": "done"}
            headrace([*words, "--resume", "--no-wait"])
            wait_until(
                lambda: [e.control for e in shop.entries()].count("copy-end") == 3, 60, what="the copy's end"
            )
            copied = [json.loads(bytes(e.changes))["id"] for e in shop.entries() if e.copy]
        assert copied == [*range(10), *range(3, 10), *range(5)]
    finally:
        cluster.drop_database("shop_copies")
