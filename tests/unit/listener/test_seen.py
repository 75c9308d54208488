"""De-duplication: what was done is known again, also after a restart; what is forgotten counts as new."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from headrace.errors import BookmarkCorrupt, FormatTooNew
from headrace.listener import Change, Seen
from headrace.wire.documents import EntryOut


def change(number: int, incarnation: str = "i") -> Change:
    return Change(
        incarnation, EntryOut(sequence_id=number, lsn="1.1.1", committed_at="t", changes=Raw(b"{}"))
    )


@given(st.lists(st.tuples(st.integers(1, 30), st.sampled_from("ij"))))
def test_it_is_a_set(noted: list[tuple[int, str]]) -> None:
    seen, model = Seen(), set[tuple[int, str]]()
    for number, incarnation in noted:
        assert seen.is_new(change(number, incarnation)) == ((number, incarnation) not in model)
        seen.note(change(number, incarnation))
        model.add((number, incarnation))
    again = Seen.decode(seen.encode())
    for number in range(32):
        for incarnation in "ijk":
            assert again.is_new(change(number, incarnation)) == ((number, incarnation) not in model)


def test_a_million_in_order_take_no_room() -> None:
    seen = Seen()
    for number in range(1, 20_001):
        seen.note(change(number))
    assert len(seen.encode()) < 100


def test_the_lowest_gaps_are_forgotten_and_count_as_new() -> None:
    seen = Seen(ranges_max=3, incarnations_max=2)
    for number in range(1, 11, 2):
        seen.note(change(number))
    assert [number for number in range(1, 11) if not seen.is_new(change(number))] == [5, 7, 9]
    for incarnation in ("j", "k"):
        seen.note(change(1, incarnation))
    assert seen.is_new(change(9))
    assert not seen.is_new(change(1, "j"))


def test_what_was_kept_by_another_version_or_damaged() -> None:
    with pytest.raises(BookmarkCorrupt):
        Seen.decode(b"{")
    with pytest.raises(FormatTooNew):
        Seen.decode(b'{"written-as":9,"readable-from":9,"seen":{}}')
