"""Which tables a restart takes for held: of each name that was ever captured the feed keeps a schema."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from headrace.capture.catalogue_schema import from_catalogue
from headrace.capture.ddl import TableName
from headrace.capture.position import CopyProgress, SourcePosition
from headrace.capture.selection import Selection
from headrace.capture.tables import Tables, Unknown
from headrace.simple.schema import TableSchema
from tests.unit.capture.binlog_story import START, Story, assembler, catalogue_table, named, schemas_of, told

A, B, C = (named(f"shop.{table}") for table in "abc")


def schema(name: TableName, table_id: int) -> TableSchema:
    return from_catalogue(catalogue_table(".".join(name), "id"), table_id, table_id)


def restored(schemas: Iterable[TableSchema], position: SourcePosition, *patterns: str) -> Tables:
    return Tables.restored(Selection(patterns or ("shop.*",)), Unknown.STOPS, position, schemas)


def kept(tables: Tables) -> SourcePosition:
    """What the source position says of them."""
    return msgspec.structs.replace(
        START,
        copies=tables.progress(),
        waiting=tables.awaited(),
        left_out=tables.left_out(),
        stopped=tables.reasons(),
    )


def test_a_table_that_was_renamed_has_its_newest_name_alone() -> None:
    story = Story(a=("id",))
    story.inserted("shop.a", (1,))
    story.tables[B] = story.tables.pop(A)
    story.ddl("RENAME TABLE a TO b")
    appends = told(assembler(story), story.events)
    again = restored(schemas_of(appends), appends[-1].position)
    assert list(again.states) == [B]


def test_what_waits_under_a_name_that_was_another_tables_waits_still() -> None:
    tables = restored([schema(A, 1)], START)
    tables.waiting[C] = None
    tables.rename(A, B)
    tables.rename(C, A)
    tables.waiting[C] = None
    assert kept(tables).waiting == (("shop", "a"),), "a restart finds c in the source"
    again = restored([schema(A, 1), schema(B, 1)], kept(tables))
    assert (list(again.states), list(again.waiting)) == ([B], [A])


def test_what_the_settings_left_out_is_stale_until_it_is_copied() -> None:
    schemas = [schema(A, 1), schema(B, 2), schema(C, 3)]
    position = msgspec.structs.replace(
        START, copies=(CopyProgress(("shop", "b"), 1, ("5",), 5),), stopped={"shop.c": "why"}
    )
    narrow = restored(schemas, position, "shop.a")
    assert (list(narrow.states), narrow.newly_stale, kept(narrow).left_out) == ([A], [B], ((2, 3),))
    assert (narrow.copies, narrow.stopped) == ({}, {})
    narrower = restored(schemas, kept(narrow), "shop.z")
    assert (narrower.newly_stale, kept(narrower).left_out) == ([A], ((1, 3),))
    assert narrow.take_stale(B) is None, "it is taken out once it is wanted"
    wide = restored(schemas, kept(narrow))
    assert (list(wide.states), wide.newly_stale, wide.awaits_copy(B)) == ([A], [], True)
    assert wide.take_stale(B) == schema(B, 2)
    assert kept(wide).left_out == ((3, 3),)
    assert wide.take_stale(B) is None


@pytest.mark.parametrize("patterns", [("shop.*",), ("shop.a",)])
def test_many_tables_that_are_left_out_take_little_room(patterns: tuple[str, ...]) -> None:
    schemas = [schema(named(f"shop.t{number}"), number) for number in range(1, 1000)]
    tables = restored(schemas, msgspec.structs.replace(START, left_out=((1, 999),)), *patterns)
    assert (tables.states, kept(tables).left_out) == ({}, ((1, 999),))
