"""The page about PostgreSQL's outbox names every table, sequence and column that the SQL makes, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.publisher.outbox.postgres import PARKED_TABLE
from headrace.publisher.outbox.postgres import TABLES_SQL as FIRST_TABLES_SQL

PAGE = (Path(__file__).parents[3] / "docs" / "formats" / "outbox-postgres.md").read_text(encoding="utf-8")
TABLES_SQL = FIRST_TABLES_SQL + PARKED_TABLE
COLUMN = re.compile(r"^    (\w+) (?:xid8|bigint|text|integer|boolean|timestamptz|oid)\b", re.MULTILINE)


def test_every_table_and_column_is_explained() -> None:
    made = re.findall(r"CREATE (?:TABLE|SEQUENCE) IF NOT EXISTS headrace\.(\w+)", TABLES_SQL)
    columns = COLUMN.findall(TABLES_SQL)
    assert len(made) > 8
    assert len(columns) > 40
    missing = [name for name in [*made, *columns] if f"`{name}`" not in PAGE]
    assert missing == []


def test_no_column_is_explained_that_is_not_there() -> None:
    columns = set(COLUMN.findall(TABLES_SQL))
    explained = {
        name
        for line in PAGE.splitlines()
        if line.startswith("| `") and line.count("|") == 4
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    known = {"headrace_format", "headrace_outbox_id", "headrace_asleep_until", "headrace_added"}
    assert explained - known <= columns
