"""What statements do to rows that are there, held to what MariaDB did to them; and what can't be known stops that table."""

from __future__ import annotations

from typing import Final

from tests.integration.pipeline.tables.captured_source import CapturedSource
from tests.scale import sized

ALTERED: Final = {
    "widened": ("INT", "(1, -5), (2, NULL)", "MODIFY v BIGINT"),
    "finer": ("DECIMAL(5,2)", "(1, 123.45)", "MODIFY v DECIMAL(12,4)"),
    "text": ("INT UNSIGNED", "(1, 4294967295)", "MODIFY v VARCHAR(20)"),
    "number": ("VARCHAR(10)", "(1, '-17'), (2, NULL)", "MODIFY v INT"),
    "swapped": (
        "INT, w VARCHAR(5) DEFAULT 'w'",
        "(1, 5, 'a'), (2, NULL, 'b')",
        "RENAME COLUMN v TO w, RENAME COLUMN w TO v",
    ),
    "added": (
        "INT",
        "(1, 1)",
        "ADD COLUMN n ENUM('x', 'y') NOT NULL, ADD COLUMN d DATE NULL DEFAULT '2024-02-29'",
    ),
    "unknown": ("INT", "(1, 1)", "ADD COLUMN at DATETIME DEFAULT CURRENT_TIMESTAMP"),
}
"""Table -> the type of its column v, its rows, and how it is altered."""

CHOSEN: Final = sized(["text", "swapped", "added", "unknown"], soak=list(ALTERED))
"""Other statements are followed in test_captured.py, and what they make of values is held to MariaDB in test_old_rows.py."""


def test_rows_that_are_there_are_what_the_source_made_of_them(captured: CapturedSource) -> None:
    for name in CHOSEN:
        kind, rows, _ = ALTERED[name]
        captured.sql(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v {kind})", f"INSERT INTO {name} VALUES {rows}"
        )
    captured.settle()
    captured.bring()
    for name in CHOSEN:
        alter = ALTERED[name][2]
        captured.sql(f"ALTER TABLE {name} {alter}", f"UPDATE {name} SET id = 3 WHERE id = 2")
        captured.sql(f"INSERT INTO {name} (id) VALUES (4)")
    captured.settle()
    assert set(captured.bring().stopped) == {"unknown"}
    assert captured.differences(*[name for name in CHOSEN if name != "unknown"]) == []
