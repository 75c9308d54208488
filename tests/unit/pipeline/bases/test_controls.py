"""Which control entries a base keeps: however often a table is emptied or made anew, few but its schemas stay."""

from __future__ import annotations

from collections import Counter

import pytest

from headrace.entries.entry import Change
from headrace.pipeline.bases.controls import needed_controls
from headrace.pipeline.bases.generations import ControlEntry
from headrace.simple.message import MessageType
from tests.unit.pipeline.tables.simple.history import INT, WORD, Feed, schema_of

NIGHTS = 50
T = ("shop", "t")


def needed(feed: Feed) -> list[tuple[int, str]]:
    """The control entries of a captured feed that stay, but for schemas."""
    controls = [
        ControlEntry(at, one.control, one.table, one.value or b"") for at, one in feed.entries if one.control
    ]
    kept = needed_controls(controls, len(feed.entries))
    assert {one for one in controls if one.control == "schema"} == {
        one for one in controls if one.control == "schema" and (one.sequence_id, one.control) in kept
    }
    return sorted(place for place in kept if place[1] != "schema")


def night(feed: Feed, version: int) -> None:
    """What happens to a table between two nights."""
    schema = schema_of({"id": INT}, version=version)
    feed.row(schema, {"id": version})
    feed.copy(schema)
    feed.copy(schema, ends=True)
    feed.alter("ADD COLUMN n INT", schema_of({"id": INT, "n": INT}, version=version + 1))
    feed.stopped("no key")


def test_a_table_that_is_truncated_every_night() -> None:
    feed = Feed()
    feed.schema(schema_of({"id": INT}))
    at = 0
    for number in range(NIGHTS):
        night(feed, 1 + 10 * number)
        at = feed.ddl(
            MessageType.TRUNCATE, "TRUNCATE t", schema_of({"id": INT}, version=5 + 10 * number), of=T
        )
    feed.row(schema_of({"id": INT}, version=5 + 10 * (NIGHTS - 1)), {"id": 1})
    assert needed(feed) == [(at, "ddl")]


@pytest.mark.parametrize("dropped", [True, False])
def test_a_table_that_is_made_anew_every_night(dropped: bool) -> None:
    feed, made = Feed(), 0
    for number in range(NIGHTS):
        if dropped:
            feed.ddl(MessageType.ERASE, "DROP TABLE t", None, of=T)
        made = feed.ddl(MessageType.CREATE, "CREATE TABLE t", schema_of({"id": INT}, version=number), of=T)
        night(feed, number)
    gone = feed.ddl(MessageType.ERASE, "DROP TABLE t", None, of=T)
    assert needed(feed) == [(gone, "ddl")], "it takes back the schemas that stay"
    feed.entries.pop()
    assert needed(feed)[0] == (made, "ddl")
    assert len(needed(feed)) == 1 + 4, "what is said of the table that there is"


def test_a_table_that_had_another_name_keeps_all() -> None:
    feed, schema = Feed(), schema_of({"id": INT})
    feed.schema(schema)
    feed.stopped("no key")
    feed.ddl(MessageType.RENAME, "RENAME t TO u", schema_of({"id": INT}, name=("shop", "u")), of=T)
    feed.stopped("no key", ("shop", "u"))
    feed.ddl(MessageType.TRUNCATE, "TRUNCATE u", None, of=("shop", "u"))
    feed.ddl(MessageType.ERASE, "DROP TABLE u", None, of=("shop", "u"))
    feed.put(feed.entries[0].change)
    assert [name for _, name in needed(feed)] == ["stopped", "ddl", "stopped", "ddl", "ddl"]


def test_while_a_table_is_copied_a_truncate_takes_nothing_back() -> None:
    feed, schema = Feed(), schema_of({"id": INT})
    feed.schema(schema)
    feed.copy(schema)
    for _ in range(2):
        feed.ddl(MessageType.TRUNCATE, "TRUNCATE t", None, of=T)
    assert Counter(name for _, name in needed(feed)) == {"copy-begin": 1, "ddl": 2}


def test_without_a_schema_nothing_goes() -> None:
    feed = Feed()
    feed.stopped("no key")
    for _ in range(2):
        feed.ddl(MessageType.TRUNCATE, "TRUNCATE t", None, of=T)
    assert len(needed(feed)) == 3, "what was said of a table is all that there is of it"


def test_a_name_that_is_free_again_begins_anew() -> None:
    feed, u = Feed(), ("shop", "u")
    schema, moved = schema_of({"id": INT}), schema_of({"id": INT}, name=u)
    feed.schema(schema)
    renamed = feed.ddl(MessageType.RENAME, "RENAME t TO u", moved, of=T)
    dropped = feed.ddl(MessageType.ERASE, "DROP TABLE u", None, of=u)
    feed.ddl(MessageType.CREATE, "CREATE TABLE u", moved, of=u)
    feed.stopped("no key", u)
    truncated = feed.ddl(MessageType.TRUNCATE, "TRUNCATE u", None, of=u)
    assert [place for place, _ in needed(feed)] == [renamed, dropped, dropped + 1, truncated]
    feed.ddl(MessageType.ERASE, "DROP TABLE u", None, of=u)
    made = feed.ddl(MessageType.CREATE, "CREATE TABLE u", moved, of=u)
    feed.ddl(MessageType.CREATE, "CREATE TABLE t", schema, of=T)
    gone = feed.ddl(MessageType.ERASE, "DROP TABLE t", None, of=T)
    assert [place for place, _ in needed(feed)] == [renamed, dropped, made, gone]


