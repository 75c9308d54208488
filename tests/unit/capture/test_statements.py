"""DDL statements by hand -> control entries, and what becomes of the tables that capture knows."""

from __future__ import annotations

import pytest

from headrace.simple import json_codec
from headrace.simple.message import Ddl
from tests.unit.capture.binlog_story import Story, assembler, changes_of, named, shown, told


def test_ddl_brings_the_schemas_before_and_after_it() -> None:
    story = Story(t=("id",))
    story.inserted("shop.t", (1,))
    story.ddl("TRUNCATE TABLE t")
    story.tables[named("shop.u")] = story.tables.pop(named("shop.t"))
    story.ddl("RENAME TABLE t TO u")
    story.ddl("DROP TABLE u")
    appends = told(assembler(story), story.events)
    assert shown(appends) == [
        "schema",
        'put ["shop","t","1"].',
        "ddl",
        "schema.",
        "ddl",
        "schema.",
        "ddl.",
    ]
    messages = [json_codec.decode(change.value) for change in changes_of(appends) if change.control == "ddl"]
    ids = [
        (
            message.type,
            message.pre_table_schema and message.pre_table_schema.table_id,
            message.table_schema and (message.table_schema.table, message.table_schema.table_id),
        )
        for message in messages
        if isinstance(message, Ddl)
    ]
    assert ids == [("TRUNCATE", 1, ("t", 2)), ("RENAME", 2, ("u", 2)), ("ERASE", 2, ("u", 2))]


def test_a_database_goes_with_its_tables() -> None:
    story = Story(t=("id",), u=("id",))
    story.inserted("shop.t", (1,))
    story.inserted("shop.u", (1,))
    story.ddl("DROP DATABASE shop", database="")
    made = assembler(story)
    assert shown(told(made, story.events))[-3:] == ["ddl", "ddl", "ddl."]
    assert made.tables.states == {}


def test_a_statement_that_can_not_be_read_stops_the_tables_that_it_names() -> None:
    story = Story(t=("id",), u=("id",))
    story.inserted("shop.t", (1,))
    story.inserted("shop.u", (1,))
    story.ddl("CREATE WONDER FOR u")
    made = assembler(story)
    assert shown(told(made, story.events))[-1] == "stopped."
    assert list(made.position.stopped) == ["shop.u"]


def test_a_table_with_a_gap_stops() -> None:
    story = Story()
    story.create("shop.t", "id")
    story.gaps[named("shop.t")] = "the foreign key f"
    story.ddl("CREATE TABLE t (id INT PRIMARY KEY)")
    story.inserted("shop.t", (1,))
    made = assembler(story)
    assert shown(told(made, story.events)) == ["ddl", "schema", "stopped."]
    assert made.position.stopped == {"shop.t": "shop.t: the foreign key f"}


@pytest.mark.parametrize(
    ("name", "text"),
    [("shop.t", "shop.t"), ("a.b.c.d", "`a.b`.`c.d`")],
)
def test_names_of_stopped_tables_are_read_again(name: str, text: str) -> None:
    parts = named(name) if name == "shop.t" else named("x.y")._replace(database="a.b", table="c.d")
    story = Story()
    made = assembler(story)
    made.tables.stop(parts, "why")
    assert made.position.stopped == {text: "why"}
    again = assembler(story, made.position)
    assert again.tables.stopped == {parts: "why"}
