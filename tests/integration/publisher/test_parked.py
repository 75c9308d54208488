"""A row that the server refuses for good: the feed stops, an operator parks it, and sees to it later. A real agent."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.publisher.attaching import opened_source
from headrace.runtime.dsn import parse_dsn
from tests.agents import AgentProcess, run_here
from tests.postgres import Database
from tests.scale import chosen
from tests.servers import ServerProcess, serving
from tests.waiting import wait_until

TOO_LARGE = 2 << 20
FAR_FUTURE_MS = 4_102_444_800_000
_numbers = itertools.count(1)


class Shop:
    """A database with a table and an outbox, a feed of a server, an agent, and the commands of an operator."""

    def __init__(self, folder: Path, server: ServerProcess, dsn: str) -> None:
        self.dsn = dsn
        self.server = server
        self.feed = f"shop-{next(_numbers)}"
        self.agent = AgentProcess(folder / "agent", server.url, dsn, self.feed)
        self.config = folder / "agent" / "agent.toml"
        self.is_sqlite = dsn.startswith("sqlite")
        self.outbox = "headrace_outbox" if self.is_sqlite else "headrace.headrace_outbox"
        self.sql("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
        code, out, err = run_here(["publisher", "attach", dsn, "--feed", self.feed, "--table", "item"])
        assert code == 0, out + err

    def sql(self, *statements: str) -> None:
        """Run the statements in one transaction."""
        if self.is_sqlite:
            with closing(sqlite3.connect(self.dsn.removeprefix("sqlite:///"), timeout=30)) as app:
                app.execute("BEGIN")
                for statement in statements:
                    app.execute(statement)
                app.commit()
            return
        import psycopg  # noqa: PLC0415  # as the application

        with psycopg.connect(self.dsn) as app_:
            for statement in statements:
                app_.execute(statement.encode())

    def put(self, key: str, changes: str) -> str:
        """The statement of an outbox row that no Outbox.add has checked."""
        columns = f"{self.outbox} (change_feed_id, op, key, changes)"
        return f"INSERT INTO {columns} VALUES ('{self.feed}', 'put', '{key}', '{changes}')"

    def large(self, number: int) -> str:
        """The statement of a row that no entry can hold."""
        text = f"hex(zeroblob({TOO_LARGE // 2}))" if self.is_sqlite else f"repeat('x', {TOO_LARGE})"
        return f"INSERT INTO item VALUES ({number}, {text})"

    def stop_over(self, *statements: str) -> int:
        """Run the statements, and the agent until it stops over a row; returns the row's id."""
        self.sql(*statements)
        self.agent.start()
        wait_until(lambda: self.agent.ended() is not None, 60, what="the agent to stop")
        assert self.agent.stop() != 0
        (feed,) = self.status()["feeds"]
        return int(feed["alarm"]["row"])

    def run(self) -> None:
        """Run the agent until nothing waits."""
        with self.agent:
            with opened_source(parse_dsn(self.dsn)) as source:
                wait_until(
                    lambda: source.standing([self.feed])[0].waiting_rows == 0,
                    60,
                    what="the agent to post all",
                )
            assert self.agent.stop() == 0

    def status(self) -> Any:
        """What agent status says, whatever its exit code."""
        return json.loads(self._run("status", "--json")[1])

    def command(self, *words: str) -> Any:
        """Run a command that succeeds; returns its document."""
        code, out, err = self._run(*words, "--json")
        assert code == 0, out + err
        return json.loads(out)

    def refusal(self, *words: str) -> str:
        """Run a command that is refused as a usage error; returns what it said."""
        code, _, err = self._run(*words)
        assert code == 2, err
        assert "Traceback" not in err
        return err

    def _run(self, *words: str) -> tuple[int, str, str]:
        return run_here(["agent", *words, "--config", str(self.config)], HEADRACE_DSN=self.dsn)

    def entries(self) -> list[dict[str, Any]]:
        """All entries of the feed; checks that places are dense."""
        answer = self.server.http.get(
            f"/feeds/{self.feed}/entries", params={"beg-sequence-id": 1, "limit": 10_000}
        )
        found: list[dict[str, Any]] = answer.raise_for_status().json()["changes-list"]
        assert [one["sequence-id"] for one in found] == list(range(1, len(found) + 1))
        return found

    def rows(self) -> list[tuple[str, str, Any]]:
        """Entries that are rows or parked ones, as (op or control, key, name or number)."""
        found = []
        for one in self.entries():
            control = one.get("control")
            if control in {None, "parked"}:
                changes = one["changes"]
                found.append((control or one["op"], one["key"], changes.get("name", changes.get("n"))))
        return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test has one of the databases, as the run's seed has it; both in a soak."""
    if "shop" in metafunc.fixturenames:
        kinds = chosen(["sqlite", "postgres"], of=metafunc.function.__name__)
        metafunc.parametrize("shop", kinds, indirect=True)


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path, server: ServerProcess) -> Shop:
    if request.param == "sqlite":
        path = tmp_path / "app.db"
        sqlite3.connect(path).close()
        path.touch()
        return Shop(tmp_path, server, f"sqlite:///{path}")
    database: Database = request.getfixturevalue("database")
    return Shop(tmp_path, server, database.dsn)


