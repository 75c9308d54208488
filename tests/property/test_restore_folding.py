"""Random changes of keys, in batches of any size, fold to what a dict comes to, whatever a segment left out before."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.archive.moments.histories import Span
from headrace.entries.lsn import ZERO, lsn_of
from headrace.pipeline.drill.fold import Change, folded, is_same
from headrace.pipeline.restore.folding import (
    CHANGE_SCHEMA,
    RestoredFeed,
    newest_batches,
    state_batches,
)

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


@given(CHANGES, st.lists(st.integers(1, 7), min_size=1), st.lists(st.integers(1, 20), min_size=1))
def test_any_history_folds_to_what_a_dict_comes_to(
    changes: list[tuple[int, bytes, str, dict[str, Any]]], sizes: list[int], segments: list[int]
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
    left = [
        row
        for segment in cut(rows, segments)
        for batch in newest_batches(cut(segment.to_pylist(), sizes))
        for row in batch.to_pylist()
    ]
    assert len(left) <= len(rows)
    left.sort(key=lambda row: (row["feed"], row["key"], row["sequence_id"]))
    found = [row for batch in state_batches(cut(left, sizes), FEEDS) for row in batch.to_pylist()]
    assert len(found) == len(wanted)
    for row in found:
        assert row["incarnation"] == span_of(row["feed"], row["sequence_id"]).incarnation
        assert is_same(wanted[row["feed"], row["key"]], row)


def lsn(row: dict[str, Any]) -> str:
    """The LSN of a change."""
    span = span_of(FEEDS[row["feed"]].feed, row["sequence_id"])
    return str(lsn_of(row["commit_ts"], span.region_id, row["sequence_id"], 0))


def span_of(feed: str, sequence_id: int) -> Span:
    """The history that an entry is of."""
    return next(one for one in reversed(SPANS) if one.feed == feed and one.first <= sequence_id)
