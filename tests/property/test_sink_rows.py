"""Spark's sink: whatever way Spark hands a batch's rows over, the append has the same bytes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.sink.options import OrderKey, SinkOptions, SinkTarget
from headrace.pipeline.sink.rows import collect, feed_rows

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.binary()), ("op", pa.string()), ("n", pa.int64())])
OPTIONS = SinkOptions(
    target=SinkTarget(server="http://127.0.0.1:1", grpc="127.0.0.1:1", agent_id="a"),
    order=(OrderKey("n"), OrderKey("key", descending=True)),
    feed="f",
)
# Few values, so that many rows tie in the declared order, and some are equal altogether.
ROW = st.tuples(
    st.sampled_from("ab"), st.sampled_from([b"", b"x", b"y"]), st.sampled_from(["put", "delete", None]),
    st.sampled_from([None, 0, 1]),
)  # fmt: skip


def batches(rows: list[tuple[Any, ...]], cuts: list[int]) -> list[pa.RecordBatch]:
    edges = sorted({0, len(rows), *(cut % (len(rows) + 1) for cut in cuts)})
    columns = SCHEMA.names
    return [
        pa.RecordBatch.from_pylist(
            [dict(zip(columns, row, strict=True)) for row in rows[first:last]], schema=SCHEMA
        )
        for first, last in pairwise(edges)
    ]


@given(
    rows=st.lists(ROW, min_size=1, max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=4),
    data=st.data(),
)
def test_equal_rows_are_equal_bytes(
    rows: list[tuple[Any, ...]], cuts: list[int], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(rows))
    one = feed_rows(collect(batches(rows, []), 0), OPTIONS, 0)
    other = feed_rows(collect(batches(shuffled, cuts), 0), OPTIONS, 0)
    assert one == other
    assert one[0].rows == len(rows)
