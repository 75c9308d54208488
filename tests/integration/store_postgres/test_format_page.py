"""The example on the page of the tables is what a store writes."""

from __future__ import annotations

from pathlib import Path

from tests.integration.store_postgres.shared import opened
from tests.postgres import Database

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "log-postgres.md"
METADATA = {
    "listener",
    "subscriber",
    "alarm",
    "hydration",
    "snapshot",
    "listener_owner",
    "table_schema",
    "schema_mark",
    "progress",
    "report",
    "slot",
}
"""Tables whose columns ``metadata.md`` names."""
COLUMNS = {
    "journal": ["end_position", "oldest_position", "segment_position", "global_ts", "next_region_id"],
    "frame": ["position", "size", "region_id", "count", "first_sequence_id", "last_global_ts"],
}


def test_example_is_what_a_store_writes(database: Database) -> None:
    with opened(database.dsn) as bench:
        bench.register("f")
        bench.append("f", "x")
    lines = [line.split() for line in PAGE.read_text(encoding="utf-8").split("```")[1].strip().splitlines()]
    tables: dict[str, list[list[str]]] = {}
    table = ""
    for line in lines:
        if line[0] in COLUMNS:
            table = line.pop(0)
            assert line == COLUMNS[table]
        else:
            tables.setdefault(table, []).append(line)
    for table, columns in COLUMNS.items():
        rows = database.sql(f"SELECT {', '.join(columns)} FROM headrace_log.{table} ORDER BY {columns[0]}")
        told = [dict(zip(columns, line, strict=True)) for line in tables[table]]
        written = [dict(zip(columns, map(str, row), strict=True)) for row in rows]
        for one in [*told, *written]:  # a registration's frame grows with what a feed's state can say
            for moving in ("position", "size", "end_position"):
                one.pop(moving, None)
        assert written == told
    frames = tables["frame"]
    assert int(frames[0][0]) + int(frames[0][1]) == int(frames[1][0])
    assert int(frames[1][0]) + int(frames[1][1]) == int(tables["journal"][0][0])


def test_page_names_every_table_and_column(database: Database) -> None:
    with opened(database.dsn):
        pass
    page = PAGE.read_text(encoding="utf-8")
    rows = database.sql(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'headrace_log'"
    )
    assert len({table for table, _ in rows}) == 16
    for table, column in rows:
        assert f"`{table}`" in page
        if table not in METADATA and column != "only_row":
            assert f"`{column}`" in page, (table, column)
