"""What becomes of tables: statements, copies and stops, batch by batch, carried out in plain Python."""

from __future__ import annotations

import msgspec
import pytest

from headrace.errors import ValueUnfit
from headrace.pipeline.tables.simple.plan import Control, is_simple, plan
from headrace.pipeline.tables.simple.state import TableState, resumed, stopped
from headrace.pipeline.tables.simple.steps import Empty, Erase, Evolve, Make, RenameTo, Rows, Step, Stop
from headrace.simple.message import MessageType
from tests.unit.pipeline.tables.simple.history import (
    INT,
    WORD,
    Feed,
    schema_of,
)
from tests.unit.pipeline.tables.simple.played import Played, T, kinds, rows
from tests.unit.pipeline.tables.simple.steps_folded import Tables


def test_a_table_begins_with_its_schema() -> None:
    feed, tables = Feed(), Tables()
    schema = schema_of({"id": INT, "a": WORD})
    feed.schema(schema)
    assert kinds(tables.take(feed.entries)) == ["Make"]
    assert rows(tables) == []
    (state,) = tables.states
    assert (state.identity, state.name, state.made, state.adopted) == (1, T, True, None)
    assert msgspec.json.decode(msgspec.json.encode(state), type=TableState) == state


def test_rows_are_merged_in_one_step_as_long_as_columns_and_key_stay() -> None:
    feed, tables = Feed(), Tables()
    schema, indexed = schema_of({"id": INT, "a": INT}), schema_of({"id": INT, "a": INT}, version=2)
    feed.schema(schema)
    feed.row(schema, {"id": 1, "a": 1})
    feed.row(schema, {"id": 2, "a": 2})
    feed.ddl(MessageType.CINDEX, "CREATE INDEX i ON t (a)", indexed)
    feed.row(indexed, {"id": 1, "a": 3}, {"id": 1, "a": 1})
    feed.row(indexed, None, {"id": 2, "a": 2})
    steps = tables.take(feed.entries)
    assert kinds(steps) == ["Make", "Rows"]
    assert isinstance(steps[1], Rows)
    assert (steps[1].first, steps[1].last) == (2, len(feed.entries))
    assert rows(tables) == [{"id": 1, "a": 3}]


def test_an_update_that_changes_the_key_moves_the_row() -> None:
    played = Played()
    played.feed.row(played.was, {"id": 9, "a": 5}, {"id": 1, "a": 5})
    played.take()
    assert rows(played.tables) == [{"id": 9, "a": 5}]


def test_a_stopped_table_leaves_the_others_running_and_goes_on_with_a_copy() -> None:
    played = Played()
    other = schema_of({"id": INT}, name=("shop", "u"))
    played.feed.alter("ADD c INT AS (a + 1)", played.was)
    played.feed.row(played.was, {"id": 2, "a": 6})
    played.feed.schema(other)
    played.feed.row(other, {"id": 1})
    assert kinds(played.take()) == ["Stop", "Make", "Rows"]
    assert rows(played.tables, ("shop", "u")) == [{"id": 1}]
    now = schema_of({"id": INT, "a": INT, "c": INT}, version=5)
    played.feed.schema(now)
    played.feed.row(now, {"id": 7, "a": 0, "c": 1})
    assert played.take() == []
    played.feed.copy(now)
    played.feed.row(now, {"id": 1, "a": 5, "c": 6})
    assert kinds(played.take()) == ["Empty", "Rows"]
    assert [state.copying for state in played.tables.states] == [True, False]
    played.feed.copy(now, ends=True)
    played.take()
    assert [state.copying for state in played.tables.states] == [False, False]
    assert rows(played.tables) == [{"id": 1, "a": 5, "c": 6}]


def test_capture_stops_a_table() -> None:
    played = Played()
    played.feed.stopped("a cascade")
    played.feed.stopped("too large", ("shop", "never"))
    first, second = played.take()
    assert isinstance(first, Stop)
    assert "a cascade" in first.reason
    assert isinstance(second, Stop)
    assert not second.state.made
    played.feed.ddl(MessageType.TRUNCATE, "TRUNCATE TABLE t", played.was)
    assert kinds(played.take()) == ["Empty"]
    assert rows(played.tables) == []


def test_truncate_takes_out_what_was_before_it() -> None:
    played = Played()
    played.feed.row(played.was, {"id": 2, "a": 6})
    played.feed.alter("ADD c INT DEFAULT (a)", played.was)
    shown = schema_of({"id": INT, "b": WORD}, version=9)
    played.feed.ddl(MessageType.TRUNCATE, "TRUNCATE TABLE t", shown)
    played.feed.row(shown, {"id": 3, "b": "x"})
    assert kinds(played.take()) == ["Empty", "Empty", "Rows"]
    assert rows(played.tables) == [{"id": 3, "b": "x"}]


