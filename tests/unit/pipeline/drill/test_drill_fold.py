"""The drill's own fold: what each kind of entry does to a key, in plain Python."""

from __future__ import annotations

import pytest

from headrace.pipeline.drill.fold import Change, folded, is_same
from headrace.pipeline.drill.statements import Statements


def change(place: int, op: str, value: bytes = b"", key: str = "k", table: str = "t") -> Change:
    return Change("f", key.encode(), op, value, (table,), place, f"lsn-{place}")


def test_puts_patches_and_deletions_in_order() -> None:
    states = folded(
        [
            change(1, "put", b'{"a":{"b":1,"c":2},"d":3}'),
            change(2, "patch", b'{"a":{"b":null},"d":[1.50]}'),
            change(3, "put", b"x", "gone"),
            change(4, "delete", b"old", "gone"),
            change(5, "patch", b'{"n":null,"m":1}', "new"),
            change(6, "put", b"not json \xff", "odd"),
            change(7, "patch", b'{"m":1}', "odd"),
        ]
    )
    assert {name[1]: state.sequence_id for name, state in states.items()} == {b"k": 2, b"new": 5, b"odd": 7}
    row = {"value": b'{"a":{"c":2},"d":[1.50]}', "sequence_id": 2, "lsn": "lsn-2"}
    assert is_same(states["f", b"k"], row)
    assert is_same(states["f", b"k"], row | {"value": b' {"d": [1.50], "a": {"c": 2}}'})
    for other in ({"value": b'{"a":{"c":2},"d":[1.51]}'}, {"sequence_id": 1}, {"lsn": "lsn-1"}):
        assert not is_same(states["f", b"k"], row | other)
    assert is_same(states["f", b"new"], {"value": b'{"m":1}', "sequence_id": 5, "lsn": "lsn-5"})
    assert is_same(states["f", b"odd"], {"value": b'{"m":1}', "sequence_id": 7, "lsn": "lsn-7"})


@pytest.mark.parametrize(
    ("one", "others"),
    [
        (b"1", (b"true", b"1.0", b'"1"', b"1e0", b"[1]", b'["1"]')),
        (b"0", (b"false", b"-0", b"null", b"[]", b"{}", b'""')),
        (b"1.5", (b"1.50", b"15e-1")),
        (b"[true]", (b"[1]",)),
        (b'{"n":1}', (b'{"n":true}', b'{"n":1.0}')),
        (b"123456789012345678901234567890.1", (b"123456789012345678901234567890.2",)),
    ],
)
def test_what_python_takes_for_equal_is_not(one: bytes, others: tuple[bytes, ...]) -> None:
    (state,) = folded([change(1, "put", b'{"a":0}'), change(2, "patch", b'{"v":%s}' % one)]).values()
    (whole,) = folded([change(2, "put", one)]).values()
    row = {"sequence_id": 2, "lsn": "lsn-2"}
    assert is_same(state, row | {"value": b'{"a":0,"v":%s}' % one})
    assert is_same(whole, row | {"value": one})
    for other in others:
        assert not is_same(state, row | {"value": b'{"a":0,"v":%s}' % other})
        assert not is_same(whole, row | {"value": other})


def test_what_empties_a_table_takes_what_was_before() -> None:
    statements = Statements()
    statements.see("f", 3, "truncate", b'{"database":"main","table":"t"}', ())
    rows = [
        Change("f", name, op, value, ("main", table), place, f"lsn-{place}")
        for place, name, op, value, table in (
            (1, b"a", "put", b"1", "t"),
            (1, b"b", "put", b"1", "u"),
            (2, b"p", "put", b'{"old":1}', "t"),
            (4, b"c", "put", b"1", "t"),
            (5, b"p", "patch", b'{"new":1}', "t"),
        )
    ]
    states = folded(rows, statements)
    assert {name[1] for name in states} == {b"b", b"c", b"p"}
    row = {"value": b'{"new":1}', "sequence_id": 5, "lsn": "lsn-5"}
    assert is_same(states["f", b"p"], row), "a patch behind a TRUNCATE begins with nothing"
    assert len(folded([one._replace(feed="g") for one in rows], statements)) == 4
