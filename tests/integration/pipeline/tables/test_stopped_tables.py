"""A table that can't be followed stops alone, keeps its place, and comes back: resumed, built anew, or copied once more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.cli.app import main
from headrace.errors import StaleTable, TableNotFound, TableNotPublished
from headrace.pipeline.tables.holding import listener_of
from headrace.pipeline.tables.job import read_tables
from headrace.pipeline.tables.ledger import Ledger, read_published, read_tables_file
from headrace.pipeline.tables.reader import read_table
from headrace.pipeline.tables.simple.state import stopped
from headrace.pipeline.tables.states import CapturedTable, StopNote
from tests.integration.pipeline.tables.captured_source import CapturedSource


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """Run a pipeline command; returns its exit code and its document."""
    capsys.readouterr()
    code = main(["pipeline", *words, "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, document


def table_of(source: CapturedSource, name: str) -> CapturedTable:
    """A captured table as the ledger has it."""
    file = read_tables_file(Path(source.to))
    assert file is not None
    return next(one for one in file.tables or () if one.table[1] == name)


def halt(source: CapturedSource, name: str) -> int:
    """Stop a table as if something had not fitted behind what is published; returns its place."""
    incarnation = source.server.http.get(f"/feeds/{source.feed}").json()["incarnation"]
    ledger = Ledger(Path(source.to), source.feed, incarnation)
    table = next(one for one in ledger.tables if one.table[1] == name)
    assert table.state is not None
    after = ledger.published.sequence_id if ledger.published is not None else 0
    note = StopNote(
        after=after, state=table.state, code="value-unfit", reason="it did not fit", hint="Mend it.", at="now"
    )
    halted = stopped(table.state, "it did not fit")
    ledger.update(msgspec.structs.replace(table, state=halted, place=after, stopped=note))
    ledger.close()
    return after


def held_at(source: CapturedSource) -> int:
    """Where the job's listener holds retention."""
    incarnation = source.server.http.get(f"/feeds/{source.feed}").json()["incarnation"]
    ledger = Ledger(Path(source.to), source.feed, incarnation)
    name = listener_of(ledger)
    ledger.close()
    listeners = source.server.http.get(f"/feeds/{source.feed}").json()["listeners"]
    found = next(one for one in listeners if one["listener-id"] == name)
    assert found["hold"]
    return int(found["sequence-id"])


def test_a_stopped_table_keeps_its_place_and_is_resumed_or_built_anew(
    captured: CapturedSource, capsys: pytest.CaptureFixture[str]
) -> None:
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(10))",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 'x'), (2, 'y')",
    )
    captured.settle()
    captured.bring()
    database = captured.database.name
    place = halt(captured, "t")
    captured.sql(
        "DELETE FROM t WHERE id = 1",
        "ALTER TABLE t RENAME COLUMN a TO b, ADD COLUMN n INT NOT NULL DEFAULT 3",
        "INSERT INTO t VALUES (3, 'z', 9)",
        "INSERT INTO other VALUES (1)",
    )
    captured.settle()
    summary = captured.run()
    assert [(one.table[1], one.after) for one in summary.stopped] == [("t", place)]
    assert captured.differences("other") == []
    assert held_at(captured) == place
    moment = read_published(Path(captured.to))
    assert moment is not None
    assert {one.table[1]: one.stopped_after or None for one in moment.tables} == {"t": place, "other": None}
    with pytest.raises(StaleTable, match=f"stopped after sequence id {place}"):
        read_table(captured.spark, captured.to, (database, "t"))
    with pytest.raises(TableNotPublished, match="other"):
        read_table(captured.spark, captured.to, (database, "none"))
    assert read_table(captured.spark, captured.to, (database, "t"), stopped=True).count() == 2

    words = ("--to", captured.to)
    code, standing = command(capsys, "status", *words, "--server", captured.server.url)
    assert code == 1
    shown = {one["table"][1]: one for one in standing["tables"]}
    assert (shown["t"]["state"], shown["t"]["sequence-id"]) == ("stopped", place)
    assert "headrace pipeline tables resume" in shown["t"]["next"]
    assert shown["t"]["lag-entries"] == standing["head-sequence-id"] - place
    assert (shown["other"]["state"], standing["server-error"]) == ("running", None)

    code, asked = command(capsys, "tables", "resume", f"{database}.t", *words)
    assert (code, asked["request"]) == (0, "resume")
    code, refused = command(capsys, "tables", "resume", f"{database}.other", *words)
    assert (code, refused["code"]) == (2, "usage")
    code, refused = command(capsys, "tables", "rebuild", f"{database}.none", *words)
    assert (code, refused["code"]) == (2, TableNotFound.code)
    assert captured.run().stopped == []
    assert captured.differences() == []
    assert held_at(captured) >= place + 5

    path, version = table_of(captured, "t").path, read_tables(captured.spark, captured.to)
    command(capsys, "tables", "rebuild", f"{database}.t", *words)
    captured.sql("INSERT INTO t VALUES (4, NULL, 4)")
    captured.settle()
    captured.run()
    assert captured.differences() == []
    assert table_of(captured, "t").path != path
    # What was loaded before still shows what it did.
    assert version[database, "t"].count() == 2


def test_what_capture_or_a_statement_stops_goes_on_with_its_copy(captured: CapturedSource) -> None:
    """The copy of ``u`` tells no schema again: the one that its ALTER told before the table stopped holds."""
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(10))",
        "CREATE TABLE u (id INT PRIMARY KEY, n INT)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 'x')",
        "INSERT INTO u VALUES (1, 300)",
    )
    captured.settle()
    captured.sql(
        "ALTER TABLE t ADD COLUMN g POINT",
        "INSERT INTO t VALUES (2, 'y', NULL)",
        "INSERT INTO other VALUES (7)",
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
    assert captured.differences("other") == []
    captured.sql("ALTER TABLE t DROP COLUMN g", "DELETE FROM t WHERE id = 1")
    for name in ("t", "u"):
        code, _, err = captured.capture.run("copy", f"{captured.database.name}.{name}")
        assert code == 0, err
    captured.settle()
    assert captured.bring().stopped == {}
    assert captured.differences() == []
