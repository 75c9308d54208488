"""What a base keeps of single keys, and that a key with many entries takes no more memory than one with few."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headrace.entries.entry import Change, Op
from headrace.errors import QueryFailed
from headrace.pipeline.bases.folding import kept_batches
from headrace.pipeline.bases.generations import ControlEntry, generations_of, needed_watermarks
from headrace.pipeline.bases.patches import joined_patch
from headrace.simple import json_codec
from headrace.simple.message import MessageType
from headrace.wire.kwal_columns import SCHEMA
from tests.bases import based, row_of
from tests.simple_tables import insert, table
from tests.unit.pipeline.tables.simple.history import INT, Feed, schema_of
from tests.unit.pipeline.tables.simple.steps_folded import Entry

ROWS = 2000
BATCHES = 20


def entries(*changes: Change) -> list[Entry]:
    return [Entry(at, change) for at, change in enumerate(changes, 1)]


def test_a_put_takes_the_place_of_all_before_it() -> None:
    told = entries(
        Change(b'{"a":1}', key=b"k"),
        Change(b'{"b":2}', key=b"k", op=Op.PATCH),
        Change(b'{"c":1}', key=b"gone"),
        Change(b"{}", key=b"gone", op=Op.DELETE),
        Change(b'{"d":1}', key=b"last", op=Op.PATCH),
        Change(b'{"e":null}', key=b"last", op=Op.PATCH),
        Change(b"{}", key=b"the end", op=Op.DELETE),
    )
    kept = [(one.sequence_id, str(one.change.op), one.change.value) for one in based(told)]
    # What a patch went into stays a patch: tables would miss members in a put.
    assert kept == [(2, "patch", b'{"a":1,"b":2}'), (6, "patch", b'{"d":1}'), (7, "delete", b"{}")]


def test_a_feeds_last_entry_is_kept_though_it_is_a_deletion_and_other_keys_stand_behind_it() -> None:
    told = entries(
        Change(b'{"a":1}', key=b"z"),
        Change(b"{}", key=b"b", op=Op.DELETE),
        Change(b"{}", key=b"a", op=Op.DELETE),
    )
    assert [(one.sequence_id, str(one.change.op)) for one in based(told)] == [(1, "put"), (3, "delete")]


def test_a_put_with_nulls_and_its_patches_stay_two_entries() -> None:
    told = entries(
        Change(b'{"a":1,"z":null}', key=b"k"),
        Change(b'{"a":null}', key=b"k", op=Op.PATCH),
        Change(b'{"a":{"b":1}}', key=b"k", op=Op.PATCH),
        Change(b'{"a":3}', key=b"k", op=Op.PATCH),
        Change(b'{"a":{"c":1}}', key=b"k", op=Op.PATCH),
    )
    kept = [(one.sequence_id, str(one.change.op), one.change.value) for one in based(told)]
    assert kept == [(4, "put", b'{"z":null,"a":3}'), (5, "patch", b'{"a":{"c":1}}')]


def test_a_patch_that_can_not_be_merged_is_kept_for_who_says_why() -> None:
    told = entries(Change(b"{}", key=b"k"), Change(b"no json", key=b"k", op=Op.PATCH))
    assert based(told) == told


def test_entries_of_one_key_in_two_tables_all_count() -> None:
    told = entries(
        Change(b'{"a":1}', key=b"k", table=("main", "t")),
        Change(b'{"b":1}', key=b"k", op=Op.PATCH, table=("main", "u")),
        Change(b'{"c":1}', key=b"k", op=Op.PATCH, table=("main", "t")),
    )
    assert [one.sequence_id for one in based(told)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        (b'{"a":1,"b":null}', b'{"c":{"d":1}}', b'{"a":1,"b":null,"c":{"d":1}}'),
        (b'{"a":{"b":1}}', b'{"a":{"c":null}}', b'{"a":{"b":1,"c":null}}'),
        (b'{"a":1}', b'{"a":{"b":1}}', None),
        (b'{"a":null}', b'{"a":{"b":1}}', None),
        (b"[]", b"{}", None),
    ],
)
def test_two_patches_as_one(first: bytes, second: bytes, both: bytes | None) -> None:
    assert joined_patch(first, second) == both


def test_an_update_of_a_key_stays_and_so_does_what_is_no_message() -> None:
    feed, schema = Feed(), schema_of({"id": INT, "n": INT})
    feed.schema(schema)
    feed.row(schema, {"id": 2, "n": 1}, {"id": 1, "n": 1})
    feed.row(schema, {"id": 2, "n": 2}, {"id": 2, "n": 1})
    feed.raw(schema, b"no message")
    feed.row(schema, {"id": 2, "n": 3}, {"id": 2, "n": 2})
    feed.row(schema, {"id": 2, "n": 4}, {"id": 2, "n": 3})
    assert [one.sequence_id for one in based(under(feed.entries, b'["shop","t",2]'))] == [1, 2, 4, 6]


def under(entries: Sequence[Entry], *keys: bytes) -> list[Entry]:
    """Entries whose rows have these keys, in turn."""
    turn = itertools.cycle(keys)
    return [
        Entry(at, one if one.control else msgspec.structs.replace(one, key=next(turn))) for at, one in entries
    ]


@pytest.mark.parametrize("rows_max", [1, 2, 7])
def test_of_keys_that_are_none_of_captures_every_entry_is_kept(rows_max: int) -> None:
    feed, schema = Feed(), schema_of({"id": INT, "n": INT})
    feed.schema(schema)
    one, two = {"id": 1, "n": 1}, {"id": 2, "n": 1}
    feed.row(schema, one)
    feed.row(schema, two)
    feed.row(schema, None, two)
    told = under(feed.entries, b"all")
    assert based(told, rows_max=rows_max) == told, "row 1 is there, though the key's last entry is a deletion"
    # A deletion alone under one of capture's keys may be that of a row under another one.
    feed.row(schema, None, one)
    feed.row(schema, {"id": 3, "n": 1})
    told = under(feed.entries, b"all", b"all", b"all", b'["shop","t",1]', b'["shop","t",3]')
    assert based(told, rows_max=rows_max) == told
    # An emptied table has no rows, whatever their keys were.
    at = feed.ddl(MessageType.TRUNCATE, "TRUNCATE t", None, of=("shop", "t"))
    assert [entry.sequence_id for entry in based(under(feed.entries, b"all"), rows_max=rows_max)] == [1, at]


def test_of_watermarks_the_newest_and_the_first_behind_a_statement() -> None:
    names = ["watermark", "watermark", "ddl", "schema", "watermark", "watermark", "watermark"]
    told = [ControlEntry(at, name, (), b"") for at, name in enumerate(names, 1)]
    assert needed_watermarks(told) == {5, 7}
    assert needed_watermarks([]) == set()


def _batches(make: Callable[[int], Change]) -> Iterator[Any]:
    """Batches of one key, each made when it is asked for."""
    for number in range(BATCHES):
        rows = [row_of(Entry(number * ROWS + at, make(number * ROWS + at))) for at in range(1, ROWS + 1)]
        yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def _kept_of(make: Callable[[int], Change], controls: Sequence[ControlEntry] = ()) -> tuple[int, list[Any]]:
    """Fold a hot key; return the most that was in memory, and what is kept."""
    known = {"shop": generations_of(controls, ROWS * BATCHES)}
    most, kept = 0, []
    before = pa.total_allocated_bytes()
    for batch in kept_batches(_batches(make), known):
        most = max(most, pa.total_allocated_bytes() - before)
        kept += [(row["sequence_id"], row["op"]) for row in batch.to_pylist()]
    return most, sorted(kept)


def _captured() -> tuple[bytes, list[ControlEntry]]:
    schema = table("shop.t", "a", "b")
    feed = Feed()
    feed.schema(schema)
    message = json_codec.encode(insert(schema, 7, a="1", b="2")) + b" " * 500
    return message, [ControlEntry(0, "schema", ("shop", "t"), feed.entries[0].change.value)]


PAD = " " * 500
MEMORY_MAX = 3 * ROWS * 1200
"""Three batches."""


@pytest.mark.parametrize("kind", ["put", "patch", "captured", "two tables"])
def test_a_hot_key_takes_little_memory(kind: str) -> None:
    message, controls = _captured()

    def make(number: int) -> Change:
        if kind == "captured":
            value = message.replace(b'"commitTs":7', b'"commitTs":%d' % number)
            return Change(value, key=b'["shop","t",1]', table=("shop", "t"))
        value = json.dumps({"n": number, "pad": PAD}).encode()
        op = Op.PATCH if kind == "patch" and number > 1 else Op.PUT
        table = ("main", "tu"[number % 2]) if kind == "two tables" else ()
        return Change(value, key=b"hot", op=op, table=table)

    most, kept = _kept_of(make, controls if kind == "captured" else ())
    last = ROWS * BATCHES
    others = [(last - 1, "put")] if kind == "two tables" else []
    assert kept == [*others, (last, "patch" if kind == "patch" else "put")]
    assert most < MEMORY_MAX


@pytest.mark.parametrize("kind", ["patches", "two tables", "no capture's key", "no messages"])
def test_a_hot_key_whose_entries_all_count_takes_little_memory(kind: str) -> None:
    message, controls = _captured()

    def make(number: int) -> Change:
        if kind in {"no capture's key", "no messages"}:
            key, value = (
                (b"hot", message) if kind == "no capture's key" else (b'["shop","t",1]', PAD.encode())
            )
            return Change(value, key=key, table=("shop", "t"))
        # No patch says "this object and nothing else", so none joins two of these.
        value = json.dumps({"a": {"n": number} if number % 2 else number, "pad": PAD}).encode()
        if kind == "patches" and number == ROWS * BATCHES:
            return Change(b"{}", key=b"hot", op=Op.DELETE)
        table = ("main", "tu"[number // 2 % 2]) if kind == "two tables" else ()
        return Change(value, key=b"hot", op=Op.PATCH, table=table)

    most, kept = _kept_of(make, controls if "capture" in kind or kind == "no messages" else ())
    last = ROWS * BATCHES
    assert kept[-1] == (last, {"patches": "delete", "two tables": "patch"}.get(kind, "put"))
    if kind != "patches":
        assert [at for at, _ in kept] == list(range(1, last + 1))
    assert most < MEMORY_MAX


def test_what_went_out_is_below_all_that_comes() -> None:
    told = entries(
        Change(b'{"z":null}', key=b"gone"),
        Change(b'{"a":1}', key=b"gone", op=Op.PATCH),
        Change(b'{"z":null}', key=b"put"),
        Change(b'{"a":1}', key=b"put", op=Op.PATCH),
        Change(b"{}", key=b"gone", op=Op.DELETE),
        Change(b'{"c":1}', key=b"put"),
        Change(b'{"d":1}', key=b"put", op=Op.PATCH),
    )
    kept = based(told, rows_max=1, held_bytes_max=0)
    assert [one.sequence_id for one in kept] == [1, 3, 5, 6, 7]
    feed, schema = Feed(), schema_of({"id": INT})
    feed.schema(schema)
    feed.raw(schema, b"no message")
    feed.row(schema, {"id": 2})
    feed.row(schema, None, {"id": 2})
    feed.watermark()
    kept = based(under(feed.entries, b'["shop","t",2]'), rows_max=1, held_bytes_max=0)
    assert [one.sequence_id for one in kept] == [1, 2, 4, 5]


def test_a_feed_that_nobody_knows() -> None:
    batch = pa.RecordBatch.from_pylist([row_of(Entry(1, Change(b"{}", key=b"k")))], schema=SCHEMA)
    with pytest.raises(QueryFailed, match="shop"):
        list(kept_batches(iter([batch]), {}))
