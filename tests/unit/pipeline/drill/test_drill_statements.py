"""What statements do to rows that stand before them, and where they make keys unfit to tell rows apart."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from headrace.pipeline.drill.statements import Statements
from headrace.pipeline.restore.clearing import cleared_of
from headrace.pipeline.restore.surveying import Control
from tests.unit.pipeline.restore.test_clearing import bootstrap, ddl, longer_key, schema

T, U = ("shop", "t"), ("shop", "u")


def told(entries: Iterable[Control], feed: str = "f") -> Statements:
    statements = Statements()
    for one in entries:
        statements.see(feed, one.sequence_id, one.control, one.value, one.table)
    return statements


@pytest.mark.parametrize(("kind", "ends"), [("TRUNCATE", 1), ("CREATE", 1), ("ERASE", 1), ("ALTER", 0)])
def test_a_statement_ends_the_rows_before_it(kind: str, ends: bool) -> None:
    statements = told([bootstrap(1, schema("t")), ddl(5, kind, "t", schema("t"))])
    assert [statements.is_gone("f", T, place) for place in (4, 6)] == [ends, False]
    assert not statements.is_gone("f", T, 4, before=5)
    assert statements.is_gone("f", T, 4, before=6) == ends
    assert not statements.is_gone("f", U, 4)
    assert not statements.is_gone("g", T, 4)


def test_a_row_goes_with_the_name_that_its_table_got() -> None:
    statements = told(
        [
            ddl(2, "CREATE", "t", schema("t")),
            ddl(5, "RENAME", "t", schema("u")),
            ddl(6, "CREATE", "t", schema("t")),
            ddl(9, "ERASE", "u"),
        ]
    )
    assert [statements.is_gone("f", T, place) for place in (3, 7)] == [True, False]
    assert [statements.is_gone("f", U, place) for place in (3, 8, 10)] == [True, True, False]
    assert not statements.is_gone("f", T, 3, before=9)
    assert statements.unkeyed == set()


def test_tables_that_exchange_their_names() -> None:
    names = (("t", "swap"), ("u", "t"), ("swap", "u"))
    swapped = [ddl(place, "RENAME", old, schema(new)) for place, (old, new) in enumerate(names, 5)]
    statements = told([*swapped, ddl(9, "TRUNCATE", "t", schema("t"))])
    assert [statements.is_gone("f", table, 4) for table in (T, U)] == [False, True]
    assert statements.unkeyed == {"f"}


CASES = {
    "same": ([bootstrap(1, schema("t")), ddl(2, "ALTER", "t", schema("t"))], False),
    "renamed": ([ddl(2, "RENAME", "t", schema("u"))], True),
    "renamed, then emptied": (
        [ddl(2, "RENAME", "t", schema("u")), ddl(3, "TRUNCATE", "u", schema("u"))],
        False,
    ),
    "renamed, the old name made anew": (
        [ddl(2, "RENAME", "t", schema("u")), ddl(3, "CREATE", "t", schema("t"))],
        True,
    ),
    "renamed twice": ([ddl(2, "RENAME", "t", schema("u")), ddl(3, "RENAME", "u", schema("v"))], True),
    "rekeyed": ([bootstrap(1, schema("t")), ddl(2, "ALTER", "t", schema("t", "n"))], True),
    "rekeyed, then made anew": (
        [
            bootstrap(1, schema("t")),
            ddl(2, "ALTER", "t", schema("t", "n")),
            ddl(3, "ERASE", "t"),
            ddl(4, "CREATE", "t", schema("t", "n")),
        ],
        False,
    ),
    "retyped": ([bootstrap(1, schema("t")), ddl(2, "ALTER", "t", longer_key())], True),
    "retyped behind a rename": (
        [
            bootstrap(1, schema("u")),
            ddl(2, "RENAME", "u", schema("t")),
            ddl(3, "ALTER", "t", longer_key()),
        ],
        True,
    ),
    "unread": ([Control("f", "i", 1, "ddl", T, b"{")], True),
    "unread, then emptied": ([Control("f", "i", 1, "ddl", T, b"{"), ddl(2, "ERASE", "t")], False),
    "attached": ([Control("f", "i", 1, "schema", (), b'{"database":"main","table":"t"}')], False),
    "another kind": ([Control("f", "i", 1, "watermark", (), b"")], False),
}


@pytest.mark.parametrize("name", CASES)
def test_feeds_whose_keys_may_not_tell_rows_apart(name: str) -> None:
    entries, is_unkeyed = CASES[name]
    assert told(entries).unkeyed == ({"f"} if is_unkeyed else set())
    # What a restore says of the same entries, by code of its own.
    asked = [one for one in entries if one.control != "watermark"]
    assert bool(cleared_of(asked)[1]) == is_unkeyed


def test_a_truncate_that_names_no_table() -> None:
    assert told([Control("f", "i", 4, "truncate", T, b"{}")]).unkeyed == {"f"}