def test_without_rows_the_next_schema_says_all() -> None:
    feed, tables = Feed(), Tables()
    early = schema_of({"id": INT, "later": INT})
    feed.ddl(MessageType.CREATE, "CREATE TABLE t (id INT PRIMARY KEY)", early)
    tables.take(feed.entries)
    first = schema_of({"id": INT}, version=2)
    feed.alter("ADD x INT AS (id) STORED", early)
    feed.schema(first)
    feed.row(first, {"id": 1})
    assert kinds(tables.take(feed.entries[2:])) == ["Empty", "Rows"]
    assert rows(tables) == [{"id": 1}]


def test_statements_about_tables_that_are_not_there() -> None:
    feed, tables = Feed(), Tables()
    schema = schema_of({"id": INT})
    feed.ddl(MessageType.ALTER, "ALTER TABLE t DROP y", schema, told=False)
    feed.ddl(MessageType.TRUNCATE, "TRUNCATE TABLE t", schema, told=False)
    feed.ddl(MessageType.ERASE, "DROP TABLE t", schema, told=False)
    feed.ddl(MessageType.RENAME, "RENAME TABLE t TO u", schema, told=False)
    feed.ddl(MessageType.QUERY, "DROP DATABASE x", None, of=("x", ""))
    assert tables.take(feed.entries) == []
    assert tables.states == ()


def test_drop_and_create_make_another_table() -> None:
    played = Played()
    played.feed.ddl(MessageType.ERASE, "DROP TABLE t", played.was, told=False)
    at = played.feed.ddl(
        MessageType.CREATE, "CREATE TABLE t (id INT PRIMARY KEY)", schema_of({"id": INT}, version=2)
    )
    steps = played.take()
    assert kinds(steps) == ["Erase", "Make"]
    assert [step.identity for step in steps] == [1, at]
    assert rows(played.tables) == []


def test_a_table_that_comes_and_goes_in_a_batch_is_never_made() -> None:
    feed, tables = Feed(), Tables()
    schema = schema_of({"id": INT})
    feed.ddl(MessageType.CREATE, "CREATE TABLE t (id INT PRIMARY KEY)", schema)
    feed.row(schema, {"id": 1})
    feed.ddl(MessageType.ERASE, "DROP TABLE t", schema, told=False)
    assert tables.take(feed.entries) == []


def test_two_tables_change_names() -> None:
    played = Played()
    other = schema_of({"id": INT, "z": INT}, name=("shop", "u"))
    played.feed.schema(other)
    played.feed.row(other, {"id": 1, "z": 1})
    names = [(T, ("shop", "x")), (("shop", "u"), T), (("shop", "x"), ("shop", "u"))]
    schemas = {T: played.was, ("shop", "u"): other}
    for old, new in names:
        schemas[new] = msgspec.structs.replace(schemas.pop(old), schema=new[0], table=new[1], version=40)
        played.feed.ddl(
            MessageType.RENAME, f"RENAME TABLE {old[1]} TO {new[1]}", schemas[new], of=old, told=False
        )
        played.feed.schema(schemas[new])
    played.feed.row(schemas[T], {"id": 2, "z": 2})
    played.feed.row(schemas["shop", "u"], {"id": 3, "a": 3})
    played.feed.watermark()
    steps = played.take()
    assert sum(isinstance(step, RenameTo) for step in steps) == 3
    assert rows(played.tables) == [{"id": 1, "z": 1}, {"id": 2, "z": 2}]
    assert rows(played.tables, ("shop", "u")) == [{"id": 1, "a": 5}, {"id": 3, "a": 3}]


def test_a_table_that_leaves_the_capture_by_its_name_stops() -> None:
    played = Played()
    gone = msgspec.structs.replace(played.was, table="elsewhere", version=2)
    played.feed.ddl(MessageType.RENAME, "RENAME TABLE t TO elsewhere", gone, told=False)
    assert kinds(played.take()) == ["RenameTo"]
    played.feed.watermark()
    (stop,) = played.take()
    assert isinstance(stop, Stop)
    assert "elsewhere" in stop.reason


def test_a_new_key_holds_from_the_first_row_of_its_version() -> None:
    played = Played()
    rekeyed = schema_of({"id": INT, "a": INT}, version=2, key=("a",))
    played.feed.alter("DROP PRIMARY KEY, ADD PRIMARY KEY (a)", rekeyed)
    still = schema_of({"id": INT, "a": INT}, version=3)
    played.feed.schema(still)
    played.feed.row(still, {"id": 1, "a": 6}, {"id": 1, "a": 5})
    played.feed.schema(rekeyed)
    played.feed.row(rekeyed, {"id": 2, "a": 6}, {"id": 1, "a": 6})
    steps = played.take()
    assert [step.reading.key for step in steps if isinstance(step, Rows)] == [("id",), ("a",)]
    assert rows(played.tables) == [{"id": 2, "a": 6}]


