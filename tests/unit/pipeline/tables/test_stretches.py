"""Rows are told which stretch between control entries they stand in, whatever the batches they come in."""

from __future__ import annotations

from bisect import bisect_left

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.tables.stretches import stretch_batches


@given(st.lists(st.integers(1, 60), max_size=40), st.sets(st.integers(1, 60)), st.integers(0, 5))
def test_each_row_has_as_many_places_below_it(ids: list[int], cut: set[int], skipped: int) -> None:
    places = sorted(cut)
    batch = pa.record_batch(
        {
            "table": pa.array([["shop", str(one)] for one in ids], pa.list_(pa.string())),
            "sequence_id": pa.array(ids, pa.int64()),
        }
    ).slice(skipped)
    (found,) = stretch_batches(iter([batch]), places)
    assert found.column("sequence_id").to_pylist() == ids[skipped:]
    assert found.column("table").to_pylist() == [["shop", str(one)] for one in ids[skipped:]]
    assert found.column("stretch").to_pylist() == [bisect_left(places, one) for one in ids[skipped:]]
