"""Whatever a statement's text is: it is read or said to be unread, and names and quotes come back as they were written."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from headrace.capture.ddl import TableName, parse
from headrace.capture.ddl.columns import Drop, Rename, column_changes
from headrace.simple.message import MessageType

_WORDS = st.sampled_from(
    re.findall(
        r"\S+",
        "alter create drop rename table tables temporary if not exists or replace index on to as = , ( ) . ; t u add set "
        "`t` 't' \"t\" /* */ /*! /*!50701 /*M!100101 -- # partition exchange convert with database view definer @ "
        "statement for",
    )
)
_CLAUSE_WORDS = st.sampled_from(
    re.findall(
        r"\S+",
        "add drop rename change modify convert column if not exists to ( ) , 'x' `a` a b int varchar enum set unsigned null "
        "default 5 - x'0 b'1' now() primary key unique references on update delete cascade as first after character charset "
        "collate comment serial bigint decimal float double precision national long varbinary varying /* */ index",
    )
)
_NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=8)
_QUOTINGS = st.fixed_dictionaries({"ansi_quotes": st.booleans(), "no_backslash_escapes": st.booleans()})


@given(st.one_of(st.text(), st.lists(_WORDS, max_size=30).map(" ".join)), _QUOTINGS)
def test_no_text_is_an_error(sql: str, quoting: dict[str, bool]) -> None:
    for statement in parse(sql, "d", **quoting):
        known = statement.table or statement.database_only or statement.statement_format
        assert bool(known) != statement.unread


@given(_NAMES, _NAMES, _NAMES, _QUOTINGS)
def test_names_come_back(database: str, table: str, new_name: str, quoting: dict[str, bool]) -> None:
    old, new = TableName(database, table), TableName("d", new_name)
    (rename,) = parse(f"rename table {old} to {new}", "d", **quoting)
    assert (rename.kind, rename.table, rename.new_name) == (MessageType.RENAME, old, new)
    assert parse(rename.sql, "", **quoting) == (rename,)
    (altered,) = parse(f"alter table {old} rename {new}", "x", **quoting)
    assert altered == rename


@given(_NAMES, st.booleans())
def test_text_in_quotes_is_no_sql(text: str, ansi_quotes: bool) -> None:
    comment = text.replace("\\", "\\\\").replace("'", "''")
    (statement,) = parse(f"alter table t comment '{comment}', drop index i", "d", ansi_quotes=ansi_quotes)
    assert (statement.kind, statement.unread) == (MessageType.ALTER, False)


@given(st.one_of(st.text(), st.lists(_CLAUSE_WORDS, max_size=20).map(" ".join)))
def test_no_clause_is_an_error(clauses: str) -> None:
    changes = column_changes(f"ALTER TABLE t {clauses}")
    assert not (changes.unread and changes.clauses)


@given(_NAMES, _NAMES)
def test_names_of_columns_come_back(old: str, new: str) -> None:
    quoted = ["`{}`".format(name.replace("`", "``")) for name in (old, new)]
    changes = column_changes("ALTER TABLE t RENAME COLUMN {} TO {}, DROP {}".format(*quoted, quoted[0]))
    assert changes.clauses == (Rename(old, new), Drop(old))
