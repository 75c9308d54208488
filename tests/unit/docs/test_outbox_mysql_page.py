"""The page about the outbox of MariaDB names every table and column that the SQL makes, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.publisher.outbox.mysql import TABLES

PAGE = (Path(__file__).parents[3] / "docs" / "formats" / "outbox-mysql.md").read_text(encoding="utf-8")
SQL = "\n".join(TABLES)
COLUMN = re.compile(r"^    `?(\w+)`? (?:BIGINT|INT|TINYINT|VARCHAR|LONGTEXT|TEXT|TIMESTAMP)\b", re.MULTILINE)


def test_every_table_and_column_is_explained() -> None:
    made = re.findall(r"CREATE TABLE IF NOT EXISTS (\w+)", SQL)
    columns = COLUMN.findall(SQL)
    assert len(made) == 4
    assert len(columns) > 30
    assert [name for name in [*made, *columns] if f"`{name}`" not in PAGE] == []


def test_no_column_is_explained_that_is_not_there() -> None:
    explained = {
        name
        for line in PAGE.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert explained <= set(COLUMN.findall(SQL))
