"""Which entries of Simple feeds have keys as captured rows do: database and table first."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.pipeline.restore.counting import are_named


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
