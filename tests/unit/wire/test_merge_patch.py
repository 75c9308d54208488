"""Merge patches as RFC 7396 has them: its examples, its algorithm, and bytes that stay as they are."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.merge_patch import apply_patch
from tests.scale import scaled

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
    merged = apply_patch(state, b'{"o": {"y": null, "z": 1e400, "w": -0}}')
    assert b'"n":1.10' in merged
    assert b'"big":123456789012345678901234567890' in merged
    assert b'"t":"\\u00e9"' in merged
    assert b'"o":{"x":2.50,"z":1e400,"w":-0}' in merged


def test_numbers_keep_their_digits() -> None:
    state = b'{"n": 1.10, "big": 123456789012345678901234567890, "o": {"x": 2.50, "y": 1}}'
    assert apply_patch(state, b'{"o": {"y": null, "z": 1.000}}') == (
        b'{"n":1.10,"big":123456789012345678901234567890,"o":{"x":2.50,"z":1.000}}'
    )


@pytest.mark.parametrize(
    ("state", "patch"), [(b"{}", b'{"a": '), (b'{"a"', b"{}"), (b"{}", b"nul"), (None, b'{"a": {"b"}}')]
)
def test_what_is_no_json_is_refused(state: bytes | None, patch: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # any text of it
        apply_patch(state, patch)


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep = b'{"a":' * 5000 + b"1" + b"}" * 5000
    with pytest.raises(ValueError, match="nested too deeply"):
        apply_patch(b"{}", deep)


VALUES = ["null", "1", "-0", "0.1000", "12345678901234567890123", '"x"', '[1,null,{"a":null}]', "1e400"]


def random_object(source: random.Random, depth: int) -> str:
    """An object of JSON text whose members may come twice, with numbers that no float holds."""
    members = []
    for _ in range(source.randrange(4)):
        nested = depth and not source.randrange(4)
        text = random_object(source, depth - 1) if nested else source.choice(VALUES)
        members.append(f'"{source.choice("abc")}": {text} ')
    return "{" + ",".join(members) + "}"


def test_each_number_is_as_it_was_written() -> None:
    """The reference on values whose numbers are their own text: a ``-0`` in a nested object stays ``-0``."""
    source = random.Random(1)
    for _ in range(scaled(2_000)):
        state, patch = (random_object(source, 3) for _ in range(2))
        merged = apply_patch(state.encode(), patch.encode())
        assert exact(merged) == reference(exact(state), exact(patch)), (state, patch)


def exact(text: str | bytes) -> Any:
    return json.loads(
        text, parse_int=lambda digits: f"int {digits}", parse_float=lambda digits: f"float {digits}"
    )
