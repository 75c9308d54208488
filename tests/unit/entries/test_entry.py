"""Entries and bookmarks as values: the wire op of each op, and that values can't be changed."""

from __future__ import annotations

import dataclasses

import pytest

from headrace.entries.bookmark import Bookmark
from headrace.entries.entry import Change, Entry, Op, WireOp
from headrace.entries.lsn import Lsn


def test_every_op_has_a_wire_op() -> None:
    assert {op: op.wire for op in Op} == {
        Op.PUT: WireOp.PUT,
        Op.PATCH: WireOp.PUT,
        Op.DELETE: WireOp.DELETE,
        Op.BATCH: WireOp.BATCH,
    }


def test_entry_knows_when_it_was_committed() -> None:
    entry = Entry(7, Lsn(5000 << 18 | 3, 1, 7), "acme", "eu:acme:f:", Change(b"{}"))
    assert entry.committed_at_ms == 5000
    assert "{}" not in repr(entry), "values may be personal data and stay out of logs"


def test_values_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Bookmark("i", 1).sequence_id = 2  # type: ignore[misc]  # that is the test
