"""A table that capture or a statement stops comes back with its copy. What operators ask for is in test_requests.py."""

from __future__ import annotations

from tests.integration.pipeline.tables.captured_source import CapturedSource


def test_what_capture_or_a_statement_stops_goes_on_with_its_copy(captured: CapturedSource) -> None:
    """The copy of ``u`` tells no schema again: the one that its ALTER told before the table stopped holds."""
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(10))",
        "CREATE TABLE u (id INT PRIMARY KEY, n INT)",
        "INSERT INTO t VALUES (1, 'x')",
        "INSERT INTO u VALUES (1, 300)",
    )
    captured.settle()
    captured.sql(
        "ALTER TABLE t ADD COLUMN g POINT",
        "INSERT INTO t VALUES (2, 'y', NULL)",
    )
    with captured.database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute("ALTER TABLE u MODIFY n TINYINT UNSIGNED")
        cursor.execute("INSERT INTO u VALUES (2, 7)")
        connection.commit()
    captured.settle()
    summary = captured.run()
    of_capture, of_statement = sorted(summary.stopped, key=lambda one: one.table)
    assert (of_capture.table[1], of_statement.table[1]) == ("t", "u")
    assert "capture copy" in of_capture.hint
    assert "n: a value may have changed when it became tinyint unsigned" in of_statement.reason
    captured.sql("ALTER TABLE t DROP COLUMN g", "DELETE FROM t WHERE id = 1")
    for name in ("t", "u"):
        code, _, err = captured.capture.run("copy", f"{captured.database.name}.{name}")
        assert code == 0, err
    captured.settle()
    assert captured.bring().stopped == {}
    assert captured.differences() == []
