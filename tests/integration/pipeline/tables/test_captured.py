"""Delta tables of a captured MariaDB hold what its tables hold, through changes of rows, of columns and of names."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from headrace.pipeline.tables.ledger import read_published
from tests.integration.capture.every_type import CREATE
from tests.integration.pipeline.tables.captured_source import CapturedSource
from tests.waiting import wait_until


def versions(to: str) -> dict[str, int]:
    """The published version of each folder."""
    moment = read_published(Path(to))
    return {one.path: one.version for one in moment.tables} if moment is not None else {}


def test_statements_are_followed(captured: CapturedSource) -> None:
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(10), d DECIMAL(5,2))",
        "INSERT INTO t VALUES (1, 'x', 1.5), (2, NULL, 2)",
    )
    captured.settle()
    captured.bring()
    assert captured.differences() == []
    captured.sql(
        "ALTER TABLE t RENAME COLUMN a TO b, ADD COLUMN n INT NOT NULL DEFAULT 7",
        "ALTER TABLE t MODIFY n BIGINT NOT NULL, MODIFY d DECIMAL(8,4)",
        "UPDATE t SET id = 9 WHERE id = 1",
        "INSERT INTO t VALUES (3, 'z', 3, 3), (4, 'q', 4.4444, 5000000000)",
        "ALTER TABLE t DROP COLUMN b, ADD COLUMN at DATETIME(3) NULL, ADD COLUMN e ENUM('x', 'y') NOT NULL",
        "UPDATE t SET at = '2024-02-29 01:02:03.456' WHERE id = 4",
        "DELETE FROM t WHERE id = 3",
    )
    captured.settle()
    captured.sql(
        "RENAME TABLE t TO u",
        "CREATE TABLE t (`last` VARCHAR(5) PRIMARY KEY)",
        "INSERT INTO t VALUES ('new'), ('old')",
        "TRUNCATE t",
        "INSERT INTO t VALUES ('newer')",
        "ALTER TABLE u DROP PRIMARY KEY, ADD PRIMARY KEY (n, id)",
        "UPDATE u SET n = 8 WHERE id = 9",
    )
    captured.settle()
    captured.bring()
    assert captured.differences() == []
    name = captured.database.name
    paths = versions(captured.to)
    assert f"{name}.t" in paths
    assert len(paths) == 2
    captured.sql("DROP TABLE t")
    captured.settle()
    captured.bring()
    assert captured.differences() == []
    before, moment = versions(captured.to), read_published(Path(captured.to))
    assert moment is not None
    assert len(before) == 1
    # Nothing but WATERMARKs: the moment moves on, no table has a new version.
    wait_until(lambda: captured.head() > moment.sequence_id, 60, what="a WATERMARK")
    captured.bring()
    after = read_published(Path(captured.to))
    assert after is not None
    assert after.sequence_id > moment.sequence_id
    assert (after.commit_ts or 0) > (moment.commit_ts or 0) > 0
    assert versions(captured.to) == before


@pytest.mark.usefixtures("several_tasks")
def test_every_type_comes_to_the_sources_values(captured: CapturedSource) -> None:
    captured.sql(CREATE, "ALTER TABLE every DROP COLUMN g_point, DROP COLUMN g_any")
    captured.sql("INSERT INTO every (id, b_medium) VALUES (1, 'x')")
    captured.settle()
    captured.sql(
        "INSERT INTO every (id, b_medium, n_tiny, n_big, n_bits, n_decimal, s_text, s_json, e_set, t_date, t_time, "
        "t_datetime3, t_timestamp, m_inet4, m_inet6) VALUES (2, x'00ff', 127, 0, b'0', 999999.999999, 'ü', "
        "'{\"a\": 1}', '', '9999-12-31', '-838:59:59', '2020-02-29 12:00:00.123', '2038-01-19 03:14:07', "
        "'255.255.255.255', 'ffff::1')",
        "INSERT INTO every (id, b_medium, s_text) VALUES (3, '', 'z')",
        "UPDATE every SET s_varchar = 'new', t_date = NULL, n_big = 5, id = 30 WHERE id = 3",
        "INSERT INTO every (id, b_medium) VALUES (4, '')",
        "DELETE FROM every WHERE id = 4",
    )
    captured.settle()
    assert captured.bring().stopped == {}
    assert captured.differences() == []
    moment = read_published(Path(captured.to))
    assert moment is not None
    assert moment.commit_ts


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


@pytest.mark.soak(sibling="test_statements_are_followed")
def test_rows_that_are_there_are_what_the_source_made_of_them(captured: CapturedSource) -> None:
    """And what can't be known stops that table. What statements make of values is held to MariaDB in test_old_rows.py."""
    for name, (kind, rows, _) in ALTERED.items():
        captured.sql(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v {kind})", f"INSERT INTO {name} VALUES {rows}"
        )
    captured.settle()
    captured.bring()
    for name, (_, _, alter) in ALTERED.items():
        captured.sql(f"ALTER TABLE {name} {alter}", f"UPDATE {name} SET id = 3 WHERE id = 2")
        captured.sql(f"INSERT INTO {name} (id) VALUES (4)")
    captured.settle()
    assert set(captured.bring().stopped) == {"unknown"}
    assert captured.differences(*(name for name in ALTERED if name != "unknown")) == []