def key_of(shop: Shop, number: int) -> str:
    database = "main" if shop.is_sqlite else "public"
    return f'["{database}","item",{number}]'


def park(shop: Shop, row: int) -> None:
    """Skip the row and let the agent go on."""
    shop.command("skip", str(row), "--reason", "too large")
    shop.run()


def test_parked_row_gives_its_place_to_a_control_entry(shop: Shop) -> None:
    row = shop.stop_over(
        "INSERT INTO item VALUES (1, 'before')", shop.large(2), "INSERT INTO item VALUES (3, 'after')"
    )
    (feed,) = shop.status()["feeds"]
    assert feed["alarm"]["code"] == "too-large"
    assert f"headrace agent skip {row} --reason" in feed["alarm"]["hint"]
    assert feed["oldest-waiting-ms"] is not None
    document = shop.command("skip", str(row), "--reason", " no consumer needs it ")
    assert document["reason"] == "no consumer needs it"
    assert document["key"] == key_of(shop, 2)
    assert "not filled yet" in shop.refusal("parked", "drop", str(row))
    assert "not filled yet" in shop.refusal("parked", "retry", str(row))
    shop.run()
    assert [(what, key) for what, key, _ in shop.rows()] == [
        ("put", key_of(shop, 1)),
        ("parked", f"\0parked/{row}"),
        ("put", key_of(shop, 3)),
    ]
    entry = next(one for one in shop.entries() if one.get("control") == "parked")
    assert entry["changes"] == {
        "id": row,
        "op": "put",
        "code": "too-large",
        "reason": "no consumer needs it",
        "key": key_of(shop, 2),
        "database": "main" if shop.is_sqlite else "public",
        "table": "item",
    }
    rows = [one for one in shop.entries() if one.get("control") in {None, "parked"}]
    assert len({one["tx"] for one in rows}) == 1, "the transaction is torn"
    (feed,) = shop.status()["feeds"]
    assert (feed["parked-rows"], feed["alarm"]) == (1, None)
    (listed,) = shop.command("parked", "list")["parked"]
    assert listed["id"] == row
    assert listed["sequence-id"] == entry["sequence-id"]


def test_retry_of_a_table_row_posts_its_present_state_as_a_copy(shop: Shop) -> None:
    row = shop.stop_over(shop.large(2))
    park(shop, row)
    shop.sql("UPDATE item SET name = 'small by now' WHERE id = 2")
    assert shop.command("parked", "retry", str(row))["retried"] == "copied"
    shop.run()
    last = shop.entries()[-1]
    assert (last["op"], last["key"], last["changes"]) == (
        "put",
        key_of(shop, 2),
        {"id": 2, "name": "small by now"},
    )
    assert last["copy"] is True
    assert shop.command("parked", "list") == {"parked": []}
    assert "no row" in shop.refusal("parked", "retry", str(row))


def test_retry_of_a_table_row_that_is_gone_posts_a_delete(shop: Shop) -> None:
    shop.sql("INSERT INTO item VALUES (2, 'small')")
    row = shop.stop_over("DELETE FROM item WHERE id = 2", shop.large(2))
    park(shop, row)
    shop.sql("UPDATE item SET name = 'small again' WHERE id = 2", "DELETE FROM item WHERE id = 2")
    assert shop.command("parked", "retry", str(row))["retried"] == "deleted"
    shop.run()
    assert [(what, key) for what, key, _ in shop.rows()][-2:] == [("delete", key_of(shop, 2))] * 2
    assert shop.entries()[-1]["changes"] == {"id": 2, "name": None}
    assert shop.entries()[-1]["table"] == ["main" if shop.is_sqlite else "public", "item"]


