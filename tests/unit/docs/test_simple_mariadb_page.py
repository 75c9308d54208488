"""The tables of docs/formats/simple-mariadb.md say what the code does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from headrace.capture.catalogue_schema import from_catalogue
from headrace.capture.catalogue_table import CatalogueColumn, CatalogueTable, TableKind
from headrace.capture.ddl import TableName, parse

PAGE = Path(__file__).parents[3] / "docs/formats/simple-mariadb.md"


def rows(heading: str) -> Iterator[list[str]]:
    """The cells of the table under ``heading``, without its head."""
    section = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    for line in section.splitlines():
        if line.startswith("| `"):
            yield [cell.strip().strip("`") for cell in line.strip("|").split("|")]


def test_types() -> None:
    told = list(rows("Types"))
    columns = tuple(
        CatalogueColumn("c", type_, re.split(r"\W", type_)[0], "", "", nullable=True, default=None)
        for type_, *_ in told
    )
    table = CatalogueTable(TableName("d", "t"), TableKind.TABLE, "InnoDB", columns, ())
    types = [column.data_type for column in from_catalogue(table, 1, 1).columns]
    assert [[each.mysql_type, f"{each.length}, {each.decimal}"] for each in types] == [
        row[1:3] for row in told
    ]


def test_statements() -> None:
    for statement, kinds in rows("Statements"):
        told = [each.kind.value for each in parse(statement, "d")]
        assert (", ".join(told) or "none") == kinds, statement
