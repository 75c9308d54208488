"""What control entries say of attached tables: when all rows are there, when they all come again, what a stop becomes."""

from __future__ import annotations

import json

import pytest
from msgspec import UNSET

from headrace.errors import ValueUnfit
from headrace.pipeline.tables.attached import AttachedState, Changes, Control, follow_controls, with_stops
from headrace.pipeline.tables.schemas import TableName
from headrace.pipeline.tables.states import NO_VERSION, StopNote

T: TableName = ("main", "t")


def controls(*words: str, first: int = 1) -> list[Control]:
    """Entries from words such as ``tx1 copy-begin 7 partial``, one a sequence id."""
    found = []
    for place, word in enumerate(words, first):
        tx, control, number, *more = [*word.split(), "1"][: 4 if "partial" in word else 3]
        about = {"database": "main", "table": "t", "version": 1, **dict.fromkeys(more, True)}
        value = json.dumps(about | ({"columns": []} if control == "schema" else {})).encode()
        found.append(Control(place, control, f"\0{control}/main/t/{number}".encode(), value, tx.encode()))
    return found


def follow(*words: str, before: tuple[AttachedState, ...] = (), first: int = 1) -> Changes:
    return follow_controls(before, controls(*words, first=first), "shop")


def note(after: int) -> StopNote:
    return StopNote(after=after, state=None, code="value-unfit", reason="odd", hint="", at="now")


def test_a_new_table_is_whole_once_its_copy_has_ended() -> None:
    begun = follow("a schema", "a copy-begin 7")
    assert begun.states[T].copying
    assert begun.recopied == {T: 2}
    assert not begun.cleared
    after = follow("b copy-end 7", before=tuple(begun.states.values()), first=3)
    assert not after.states[T].copying


def test_an_end_of_another_copy_changes_nothing() -> None:
    begun = tuple(follow("a schema", "a copy-begin 7").states.values())
    for words in (("b copy-begin 8 partial", "c copy-end 8"), ("b copy-end 6",)):
        assert follow(*words, before=begun, first=3).states[T].copies == ("7",)


def test_a_copy_that_takes_the_place_of_a_cancelled_one_ends_it_too() -> None:
    assert not follow("a schema", "a copy-begin 7", "b copy-begin 8", "c copy-end 8").states[T].copying


@pytest.mark.parametrize(
    "words",
    [
        ("a schema", "b copy-begin 7"),  # an operator's, of a table that is whole
        ("a schema", "a copy-begin 7 partial"),  # rows that were written before the agent saw an ALTER TABLE
        ("a schema", "a copy-begin 7", "b truncate"),  # nothing is there that could be missing
        ("a truncate", "a copy-begin 7", "b copy-end 7"),
    ],
)
def test_whole_tables(words: tuple[str, ...]) -> None:
    assert not follow(*words).states[T].copying


def test_a_table_that_is_emptied_and_copied_is_not_whole_meanwhile() -> None:
    found = follow("a schema", "b truncate", "b copy-begin 7")
    assert found.states[T].copying
    assert found.cleared == {T: 2}


def test_following_again_what_is_followed_comes_to_the_same() -> None:
    words = [
        "a schema",
        "a copy-begin 7",
        "b copy-end 7",
        "c truncate",
        "c copy-begin 8",
        "d schema",
        "e copy-end 8",
    ]
    for last in range(len(words) + 1):
        once = follow(*words[:last]).states
        for first in range(last):
            again = follow(*words[first:last], before=tuple(once.values()), first=first + 1).states
            assert again == once, (first, last)


def test_a_stopped_table_comes_back_with_a_copy_of_all_rows_and_when_it_is_emptied() -> None:
    stopped = (AttachedState(table=T, tx="aa", stopped=note(4)),)
    assert follow("b copy-begin 8 partial", before=stopped, first=9).states[T].stopped == note(4)
    copied = follow("b copy-begin 8", before=stopped, first=9)
    assert copied.states[T].copying
    assert copied.cleared == copied.recopied == {T: 9}
    emptied = follow("b truncate", before=stopped, first=9)
    assert (emptied.states[T].stopped, emptied.cleared) == (None, {T: 9})


def test_what_a_stop_keeps() -> None:
    whole, copying = AttachedState(table=T), AttachedState(table=T, copies=("7",))
    (one,) = with_stops({T: whole}, {T: note(9)}, [])
    assert one.stopped == note(9)
    assert one.stopped.version is UNSET
    (one,) = with_stops({T: copying}, {T: note(9)}, [])
    assert one.stopped is not None
    assert one.stopped.version == NO_VERSION, "it was never whole: nobody may see it"
    assert not one.copying
    # Its copy begins, and something does not fit again: it still has what it had at the first stop.
    (one,) = with_stops({T: copying}, {T: note(20)}, [AttachedState(table=T, stopped=note(4))])
    assert one.stopped == note(4)


def test_what_can_not_be_read() -> None:
    assert not follow_controls((), [Control(1, "copy-begin", b"k/1", b"[]", b"a")], "shop").states
    with pytest.raises(ValueUnfit):
        follow_controls((), [Control(1, "truncate", b"k/1", b"[]", b"a")], "shop")
