"""Whatever a statement's text is: it is read or said to be unread, and names and quotes come back as they were written."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from headrace.capture.ddl import TableName, parse
from headrace.simple.message import MessageType

_WORDS = st.sampled_from(
    re.findall(
        r"\S+",
        "alter create drop rename table tables temporary if not exists or replace index on to as = , ( ) . ; t u add set "
        "`t` 't' \"t\" /* */ /*! /*!50701 /*M!100101 -- # partition exchange convert with database view definer @ "
        "statement for",
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