def test_retry_of_an_outbox_row_goes_to_the_end_if_no_later_one_has_its_key(shop: Shop) -> None:
    row = shop.stop_over(shop.put("a", "[]"), shop.put("b", '{"n": 1}'))
    park(shop, row)
    assert [what for what, _, _ in shop.rows()] == ["parked", "put"]
    assert shop.command("parked", "retry", str(row))["retried"] == "added"
    again = shop.stop_over()
    assert again > row
    assert "no row" in shop.refusal("parked", "drop", str(row))
    park(shop, again)
    assert [what for what, _, _ in shop.rows()] == ["parked", "put", "parked"]
    shop.command("parked", "drop", str(again))
    assert shop.command("parked", "list") == {"parked": []}


def test_retry_of_an_outbox_row_is_refused_if_a_later_one_has_its_key(shop: Shop) -> None:
    row = shop.stop_over(shop.put("a", "[]"), shop.put("a", '{"n": 2}'))
    park(shop, row)
    assert "of the same key came later" in shop.refusal("parked", "retry", str(row))
    with opened_source(parse_dsn(shop.dsn)) as source:
        while source.sweep(shop.feed, FAR_FUTURE_MS):
            pass
    assert f"the row {row + 1} of the same key came later" in shop.refusal("parked", "retry", str(row))
    shop.command("parked", "drop", str(row))
    assert shop.command("parked", "list") == {"parked": []}


@pytest.mark.parametrize(
    "later", ['{"uuid": "a"}', '{"id": 1, "name": "\\\\u0061"}'], ids=["plain", "escaped"]
)
def test_retry_of_an_outbox_row_is_refused_if_a_later_one_left_that_key_to_the_feed(
    shop: Shop, later: str
) -> None:
    keyless = shop.put("x", later.replace("\\\\", "\\")).replace("'x'", "NULL")
    row = shop.stop_over(shop.put("a", "[]"), shop.put("b", '{"n": "ab"}'), keyless)
    park(shop, row)
    assert f"the row {row + 2} of the same key came later, or may have" in shop.refusal(
        "parked", "retry", str(row)
    )
    with opened_source(parse_dsn(shop.dsn)) as source:
        while source.sweep(shop.feed, FAR_FUTURE_MS):
            pass
    assert f"the row {row + 2} of the same key came later" in shop.refusal("parked", "retry", str(row))


def test_retry_of_an_outbox_row_goes_by_what_later_rows_without_a_key_say(shop: Shop) -> None:
    row = shop.stop_over(shop.put("a", "[]"), shop.put("x", '{"uuid": "ab", "a": 1}').replace("'x'", "NULL"))
    park(shop, row)
    assert shop.command("parked", "retry", str(row))["retried"] == "added"


def test_retry_of_a_row_without_a_key_is_refused(shop: Shop) -> None:
    row = shop.stop_over(shop.put("a", "[]").replace("'a'", "NULL"))
    park(shop, row)
    assert "has no key of its own" in shop.refusal("parked", "retry", str(row))


def test_parked_row_outlives_the_sweep(shop: Shop) -> None:
    row = shop.stop_over(shop.large(2))
    park(shop, row)
    with opened_source(parse_dsn(shop.dsn)) as source:
        while source.sweep(shop.feed, FAR_FUTURE_MS):
            pass
    shop.sql("UPDATE item SET name = 'small by now' WHERE id = 2")
    assert shop.command("parked", "retry", str(row))["retried"] == "copied"
    shop.run()
    assert shop.rows()[-1] == ("put", key_of(shop, 2), "small by now")


def test_only_the_row_that_stopped_the_feed_can_be_skipped(shop: Shop) -> None:
    row = shop.stop_over("INSERT INTO item VALUES (1, 'before')", shop.large(2))
    assert "can't be skipped" in shop.refusal("skip", str(row - 1), "--reason", "x")
    assert "--reason" in shop.refusal("skip", str(row), "--reason", "  ")
    shop.command("skip", str(row), "--reason", "x")
    shop.command("skip", str(row), "--reason", "y")  # the first one stands
    assert shop.command("parked", "list")["parked"][0]["reason"] == "x"
    assert "no row" in shop.refusal("parked", "drop", "999999")
    shop.run()
    assert "can't be skipped" in shop.refusal("skip", str(row), "--reason", "x")
