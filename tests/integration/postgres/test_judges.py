"""What judges the feed and the tables has to be right itself: it finds each kind of fault, and reads every edge value."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.integration.postgres import awkward
from tests.integration.postgres.canonical import delta_rows, difference, source_rows
from tests.integration.postgres.delta_rows import DeltaTable
from tests.integration.postgres.history import BALANCES, Entry, History
from tests.postgres import Database
from tests.waiting import wait_until


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def row(table: str, key: int, balance: int, was: int | None = None, **members: Any) -> dict[str, Any]:
    """An entry of a bank table; ``was``: the balance before an update."""
    names = BALANCES[table]
    before = msgspec.Raw(b"") if was is None else raw(dict(zip(names, (key, was), strict=True)))
    changes = raw(dict(zip(names, (key, balance), strict=True)))
    place = {"key": f"{table}-{key}", "table": ["public", table]}
    return {"changes": changes, "before": before, **place, **members}


def copy_end(table: str) -> dict[str, Any]:
    return {"changes": raw({"table": table}), "control": "copy-end"}


def moved(amount: int, accounts: int, others: int) -> list[dict[str, Any]]:
    """A transaction of pgbench; ``accounts`` and ``others``: the balances before it."""
    return [
        row("pgbench_accounts", 1, accounts + amount, accounts),
        row("pgbench_tellers", 1, others + amount, others),
        row("pgbench_branches", 1, others + amount, others),
    ]


def take(*transactions: list[dict[str, Any]]) -> History:
    history = History()
    for number, entries in enumerate(transactions):
        for index, entry in enumerate(entries):
            last = {"tx_last": True} if index == len(entries) - 1 else {}
            place = {"sequence_id": history.last + 1, "tx": f"tx-{number}"}
            history.take(Entry(**{**place, **last, **entry}))
    history.finish()
    return history


START = [
    [row(table, 1, 0, copy=True) for table in BALANCES],
    [copy_end(table) for table in BALANCES],
]


def test_whole_history_is_taken() -> None:
    history = take(
        [row("pgbench_accounts", 1, 0, copy=True)],
        moved(5, 0, 0),
        [row(table, 1, 5, copy=True) for table in BALANCES],
        [copy_end(table) for table in BALANCES],
        moved(-7, 5, 5),
    )
    assert history.bank_transactions == 2
    assert history.rows_of("pgbench_tellers") == [{"tid": 1, "tbalance": -2}]


def test_update_of_a_key_is_a_delete_and_a_put() -> None:
    old = {"key": "a", "table": ["public", "t"], "changes": raw({"id": 1})}
    new = {"key": "b", "table": ["public", "t"], "changes": raw({"id": 2}), "before": raw({"id": 1})}
    history = take([old], [{**old, "op": "delete"}, new])
    assert history.rows_of("t") == [{"id": 2}]
    with pytest.raises(AssertionError, match="changes"):
        take([old], [{**new, "key": "a", "before": raw({"id": 3})}])


def test_truncate_empties_its_table_alone() -> None:
    rows = [{"key": name, "table": ["public", name], "changes": raw({})} for name in ("t", "u")]
    history = take(rows, [{"changes": raw({"table": "t"}), "control": "truncate"}], rows[:1])
    assert (history.rows_of("t"), history.rows_of("u")) == ([{}], [{}])


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ([moved(5, 0, 0), moved(1, 6, 6)], "last state"),
        ([moved(5, 0, 0), moved(5, 0, 0)], "last state"),
        ([moved(5, 0, 0)[:2], moved(5, 0, 0)[2:]], "ends"),
        ([[*moved(5, 0, 0)[:2], row("pgbench_branches", 1, 4, 0)]], "ends"),
        ([[row("pgbench_accounts", 1, 3, copy=True)]], "copies"),
        ([[row("pgbench_accounts", 2, 3, copy=True)]], "balances"),
        ([[row("pgbench_accounts", 1, 3)]], "inserts"),
        ([[row("pgbench_accounts", 1, 3, op="delete")]], "deletes"),
        ([[*moved(5, 0, 0), {**copy_end("t"), "tx": "tx-9"}]], "tears"),
        ([[{**copy_end("t"), "tx": "tx-0"}]], "whole already"),
        ([[{**copy_end("t"), "tx_last": False}]], "never ends"),
        ([[{**copy_end("t"), "sequence_id": 99}]], "follows"),
    ],
    ids=[
        "lost",
        "doubled",
        "torn",
        "unequal",
        "copied-too-late",
        "sums",
        "inserted-again",
        "deleted-other",
        "mixed",
        "reopened",
        "open",
        "gap",
    ],
)
def test_each_fault_is_found(fault: list[list[dict[str, Any]]], says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        take(*START, *fault)


def test_moments_and_days_are_counted_right(database: Database) -> None:
    awkward.create(database)
    types, rows = source_rows(database, awkward.TABLE)
    assert types["moment"] == "timestamp with time zone"
    found = {name: {dict(row)[name] for row in rows} for name in ("moment", "wall", "day")}
    edges = {"infinity", "-infinity", None}
    # Counted by hand: 146,097 days in 400 years.
    assert found["day"] == edges | {"-2440550", "-719162", "19782", "-141432", "2145042905"}
    last, first, minute = "9223372036854775806", "-210863520000000000", "1774751400000000"
    assert found["wall"] == edges | {last, first, minute}
    assert found["moment"] >= edges | {last, first, "0", "1792888200123456", "-62135596800000001"}


def test_one_digit_is_a_difference(database: Database) -> None:
    database.sql("CREATE TABLE t AS SELECT 1 AS id, 1.10 AS n, '{\"a\": 1.0}'::jsonb AS doc")
    types, wanted = source_rows(database, "t")
    spark = {"id": "int", "n": "string", "doc": "string", "_headrace_key": "binary"}

    def differs(n: str, doc: str) -> str:
        rows: list[dict[str, str | None]] = [{"id": "1", "n": n, "doc": doc, "_headrace_key": "00"}]
        return difference(wanted, delta_rows(DeltaTable(spark, rows), types))

    assert differs("1.10", '{"a":1.0}') == ""
    assert "('n', '1.10') is '1.1'" in differs("1.1", '{"a":1.0}')
    assert "('doc'" in differs("1.10", '{"a":1}')


def test_application_does_everything(database: Database) -> None:
    awkward.create(database)
    application = awkward.Application(
        database, seed=1
    )  # one that truncates early: it does so once in 340 changes
    application.start()
    wait_until(lambda: application.commits > 300 or not application.is_alive(), 60)
    application.end()
    assert application.error is None
    assert application.truncated > 0
