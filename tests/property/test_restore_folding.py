"""Random changes of keys, in batches of any size, fold to what a dict comes to, whatever groups of segments left out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.archive.moments.histories import Span
from headrace.entries.lsn import ZERO, Lsn, lsn_of
from headrace.pipeline.drill.fold import Change, folded, is_same
from headrace.pipeline.restore.folding import (
    CHANGE_SCHEMA,
    RestoredFeed,
    lsn_texts,
    state_batches,
)
from headrace.pipeline.restore.newest import KEYS_BYTES_MAX, newest_changes

SPANS = (
    Span("a", 1, "one", 1, 9, ZERO),
    Span("b", 2, "two", 1, 20, ZERO),
    Span("b", 3, "rebuilt", 21, 99, ZERO),
)
FEEDS = (RestoredFeed("a", SPANS[:1], {}), RestoredFeed("b", SPANS[1:], {}))
VALUES = st.dictionaries(
    st.sampled_from("xyz"), st.sampled_from([1, None, "t", {"x": 1}, {"x": None}]), max_size=2
)
CHANGES = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from([b"k", b"l", b"", b"k\xff"]),
        st.sampled_from(["put", "put", "delete", "patch"]),
        VALUES,
    ),
    max_size=60,
)


def cut(rows: Sequence[dict[str, Any]], sizes: Sequence[int]) -> Iterator[Any]:
    """The rows as record batches of these sizes, again and again."""
    at = number = 0
    while at < len(rows):
        size = sizes[number % len(sizes)]
        yield pa.RecordBatch.from_pylist(list(rows[at : at + size]), schema=CHANGE_SCHEMA)
        at, number = at + size, number + 1


@given(
    CHANGES,
    st.lists(st.integers(1, 7), min_size=1),
    st.lists(st.integers(1, 20), min_size=1),
    st.sampled_from([0, 1, 30, KEYS_BYTES_MAX]),
)
def test_any_history_folds_to_what_a_dict_comes_to(
    changes: list[tuple[int, bytes, str, dict[str, Any]]],
    sizes: list[int],
    segments: list[int],
    remembered: int,
) -> None:
    rows: list[dict[str, Any]] = [
        {
            "feed": feed,
            "key": key,
            "sequence_id": place,
            "commit_ts": place << 18,
            "op": op,
            "value": None if op == "delete" else json.dumps(value).encode(),
        }
        for place, (feed, key, op, value) in enumerate(changes, 1)
    ]
    wanted = folded(
        Change(
            FEEDS[row["feed"]].feed,
            row["key"],
            row["op"],
            row["value"] or b"",
            (),
            row["sequence_id"],
            lsn(row),
        )
        for row in rows
    )
    newest_first = [cut(segment.to_pylist(), sizes) for segment in reversed(list(cut(rows, segments)))]
    left = [row for batch in newest_changes(iter(newest_first), remembered) for row in batch.to_pylist()]
    if remembered > 10_000:
        places = {(row["feed"], row["key"]): row["sequence_id"] for row in rows if row["op"] != "patch"}
        wanted_left = [row for row in rows if row["sequence_id"] >= places.get((row["feed"], row["key"]), 0)]
        assert len(left) == len(wanted_left)
    left.sort(key=lambda row: (row["feed"], row["key"], row["sequence_id"]))
    found = [row for batch in state_batches(cut(left, sizes), FEEDS) for row in batch.to_pylist()]
    assert len(found) == len(wanted)
    for row in found:
        assert row["incarnation"] == span_of(row["feed"], row["sequence_id"]).incarnation
        assert is_same(wanted[row["feed"], row["key"]], row)


def test_a_key_of_patches_alone_behind_one_that_went_on_from_the_batch_before() -> None:
    told = [
        (b"k", "put", b'{"x":1}'),
        (b"k", "patch", b'{"y":2}'),
        (b"l", "patch", b'{"z":3}'),
        (b"m", "put", b"{}"),
    ]
    rows = [
        {"feed": 0, "key": key, "sequence_id": place, "commit_ts": place << 18, "op": op, "value": value}
        for place, (key, op, value) in enumerate(told, 1)
    ]
    found = [row for batch in state_batches(cut(rows, [1, 3]), FEEDS) for row in batch.to_pylist()]
    assert sorted((row["key"], row["sequence_id"]) for row in found) == [(b"k", 2), (b"l", 3), (b"m", 4)]


def lsn(row: dict[str, Any]) -> str:
    """The LSN of a change."""
    span = span_of(FEEDS[row["feed"]].feed, row["sequence_id"])
    return str(lsn_of(row["commit_ts"], span.region_id, row["sequence_id"], 0))


def span_of(feed: str, sequence_id: int) -> Span:
    """The history that an entry is of."""
    return next(one for one in reversed(SPANS) if one.feed == feed and one.first <= sequence_id)


@given(
    st.lists(
        st.tuples(st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 63) - 1))
    )
)
def test_lsns_of_many_entries_are_those_of_each(rows: list[tuple[int, int, int]]) -> None:
    stamps, regions, ids = np.asarray(rows, np.int64).reshape(-1, 3).T.copy()
    expected = [str(Lsn(stamp, region, place & 0xFFFFFFFF)) for stamp, region, place in rows]
    found = lsn_texts(stamps, regions, ids)
    found.validate(full=True)
    assert found.to_pylist() == expected