def test_rows_that_nothing_tells_apart_stop_the_table() -> None:
    played = Played()
    bare = schema_of({"id": INT, "a": INT}, version=2, key=())
    played.feed.alter("DROP PRIMARY KEY", bare)
    played.feed.row(bare, {"id": 1, "a": 5})
    *_, stop = played.take()
    assert isinstance(stop, Stop)
    assert "tells its rows apart" in stop.reason


def test_what_stands_under_a_new_name_is_gone_at_the_source() -> None:
    played = Played()
    stale = schema_of({"id": INT}, name=("shop", "u"))
    played.feed.schema(stale)
    played.feed.row(stale, {"id": 1})
    played.take()
    moved = msgspec.structs.replace(played.was, table="u", version=2)
    played.feed.ddl(MessageType.RENAME, "RENAME TABLE t TO u", moved)
    assert sorted(kinds(played.take())) == ["Erase", "RenameTo"]
    assert rows(played.tables, ("shop", "u")) == [{"id": 1, "a": 5}]


def test_a_step_that_fails_keeps_the_state_before_it_and_goes_on_from_there() -> None:
    played = Played()
    before = played.tables.states
    now = schema_of({"id": INT, "a": INT, "c": INT}, version=2)
    played.feed.alter("ADD c INT", now)
    played.feed.row(now, {"id": 2, "a": 1, "c": 1})
    evolve, merged = played.take()
    kept = stopped(evolve.state, "a value does not fit")
    assert (kept.stopped, resumed(kept)) == ("a value does not fit", evolve.state)
    controls = [Control(99, "ddl", T, b"{}")]
    assert plan((kept,), controls, [], feed="shop").steps == []
    assert before[0].columns != evolve.state.columns == merged.state.columns


def test_one_table_alone_is_planned_anew_under_all_its_names() -> None:
    played = Played()
    other = schema_of({"id": INT}, name=("shop", "u"))
    moved = msgspec.structs.replace(played.was, table="m", version=2)
    played.feed.schema(other)
    played.feed.ddl(MessageType.RENAME, "RENAME TABLE t TO m", moved, told=False)
    played.feed.schema(moved)
    controls = [Control(at, one.control, one.table, one.value or b"") for at, one in played.feed.entries[2:]]
    found = plan(played.tables.states, controls, [], feed="shop", only=1)
    assert [state.name for state in found.tables] == [("shop", "m")]
    assert kinds(found.steps) == ["RenameTo"]


def test_watermarks_are_told() -> None:
    played = Played()
    played.feed.watermark()
    played.feed.watermark()
    assert played.take() == []
    assert played.tables.watermark == played.feed.commit_ts
    with pytest.raises(ValueUnfit, match="sequence id 9"):
        plan((), [Control(9, "watermark", (), b"{}")], [], feed="shop")


def test_a_control_entry_that_can_not_be_read_stops_its_table() -> None:
    played = Played()
    found = plan(played.tables.states, [Control(9, "schema", T, b"[]")], [], feed="shop")
    assert kinds(found.steps) == ["Stop"]


def test_rows_without_a_schema_stop() -> None:
    feed, tables = Feed(), Tables()
    feed.row(schema_of({"id": INT}), {"id": 1})
    (stop,) = tables.take(feed.entries)
    assert isinstance(stop, Stop)
    assert "no schema entry" in stop.reason


def test_schemas_of_simple_feeds_are_told_from_others() -> None:
    feed = Feed()
    feed.schema(schema_of({"id": INT}))
    assert is_simple(feed.entries[0].change.value or b"")
    assert not is_simple(b'{"columns": []}')
    assert not is_simple(b"\xff")


def test_the_kinds_of_steps() -> None:
    """Every kind of step comes from somewhere above."""
    assert {kind.__name__ for kind in Step.__subclasses__()} == {
        kind.__name__ for kind in (Make, Empty, Erase, RenameTo, Stop, Evolve, Rows)
    }


def test_a_copy_that_begins_anew_is_whole_at_its_end_alone() -> None:
    """Capture empties a table whose key changes while it is copied, and goes on without another copy-begin."""
    feed, tables = Feed(), Tables()
    schema = schema_of({"id": INT, "a": INT})
    feed.schema(schema)
    feed.copy(schema)
    feed.row(schema, {"id": 1, "a": 1})
    tables.take(feed.entries)
    assert [state.copying for state in tables.states] == [True]
    done = len(feed.entries)
    feed.ddl(MessageType.TRUNCATE, "TRUNCATE TABLE t", schema_of({"id": INT, "a": INT}, version=2))
    tables.take(feed.entries[done:])
    assert [state.copying for state in tables.states] == [True]
    done = len(feed.entries)
    feed.copy(schema, ends=True)
    tables.take(feed.entries[done:])
    assert [state.copying for state in tables.states] == [False]
