"""Commands and queries as text -> values; what is neither is refused, whatever it is."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.server.pg.commands import CreateSlot, DropSlot, IdentifySystem, ReadSlot, Start
from headrace.server.pg.lsn import lsn_text, parse_lsn
from headrace.server.pg.queries import (
    ITEMS_MAX,
    LIMIT_DIGITS_MAX,
    STATEMENTS_MAX,
    Accepted,
    Call,
    Column,
    Item,
    Literal,
    Select,
    Show,
    Star,
    Statement,
    parse_statements,
)
from headrace.server.pg.sqlstate import PgError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("IDENTIFY_SYSTEM", IdentifySystem()),
        ("identify_system;", IdentifySystem()),
        ('CREATE_REPLICATION_SLOT "s" LOGICAL "headrace"', CreateSlot("s", "headrace", temporary=False)),
        (
            "CREATE_REPLICATION_SLOT s TEMPORARY LOGICAL wal2json NOEXPORT_SNAPSHOT",
            CreateSlot("s", "wal2json", temporary=True),
        ),
        (
            'CREATE_REPLICATION_SLOT "s" LOGICAL "headrace" (SNAPSHOT \'nothing\', TWO_PHASE false)',
            CreateSlot("s", "headrace", temporary=False),
        ),
        ("READ_REPLICATION_SLOT s", ReadSlot("s")),
        ("DROP_REPLICATION_SLOT s", DropSlot("s", wait=False)),
        ('DROP_REPLICATION_SLOT "s" WAIT', DropSlot("s", wait=True)),
        ("START_REPLICATION SLOT s LOGICAL 0/0", Start("s", 0, {})),
        ("START_REPLICATION SLOT s LOGICAL 00000001/0000000A", Start("s", (1 << 32) + 10, {})),
        (
            """START_REPLICATION SLOT "s" LOGICAL 1/A ("a" 'it''s', "key-prefix" 'x', "bare", n 2)""",
            Start("s", (1 << 32) + 10, {"a": "it's", "key-prefix": "x", "bare": "", "n": "2"}),
        ),
        ("SHOW wal_level", Show("wal_level")),
        ("SHOW TRANSACTION ISOLATION LEVEL", Show("transaction_isolation")),
        ("SET datestyle TO 'ISO'", Accepted("SET")),
        ("BEGIN", Accepted("BEGIN")),
        ("SELECT version()", Select([Item(Call("version", []), "version")], None, [], None)),
        (
            "SELECT pg_catalog.set_config('search_path', '', false)",
            Select([Item(Call("set_config", ["search_path", "", "false"]), "set_config")], None, [], None),
        ),
        (
            "select *, 1::int as one from pg_catalog.pg_replication_slots s "
            "where s.slot_name = 'x' and active = 't' order by slot_name limit 3",
            Select(
                [Item(Star(), "*"), Item(Literal("1"), "one")],
                Column("pg_replication_slots"),
                [("slot_name", "x"), ("active", "t")],
                3,
            ),
        ),
        ("SELECT current_user", Select([Item(Call("current_user", ()), "current_user")], None, [], None)),
    ],
)
def test_a_statement_is_read(text: str, found: Statement) -> None:
    assert parse_statements(text) == [found]


def test_statements_stand_one_after_another() -> None:
    assert parse_statements(" ; SHOW a ;; SELECT 1 -- the last\n;") == [
        Show("a"),
        Select([Item(Literal("1"), "?column?")], None, [], None),
    ]
    assert parse_statements("  ;; ") == []


@pytest.mark.parametrize(
    "text",
    [
        "START_REPLICATION SLOT s LOGICAL 0/0 (a 'b'",
        "START_REPLICATION SLOT s LOGICAL 0/0 (a 'b', a 'c')",
        "START_REPLICATION SLOT s LOGICAL 0/0 nonsense",
        "START_REPLICATION SLOT s LOGICAL 123456789/0",
        "START_REPLICATION SLOT s",
        "CREATE_REPLICATION_SLOT s",
        "CREATE_REPLICATION_SLOT s LOGICAL p (SNAPSHOT 'use')",
        "DROP_REPLICATION_SLOT s SOON",
        "SELECT a FROM",
        "SELECT f(1",
        "SELECT 1 LIMIT many",
        "'text'",
        "SELECT \x00",
        "SELECT " + "1," * 3000 + "1",
    ],
)
def test_what_is_no_statement_is_refused(text: str) -> None:
    with pytest.raises(PgError):
        parse_statements(text)


@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                ["START_REPLICATION", "SLOT", "s", "LOGICAL", "0/0", "(", ")", ",", "SELECT", "*", "FROM", "WHERE", "=",
                 "'x'", '"y"', ";", "SHOW", "CREATE_REPLICATION_SLOT", "1", ".", "::", "::int", "AND", "LIMIT", "AS"]
            ),
            st.text(max_size=5),
        ),
        max_size=15,
    )
)  # fmt: skip
def test_any_text_is_read_or_refused(words: list[str]) -> None:
    with suppress(PgError):
        parse_statements(" ".join(words))


@given(st.integers(0, (1 << 64) - 1))
def test_a_position_is_written_as_it_is_read(position: int) -> None:
    assert parse_lsn(lsn_text(position)) == position


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("SELECT " + ",".join(["*"] * (ITEMS_MAX + 1)) + " FROM pg_replication_slots", "items"),
        (
            "SELECT 1 FROM pg_replication_slots WHERE " + " AND ".join(["plugin='x'"] * (ITEMS_MAX + 1)),
            "conditions",
        ),
        ("SELECT 1;" * (STATEMENTS_MAX + 1), "statements"),
        ("SELECT 1 LIMIT " + "9" * 5_000, "digits"),
        ("SELECT 1 LIMIT 1" + "0" * LIMIT_DIGITS_MAX, "digits"),
    ],
)
def test_what_would_cost_too_much_is_refused(text: str, what: str) -> None:
    with pytest.raises(PgError, match=what) as refused:
        parse_statements(text)
    assert refused.value.state == "54000"


def test_as_much_as_may_be_asked_for() -> None:
    (items,) = parse_statements("SELECT " + ",".join(["*"] * ITEMS_MAX))
    assert isinstance(items, Select)
    assert len(items.items) == ITEMS_MAX
    (limited,) = parse_statements("SELECT 1 LIMIT " + "9" * LIMIT_DIGITS_MAX)
    assert isinstance(limited, Select)
    assert limited.limit == 10**LIMIT_DIGITS_MAX - 1
    assert len(parse_statements("SELECT 1;" * STATEMENTS_MAX)) == STATEMENTS_MAX