def test_a_truncate_counts_once_the_columns_are_known_and_while_the_table_is_there() -> None:
    feed = Feed()
    made = feed.ddl(MessageType.CREATE, "CREATE TABLE t", schema_of({"id": INT}), of=T, told=False)
    feed.stopped("no key")
    truncated = feed.ddl(MessageType.TRUNCATE, "TRUNCATE t", None, of=T)
    assert needed(feed) == [(made, "ddl"), (truncated, "ddl")]
    gone = feed.ddl(MessageType.ERASE, "DROP TABLE t", None, of=T)
    feed.stopped("no key")
    feed.ddl(MessageType.TRUNCATE, "TRUNCATE t", None, of=T)
    assert needed(feed) == [(gone, "ddl"), (gone + 1, "stopped"), (gone + 2, "ddl")]


def test_a_statement_that_can_not_be_read_takes_nothing_away() -> None:
    feed = Feed()
    feed.schema(schema_of({"id": INT}))
    feed.stopped("no key")
    feed.put(Change(b"no message", key=b"\0ddl", control="ddl", table=T))
    assert needed(feed) == [(2, "stopped"), (3, "ddl")]
    truncated = feed.ddl(MessageType.TRUNCATE, "TRUNCATE t", None, of=T)
    assert needed(feed) == [(truncated, "ddl")], "an empty table goes on"


def test_watermarks_go_with_the_statement_that_they_are_behind() -> None:
    feed = Feed()
    feed.schema(schema_of({"id": INT}))
    feed.alter("ADD COLUMN n INT", schema_of({"id": INT, "n": INT}, version=2))
    first = feed.watermark()
    feed.watermark()
    assert [at for at, name in needed(feed) if name == "watermark"] == [first, first + 1]
    at = feed.ddl(MessageType.TRUNCATE, "TRUNCATE t", None, of=T)
    for _ in range(3):
        feed.watermark()
    assert needed(feed) == [(at, "ddl"), (at + 1, "watermark"), (at + 3, "watermark")]


def test_the_order_in_which_they_are_given_does_not_matter() -> None:
    feed = Feed()
    feed.ddl(MessageType.CREATE, "CREATE TABLE t", schema_of({"id": INT}), of=T)
    night(feed, 1)
    feed.ddl(MessageType.TRUNCATE, "TRUNCATE t", None, of=T)
    controls = [
        ControlEntry(at, one.control, one.table, one.value or b"") for at, one in feed.entries if one.control
    ]
    assert needed_controls(controls[::-1], 9) == needed_controls(controls, 9)
    told = attached("schema t", "truncate t", "copy-begin t", "truncate t")
    assert needed_controls(told[::-1], 9) == {(1, "schema"), (3, "copy-begin"), (4, "truncate")}


def test_the_feeds_last_entry_stays() -> None:
    feed, schema = Feed(), schema_of({"id": INT, "word": WORD})
    feed.schema(schema)
    feed.watermark()
    feed.watermark()
    last = feed.ddl(MessageType.TRUNCATE, "TRUNCATE t", None, of=T)
    controls = [
        ControlEntry(at, one.control, one.table, one.value or b"") for at, one in feed.entries if one.control
    ]
    assert needed_controls(controls, last) == {(1, "schema"), (3, "watermark"), (4, "ddl")}


def attached(*names: str) -> list[ControlEntry]:
    return [
        ControlEntry(at, name.split()[0], (), b'{"database":"main","table":"%s"}' % name.split()[1].encode())
        for at, name in enumerate(names, 1)
    ]


def test_of_attached_tables_the_newest_of_each_kind() -> None:
    told = attached(
        *("schema t", "copy-begin t", "copy-end t", "truncate t", "truncate u", "schema t"),
        *("copy-begin t", "truncate t", "copy-end t", "parked t", "parked t"),
    )
    assert {at for at, _ in needed_controls(told, 99)} == {1, 5, 6, 7, 8, 9, 10, 11}
    odd = [*told, ControlEntry(20, "truncate", (), b"{"), ControlEntry(21, "truncate", (), b'{"table":"t"}')]
    kept = {at for at, _ in needed_controls(odd, 99)}
    assert {8, 20, 21} <= kept, "one that names no table is for who folds it to refuse"
    assert {at for at, _ in needed_controls(attached("truncate t", "truncate t"), 9)} == {1, 2}
