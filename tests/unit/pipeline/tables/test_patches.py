"""The fold of a key's entries, as the tables job does it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import ValueUnfit
from headrace.pipeline.tables.folding import SEED, folded_batches, plain_batches
from headrace.pipeline.tables.patches import KeyChange, fold
from headrace.pipeline.tables.schemas import Column, PlacedSchema, TableSchema
from tests.unit.pipeline.tables.test_rows import changes


def test_the_last_put_or_delete_decides() -> None:
    entries = [KeyChange(1, "put", b'{"a":1}'), KeyChange(2, "patch", b'{"b":2}')]
    assert fold(entries) == (2, "put", b'{"a":1,"b":2}')
    assert fold([*entries, KeyChange(3, "delete", b"{}")]) == (3, "delete", b"{}")
    assert fold([KeyChange(3, "delete", b"{}"), KeyChange(4, "patch", b'{"c":3,"d":null}')]) == (
        4,
        "put",
        b'{"c":3}',
    )


def folded(versions: list[PlacedSchema], *rows: tuple[int, str, bytes]) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pylist(
        [{"key": b"k", "changes": [{"sequence_id": at, "op": op, "value": value} for at, op, value in rows]}]
    )
    (result,) = folded_batches(iter([batch]), versions, feed="f::1", table=("main", "t"))
    return result.to_pylist()  # type: ignore[no-any-return]  # pyarrow ships no types


def test_a_row_that_the_table_holds_comes_first() -> None:
    versions = [PlacedSchema(0, TableSchema("main", "t", 1, (Column("a", "int64"), Column("j", "json"))))]
    seed = b'{"a": 1, "j": "{\\"x\\": 1.50, \\"y\\": 2}"}'
    (row,) = folded(versions, (3, SEED, seed), (7, "patch", b'{"j": {"y": null}}'))
    assert row == {"key": b"k", "sequence_id": 7, "op": "put", "value": b'{"a":1,"j":{"x":1.50}}'}
    # Run again on a table that is ahead: what the table holds already is not merged twice.
    (row,) = folded(versions, (7, "patch", b'{"j": {"y": null}}'), (7, SEED, seed))
    assert row["value"] == b'{"a":1,"j":{"x": 1.50, "y": 2}}'


def test_patches_across_a_renamed_column_fall_into_place() -> None:
    versions = [
        PlacedSchema(1, TableSchema("main", "t", 1, (Column("a", "int64"), Column("b", "int64")))),
        PlacedSchema(5, TableSchema("main", "t", 2, (Column("bee", "int64", renamed_from="b"),))),
    ]
    (row,) = folded(versions, (2, "put", b'{"a": 1, "b": 2}'), (6, "patch", b'{"bee": 3}'))
    assert row["value"] == b'{"bee":3}'
    (row,) = folded(versions, (2, "put", b'{"a": 1, "b": 2}'), (3, "patch", b'{"a": 5}'))
    assert row["value"] == b'{"bee":2}'


def test_a_patch_of_no_json_is_refused() -> None:
    with pytest.raises(
        ValueUnfit, match=r"sequence id 2, table main\.t: a patch of this key can't be merged"
    ):
        folded([], (1, "put", b"{}"), (2, "patch", b'{"a": '))


def test_rows_without_tables_keep_bytes_that_are_no_text() -> None:
    rows = changes((1, "put", b'{"a": 1.10}'), (2, "put", b"\xff\x00"), (3, "delete", b"{}"))
    (batch,) = plain_batches(iter([rows]))
    batch.validate(full=True)
    assert [(row["key"], row["value"], row["value_binary"]) for row in batch.to_pylist()] == [
        ("1", '{"a": 1.10}', None),
        ("2", None, b"\xff\x00"),
        ("3", None, None),
    ]
