"""Filters narrow what is read, never past a row that they let through; options are checked by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
)

from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest
from headrace.pipeline.wal.options import Options
from headrace.pipeline.wal.pushdown import narrowed
from headrace.wire.kwal_columns import EVERYTHING, LSN_MAX, Wanted

MS = 1_800_000_000_000
LOW = (1 << 32) - 1
LSN = Lsn(MS << 18, 7, 5)
MOMENT = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=MS)


@pytest.mark.parametrize(
    ("one", "wanted"),
    [
        (GreaterThan(("lsn",), str(LSN)), {"first": LSN}),
        (LessThanOrEqual(("lsn",), str(LSN)), {"last": LSN}),
        (EqualTo(("lsn",), str(LSN)), {"first": LSN, "last": LSN}),
        (EqualTo(("lsn",), "1.7.5"), {}),
        (In(("sequence_id",), (9, 4, 6)), {"first_id": 4, "last_id": 9}),
        (GreaterThanOrEqual(("sequence_id",), 4), {"first_id": 4}),
        (EqualNullSafe(("sequence_id",), None), {}),
        (LessThan(("committed_at",), MOMENT), {"last": Lsn((MS + 1 << 18) - 1, LOW, LOW)}),
        (GreaterThan(("committed_at",), MOMENT.replace(tzinfo=None)), {"first": Lsn(MS << 18, 0, 0)}),
        (EqualTo(("commit_ts",), 77), {"first": Lsn(77, 0, 0), "last": Lsn(77, LOW, LOW)}),
        (GreaterThan(("commit_ts",), -1), {}),
        (EqualTo(("feed",), "a"), {"feeds": frozenset({"a"})}),
        (In(("feed",), ("a", "b")), {"feeds": frozenset({"a", "b"})}),
        (GreaterThan(("feed",), "a"), {}),
        (Not(EqualTo(("feed",), "a")), {}),
        (EqualTo(("table", "x"), "a"), {}),
    ],
    ids=str,
)
def test_one_filter(one: Filter, wanted: dict[str, Any]) -> None:
    assert narrowed(EVERYTHING, [one]) == Wanted()._replace(**wanted)


def test_filters_add_up_and_never_widen() -> None:
    start = Wanted(first=LSN, feeds=frozenset({"a", "c"}), first_id=10)
    filters = [
        GreaterThan(("lsn",), str(Lsn(1, 1, 1))),
        In(("feed",), ("a", "b")),
        GreaterThan(("sequence_id",), 3),
    ]
    assert narrowed(start, filters) == Wanted(first=LSN, last=LSN_MAX, feeds=frozenset({"a"}), first_id=10)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "needs a folder"),
        ({"path": "x", "server": "y"}, "no option 'server'; its options are path, from-lsn"),
        ({"path": "x", "from-lsn": "z"}, "'z' is not an LSN"),
        ({"path": "x", "from-lsn": "2.1.1", "to-lsn": "1.1.1"}, "from-lsn is above to-lsn"),
        ({"path": "x", "feeds": "a,,b"}, "change-feed-id"),
        ({"path": "x", "gaps": "ignore"}, "option gaps: refuse or accept, not 'ignore'"),
        ({"path": "x", "pushdown": "on"}, "option pushdown: off or once"),
        ({"path": "x", "task-bytes": "0"}, "option task-bytes"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_wrong_with_options_is_named(given: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Options(given)
    assert named in caught.value.detail


def test_options() -> None:
    options = Options(
        {"PATH": "x", "feeds": "a, b", "from-lsn": "1.1.1", "gaps": "accept", "task-bytes": "5"}
    )
    assert (options.feeds, options.range.first, options.range.last) == (
        frozenset({"a", "b"}),
        Lsn(1, 1, 1),
        None,
    )
    assert (options.accepts_gaps, options.pushdown, options.task_bytes) == (True, False, 5)
