"""Filters as bounds: never tighter than the filters, and nothing made of what can't be judged."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from headrace.pipeline.source.pushdown import Bounds, bounds_of

LSN = "0687ef9388b00000.0000000001.0000020000"
COMPARE: dict[Any, Callable[[Any, Any], bool]] = {
    EqualTo: lambda found, wanted: found == wanted,
    GreaterThan: lambda found, wanted: found > wanted,
    GreaterThanOrEqual: lambda found, wanted: found >= wanted,
    LessThan: lambda found, wanted: found < wanted,
    LessThanOrEqual: lambda found, wanted: found <= wanted,
    In: lambda found, wanted: found in wanted,
}


def test_each_column_gives_its_bounds() -> None:
    stamp = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    filters: list[Filter] = [
        GreaterThan(("sequence_id",), 4),
        LessThanOrEqual(("sequence_id",), 9),
        LessThan(("sequence_id",), 20),
        GreaterThan(("sequence_id",), 2),
        GreaterThanOrEqual(("lsn",), LSN),
        EqualTo(("committed_at",), stamp),
        In(("key",), (b"a", b"b")),
        EqualNullSafe(("key",), bytearray(b"a")),
        In(("feed",), ("f", "g")),
        IsNotNull(("feed",)),
    ]
    assert bounds_of(filters) == Bounds(
        first=4,
        last=9,
        lsn_first=LSN,
        us_first=1_000_000,
        us_last=1_000_000,
        keys=frozenset({b"a"}),
        feeds=frozenset({"f", "g"}),
    )
    assert bounds_of([LessThan(("committed_at",), stamp.replace(tzinfo=None))]) == Bounds(us_last=1_000_000)


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(("sequence_id",), 4)),
        EqualTo(("sequence_id",), None),
        EqualTo(("sequence_id",), True),
        In(("sequence_id",), (4, None)),
        In(("sequence_id",), ()),
        EqualTo(("op",), "put"),
        EqualTo(("table", "element"), "t"),
        GreaterThan(("lsn",), "ff.1.2"),
        GreaterThan(("lsn",), "0"),
        GreaterThan(("feed",), "f"),
        StringStartsWith(("feed",), "f"),
    ],
    ids=str,
)
def test_what_can_not_be_judged_leaves_all(one: Filter) -> None:
    assert bounds_of([one]) == Bounds()


values = st.integers(0, 9)
filters = st.lists(
    st.one_of(
        st.builds(In, st.just(("key",)), st.lists(values, min_size=1, max_size=3).map(tuple)),
        st.builds(
            lambda kind, value: kind(("key",), value),
            st.sampled_from([kind for kind in COMPARE if kind is not In]),
            values,
        ),
    ),
    max_size=4,
)


@given(filters)
def test_bounds_leave_out_only_what_some_filter_does_not_want(given_filters: list[Any]) -> None:
    wanted = [
        number for number in range(10) if all(COMPARE[type(one)](number, one.value) for one in given_filters)
    ]
    ids = [type(one)(("sequence_id",), one.value) for one in given_filters]
    found = bounds_of(ids)
    assert all((found.first or 0) <= number <= (9 if found.last is None else found.last) for number in wanted)
    as_keys: list[Any] = [
        type(one)(
            ("key",),
            tuple(b"%d" % value for value in one.value) if isinstance(one, In) else b"%d" % one.value,
        )
        for one in given_filters
    ]
    batch = pa.RecordBatch.from_pydict({"key": pa.array([b"%d" % number for number in range(10)])})
    kept = bounds_of(as_keys).chosen(batch).column("key").to_pylist()
    assert {b"%d" % number for number in wanted} <= set(kept)


def test_keys_that_nobody_wants_are_left_out() -> None:
    batch = pa.RecordBatch.from_pydict({"key": pa.array([b"a", b"b", b"c"])})
    assert bounds_of([EqualTo(("key",), b"b")]).chosen(batch).column("key").to_pylist() == [b"b"]
    kept = bounds_of([GreaterThanOrEqual(("key",), b"b"), LessThan(("key",), b"bz")]).chosen(batch)
    assert kept.column("key").to_pylist() == [b"b"]
    assert Bounds().chosen(batch) is batch
