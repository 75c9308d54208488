"""A feed of one table, and the tables that follow it batch by batch: what tests of plans begin with."""

from __future__ import annotations

from typing import Any

from headrace.pipeline.tables.simple.steps import Step
from headrace.simple.schema import DataType
from tests.unit.pipeline.tables.simple.history import (
    INT,
    Feed,
    schema_of,
)
from tests.unit.pipeline.tables.simple.steps_folded import Tables

T = ("shop", "t")


def rows(tables: Tables, name: tuple[str, str] = T) -> list[dict[str, Any]]:
    """The rows of a table without our columns, by their first column."""
    own = [
        {name: value for name, value in row.items() if not name.startswith("_headrace")}
        for row in tables.named()[name].rows
    ]
    return sorted(own, key=lambda row: str(row["id"]))


def kinds(steps: list[Step]) -> list[str]:
    return [type(step).__name__ for step in steps]


class Played:
    """A feed of one table with a row, and the tables that follow it, a batch at a time."""

    def __init__(self, columns: dict[str, DataType] | None = None, row: dict[str, Any] | None = None) -> None:
        self.feed = Feed()
        self.tables = Tables()
        self.taken = 0
        self.was = schema_of(columns or {"id": INT, "a": INT})
        self.feed.schema(self.was)
        self.feed.row(self.was, row or {"id": 1, "a": 5})
        self.take()

    def take(self) -> list[Step]:
        entries = self.feed.entries[self.taken :]
        self.taken = len(self.feed.entries)
        return self.tables.take(entries)

    def reason(self) -> str:
        return self.tables.stopped()[T]
