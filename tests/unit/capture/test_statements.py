"""DDL statements by hand -> control entries, and what becomes of the tables that capture knows."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from headrace.capture.catalogue_schema import from_catalogue
from headrace.capture.catalogue_table import CatalogueTable
from headrace.capture.position import CopyProgress
from headrace.capture.tables import Unknown
from headrace.simple import json_codec
from headrace.simple.message import Ddl
from tests.unit.capture.binlog_story import (
    START,
    Story,
    assembler,
    catalogue_table,
    changes_of,
    named,
    shown,
    told,
)


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


def test_a_statement_that_no_entry_holds_stops_its_table_alone() -> None:
    story = Story(t=("id",), u=("id",))
    story.inserted("shop.t", (1,))
    story.inserted("shop.u", (1,))
    story.ddl(f"ALTER TABLE t COMMENT 'x' /* {'x' * (1 << 20)} */")
    story.inserted("shop.t", (2,))
    story.inserted("shop.u", (2,))
    made = assembler(story)
    assert shown(told(made, story.events))[4:] == ["stopped.", 'put ["shop","u","2"].']
    assert list(made.position.stopped) == ["shop.t"]
    assert "the most is" in made.position.stopped["shop.t"]


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


def test_a_gap_that_a_rename_hid_stops_the_table() -> None:
    story = Story(t=("id",))
    story.inserted("shop.t", (1,))
    story.tables[named("shop.u")] = story.tables.pop(named("shop.t"))
    story.gaps[named("shop.u")] = "the foreign key f"
    story.ddl("ALTER TABLE t ADD FOREIGN KEY f (id) REFERENCES p (id)")
    story.ddl("RENAME TABLE t TO u")
    made = assembler(story)
    assert shown(told(made, story.events))[2:] == ["ddl.", "ddl", "schema", "stopped."]
    assert made.position.stopped == {"shop.u": "shop.u: the foreign key f"}


@pytest.mark.parametrize("verb", ["CREATE", "ALTER"])
def test_a_cascade_stops_its_table_though_it_is_gone_by_now(verb: str) -> None:
    story = Story(t=("id",))
    story.inserted("shop.t", (1,))
    added = {
        "CREATE": "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY REFERENCES p (id) ON DELETE CASCADE)",
        "ALTER": "ALTER TABLE t ADD FOREIGN KEY f (id) REFERENCES p (id) ON DELETE CASCADE",
    }
    story.ddl(added[verb])
    story.ddl("ALTER TABLE t DROP FOREIGN KEY f")
    made = assembler(story)
    told(made, story.events)
    assert made.position.stopped == {"shop.t": "shop.t: a foreign key has ON DELETE CASCADE"}


@pytest.mark.parametrize("unknown", [Unknown.STOPS, Unknown.BEGINS_HERE])
def test_a_rename_of_a_temporary_table_changes_nothing(unknown: Unknown) -> None:
    story = Story(t=("id",))
    story.ddl("RENAME TABLE temporary TO t")
    story.inserted("shop.t", (1,))
    schema = from_catalogue(story.tables[named("shop.t")], 1, 1)
    made = assembler(story, schemas=[schema], unknown=unknown)
    assert shown(told(made, story.events)) == ['put ["shop","t","1"].']
    assert (list(made.tables.states), made.tables.waiting) == ([named("shop.t")], {})


@pytest.mark.parametrize("unknown", [Unknown.STOPS, Unknown.COPIED_LATER])
@pytest.mark.parametrize("what", ["rows", "ALTER TABLE t ADD INDEX (id)", "RENAME TABLE u TO t"])
def test_a_table_that_the_server_did_not_list_is_copied_once_something_tells_of_it(
    what: str, unknown: Unknown
) -> None:
    story = Story(t=("id",))
    if what == "rows":
        story.inserted("shop.t", (1,))
    else:
        story.ddl(what)
    made = assembler(story, unknown=unknown)
    assert told(made, story.events) == []
    assert made.position.stopped == {}
    assert not made.position.whole
    if made.tables.waiting and not what.startswith("RENAME"):
        assert made.position.waiting == (("shop", "t"),), "a restart must not need the server to list it"
    assert list(made.tables.waiting) == (
        [] if (what, unknown) == ("rows", Unknown.COPIED_LATER) else [named("shop.t")]
    )


@pytest.mark.parametrize("rows", ["none", "under the new name", "under both"])
@pytest.mark.parametrize("names", [("t", "u"), ("t", "v", "u")])
def test_a_table_that_was_made_and_renamed_before_that_was_read_is_looked_at(
    names: tuple[str, ...], rows: str
) -> None:
    story = Story(t=("id", "secret"), u=("id", "secret"))
    del story.tables[named("shop.t")]
    story.ddl("CREATE TABLE t (id INT PRIMARY KEY, secret INT)")
    if rows == "under both":
        story.inserted("shop.t", (1, 5))
    for old, new in pairwise(names):
        story.ddl(f"RENAME TABLE {old} TO {new}")
    if rows != "none":
        story.inserted("shop.u", (2, 5))
    made = assembler(story, exclude=("shop.t.secret",))
    told_rows = [change.value for change in changes_of(told(made, story.events)) if not change.control]
    assert not any(b'"5"' in value for value in told_rows)
    assert "was hidden in shop.t" in made.position.stopped["shop.u"]


def test_a_table_of_which_the_first_row_tells_is_judged() -> None:
    story = Story(u=("id",))
    story.gaps[named("shop.u")] = "the foreign key f"
    story.ddl("CREATE TABLE t (id INT PRIMARY KEY)")
    story.ddl("RENAME TABLE t TO u")
    story.inserted("shop.u", (1,))
    made = assembler(story)
    assert [one for one in shown(told(made, story.events)) if one.startswith("put")] == []
    assert made.position.stopped == {"shop.u": "shop.u: the foreign key f"}


def test_a_name_that_one_statement_gives_twice_is_stopped() -> None:
    story = Story(a=("id",), b=("id", "w"))
    story.inserted("shop.a", (1,))
    story.inserted("shop.b", (1, 1))
    story.tables[named("shop.y")] = story.tables.pop(named("shop.b"))
    story.ddl("RENAME TABLE a TO x, b TO a, a TO y, x TO a")
    made = assembler(story)
    changes = changes_of(told(made, story.events))
    keys = [change.key for change in changes if change.control == "schema"]
    assert len(keys) == len(set(keys))
    assert list(made.position.stopped) == ["shop.a"]


def test_a_table_that_begins_with_a_rename_is_looked_at() -> None:
    story = Story(t=("id",))
    story.gaps[named("shop.t")] = "the foreign key f"
    story.ddl("RENAME TABLE other.t TO t")
    made = assembler(story, unknown=Unknown.BEGINS_HERE)
    assert shown(told(made, story.events)) == ["stopped."]
    assert made.position.stopped == {"shop.t": "shop.t: the foreign key f"}


def collated(table: CatalogueTable, collation: str) -> CatalogueTable:
    """The table with a text column of this collation as its key."""
    column, *others = table.columns
    text = msgspec.structs.replace(
        column, type="varchar(9)", base_type="varchar", charset="latin1", collation=collation
    )
    return msgspec.structs.replace(table, columns=(text, *others))


_KEYED = catalogue_table("shop.t", "id", "b")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_KEYED, catalogue_table("shop.u", "id", "b", key=("b",))),
        (collated(_KEYED, "latin1_bin"), collated(_KEYED, "latin1_swedish_ci")),
    ],
    ids=["key", "collation"],
)
def test_a_key_that_changes_behind_a_rename_begins_the_copy_anew(
    before: CatalogueTable, after: CatalogueTable
) -> None:
    story = Story()
    story.tables[named("shop.u")] = after
    story.ddl("RENAME TABLE t TO u")
    story.ddl("ALTER TABLE u ADD c INT")
    copy = CopyProgress(("shop", "t"), number=1, last=("5",), rows=5)
    position = msgspec.structs.replace(START, table_id=1, copies=(copy,))
    made = assembler(story, position, [from_catalogue(before, 1, 1)])
    assert shown(told(made, story.events)) == ["ddl", "schema.", "ddl", "schema", "ddl."]
    (copying,) = made.tables.copies.values()
    assert (copying.last, copying.rows) == (None, 0)


@pytest.mark.parametrize(
    ("name", "text"),
    [("shop.t", "shop.t"), ("a.b.c.d", "`a.b`.`c.d`")],
)
def test_names_of_stopped_tables_are_read_again(name: str, text: str) -> None:
    parts = named(name) if name == "shop.t" else named("x.y")._replace(database="a.b", table="c.d")
    story = Story()
    made = assembler(story, tables=("*.*",))
    made.tables.stop(parts, "why")
    assert made.position.stopped == {text: "why"}
    again = assembler(story, made.position, tables=("*.*",))
    assert again.tables.stopped == {parts: "why"}
