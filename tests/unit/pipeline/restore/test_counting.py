"""Counting keys: the greatest move of each, and which of Simple feeds begin as captured rows do: with database, table."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headrace.pipeline.bases.naming import are_named
from headrace.pipeline.restore.counting import last_moves


def rows_of(*rows: tuple[str, list[str] | None, bytes]) -> pa.RecordBatch:
    schema = pa.schema([("feed", pa.string()), ("table", pa.list_(pa.string())), ("key", pa.binary())])
    feeds, tables, keys = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(one, kind.type) for one, kind in zip((feeds, tables, keys), schema, strict=True)],
        schema=schema,
    )


@pytest.mark.parametrize("skipped", [0, 1, 3])
def test_keys_begin_with_database_and_table(skipped: int) -> None:
    told = [
        (True, ("shop", ["s", "t"], b'["s","t",1]')),
        (False, ("shop", ["s", "t"], b'["s","tt",1]')),
        (False, ("shop", ["s", "u"], b'["s","t",1]')),
        (False, ("shop", ["s", "t"], b"17")),
        (False, ("shop", ["s", "t"], b"")),
        (False, ("shop", ["s", "t"], b"\xff\x00")),
        (True, ("shop", ["s", 'ä"'], '["s","ä\\"","x"]'.encode())),
        (True, ("shop", None, b"17")),
        (True, ("other", ["s", "t"], b"17")),
    ]
    found = are_named(rows_of(*(row for _, row in told)).slice(skipped), {"shop"})
    assert found.to_pylist() == [is_named for is_named, _ in told][skipped:]


def test_feeds_that_nobody_asks_about_are_not_looked_at() -> None:
    rows = rows_of(("shop", ["s", "t"], b"17"), ("shop", None, b"17"))
    assert are_named(rows, ()).to_pylist() == [True, True]
    assert are_named(rows.slice(2), {"shop"}).to_pylist() == []


@pytest.mark.parametrize("rows_max", [1, 7, 1_000])
def test_the_greatest_move_of_each_key_is_told(rows_max: int) -> None:
    random = Random(rows_max)
    moves = [(random.randrange(2), random.choice([b"", b"k", b"l"]), place) for place in range(200)]
    segments = [moves[at : at + 40] for at in range(0, 200, 40)]

    def batches(rows: list[tuple[int, bytes, int]]) -> Iterator[Any]:
        for at in range(0, len(rows), 9):
            feeds, keys, places = zip(*rows[at : at + 9], strict=True)
            arrays = [pa.array(feeds, pa.int32()), pa.array(keys, pa.binary()), pa.array(places, pa.int64())]
            yield pa.RecordBatch.from_arrays(arrays, names=["feed", "key", "moved"])

    newest_first = (batches(rows) for rows in [*reversed(segments), []])
    told = [
        row for batch in last_moves(newest_first, make=iter, rows_max=rows_max) for row in batch.to_pylist()
    ]
    found: dict[tuple[int, bytes], int] = {}
    for row in told:
        name = (row["feed"], row["key"])
        found[name] = max(found.get(name, -1), row["moved"])
    assert found == {(feed, key): place for feed, key, place in moves}
    assert len(told) == (6 if rows_max > 6 else 30)
