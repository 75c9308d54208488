"""What a base keeps of single keys, and that a key with many entries takes no more memory than one with few."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from headrace.entries.entry import Change, Op
from headrace.errors import QueryFailed
from headrace.pipeline.bases.folding import kept_batches
from headrace.pipeline.bases.generations import ControlEntry, generations_of, needed_watermarks
from headrace.pipeline.bases.patches import joined_patch
from headrace.simple import json_codec
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
    assert [one.sequence_id for one in based(feed.entries)] == [1, 2, 4, 6]


def test_of_watermarks_the_newest_and_the_first_behind_a_statement() -> None:
    names = ["watermark", "watermark", "ddl", "schema", "watermark", "watermark", "watermark"]
    told = [ControlEntry(at, name, (), b"") for at, name in enumerate(names, 1)]
    assert needed_watermarks(told) == {5, 7}
    assert needed_watermarks([]) == set()


def _batches(make: Any) -> Iterator[Any]:
    """Batches of one key, each made when it is asked for."""
    for number in range(BATCHES):
        rows = [row_of(Entry(number * ROWS + at, make(number * ROWS + at))) for at in range(1, ROWS + 1)]
        yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


@pytest.mark.parametrize("kind", ["put", "patch", "captured"])
def test_a_hot_key_takes_little_memory(kind: str) -> None:
    schema = table("shop.t", "a", "b")
    message = json_codec.encode(insert(schema, 7, a="1", b="2")) + b" " * 500

    def make(number: int) -> Change:
        if kind == "captured":
            value = message.replace(b'"commitTs":7', b'"commitTs":%d' % number)
            return Change(value, key=b'["shop","t",1]', table=("shop", "t"))
        value = json.dumps({"n": number, "pad": " " * 500}).encode()
        op = Op.PATCH if kind == "patch" and number > 1 else Op.PUT
        return Change(value, key=b"hot", op=op)

    control = []
    if kind == "captured":
        feed = Feed()
        feed.schema(schema)
        control = [ControlEntry(0, "schema", ("shop", "t"), feed.entries[0].change.value)]
    known = {"shop": generations_of(control, ROWS * BATCHES)}
    most, kept = 0, []
    before = pa.total_allocated_bytes()
    for batch in kept_batches(_batches(make), known):
        most = max(most, pa.total_allocated_bytes() - before)
        kept += batch.to_pylist()
    assert [(row["sequence_id"], row["op"]) for row in kept] == [
        (ROWS * BATCHES, "patch" if kind == "patch" else "put")
    ]
    assert most < 3 * ROWS * 1200, "three batches at most"


def test_a_feed_that_nobody_knows() -> None:
    batch = pa.RecordBatch.from_pylist([row_of(Entry(1, Change(b"{}", key=b"k")))], schema=SCHEMA)
    with pytest.raises(QueryFailed, match="shop"):
        list(kept_batches(iter([batch]), {}))
