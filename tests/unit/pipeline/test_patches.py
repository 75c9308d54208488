"""Merge patches as RFC 7396 has them, and the fold of a key's entries."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ValueUnfit
from headrace.pipeline.folding import SEED, folded_batches, plain_batches
from headrace.pipeline.patches import KeyChange, apply_patch, fold
from headrace.pipeline.schemas import Column, PlacedSchema, TableSchema
from tests.unit.pipeline.test_rows import changes

RFC_7396_APPENDIX_A: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


def dumps(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(("target", "patch", "result"), RFC_7396_APPENDIX_A)
def test_the_examples_of_the_rfc(target: Any, patch: Any, result: Any) -> None:
    assert json.loads(apply_patch(dumps(target), dumps(patch))) == result


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def reference(target: Any, patch: Any) -> Any:
    """RFC 7396 §2, word for word."""
    if isinstance(patch, dict):
        if not isinstance(target, dict):
            target = {}
        for name, value in patch.items():
            if value is None:
                if name in target:
                    del target[name]
            else:
                target[name] = reference(target.get(name), value)
        return target
    return patch


@given(values, values)
def test_merging_is_the_rfcs_algorithm(target: Any, patch: Any) -> None:
    assert json.loads(apply_patch(dumps(target), dumps(patch))) == reference(target, patch)


def test_untouched_members_keep_their_bytes() -> None:
    state = b'{"n": 1.10, "big": 123456789012345678901234567890, "o": {"x": 2.50, "y": 1}, "t": "\\u00e9"}'
    merged = apply_patch(state, b'{"o": {"y": null, "z": 1e400}}')
    assert b'"n":1.10' in merged
    assert b'"big":123456789012345678901234567890' in merged
    assert b'"t":"\\u00e9"' in merged
    assert b'"o":{"x":2.50,"z":1E+400}' in merged


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
