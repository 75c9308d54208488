"""Transactions that are larger than an append: where they are cut, and what stands in them beside rows."""

from __future__ import annotations

import pytest

from headrace.capture import changes
from headrace.capture.changes import APPEND_ENTRIES_MAX, Append
from tests.unit.capture.binlog_story import Story, assembler, behind, changes_of, schemas_of, shown, told


def check_restarts(story: Story, appends: list[Append], bytes_max: int) -> None:
    """Whoever begins behind any of these appends tells what came after it."""
    whole = [entry for append in appends for entry in append.fields]
    for count in range(1, len(appends)):
        position = appends[count - 1].position
        again = assembler(story, position, schemas_of(appends[:count]), bytes_max=bytes_max)
        rest = told(again, behind(story.events, position))
        assert [entry for append in rest for entry in append.fields] == whole[
            sum(len(append.fields) for append in appends[:count]) :
        ]


def test_a_transaction_that_is_larger_than_an_append_is_cut_between_its_events() -> None:
    story = Story(t=("id",))
    story.inserted("shop.t", (0,))
    story.begin()
    for number in range(1, 7):
        story.insert("shop.t", (number,), (number + 100,))
    story.commit()
    appends = told(assembler(story, bytes_max=600), story.events)
    assert len(appends) > 3
    assert [append.position.under_way for append in appends] == ["", *["0-1-3"] * (len(appends) - 2), ""]
    assert [append.position.gtid for append in appends[:-1]] == ["0-1-2"] * (len(appends) - 1)
    rows = changes_of(appends[1:])
    assert [row.tx_index for row in rows] == list(range(12))
    assert [row.tx_last for row in rows] == [False] * 11 + [True]


def test_so_is_one_of_many_small_rows() -> None:
    story = Story(t=("id",))
    story.begin()
    for number in range(APPEND_ENTRIES_MAX + 2):
        story.insert("shop.t", (number,))
    story.commit()
    schema, first, last = told(assembler(story, bytes_max=1 << 30), story.events)
    assert shown([schema]) == ["schema"]
    assert len(first.fields) == first.position.parts == APPEND_ENTRIES_MAX - 1
    assert len(last.fields) == 3


def test_a_rows_event_that_is_larger_than_an_append_is_cut_within() -> None:
    story = Story(t=("id",))
    story.inserted("shop.t", (0,))
    story.begin()
    story.insert("shop.t", *((number,) for number in range(1, 61)))
    story.insert("shop.t", (61,))
    story.commit()
    appends = told(assembler(story, bytes_max=2000), story.events)
    assert max(sum(map(len, append.fields)) for append in appends) < 3000
    rows = changes_of(appends[1:])
    assert [row.tx_index for row in rows] == list(range(61))
    assert [row.tx_last for row in rows] == [False] * 60 + [True]
    assert len({append.position.rows for append in appends}) > 4
    check_restarts(story, appends, 2000)


def test_so_are_the_rows_of_a_create_select() -> None:
    story = Story()
    story.create("shop.t", "id")
    story.begin()
    story.statement("CREATE TABLE t (id INT PRIMARY KEY)")
    story.insert("shop.t", *((number,) for number in range(20)))
    story.commit()
    appends = told(assembler(story, bytes_max=1000), story.events)
    assert (appends[1].position.parts, appends[1].position.rows) == (1, 4)
    check_restarts(story, appends, 1000)


def test_a_schema_that_stands_before_rows_that_are_rolled_back_is_in_the_feed() -> None:
    story = Story(t=("id",), u=("id", "v"))
    story.begin()
    for number in range(20):
        story.insert("shop.t", (number,))
    story.statement("SAVEPOINT s")
    story.insert("shop.u", (1, 1))
    story.statement("ROLLBACK TO s")
    story.insert("shop.t", (20,))
    story.commit()
    story.inserted("shop.u", (2, 2))
    appends = told(assembler(story, bytes_max=1000), story.events)
    assert {schema.table for schema in schemas_of(appends)} == {"t", "u"}
    assert shown(appends)[-2:] == ['put ["shop","t","20"].', 'put ["shop","u","2"].']


def a_row_of_many_bytes(story: Story, columns: tuple[str, ...]) -> int:
    """How many bytes a row of small numbers is in the feed."""
    story.create("shop.probe", *columns)
    story.inserted("shop.probe", (1,) * len(columns))
    found = told(assembler(story), story.events)[0].fields[-1]
    story.events.clear()
    return len(found)


@pytest.mark.parametrize("bytes_max", [400, 1 << 30])
def test_a_table_is_stopped_behind_those_of_its_rows_that_came_before(
    bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = ("id", "a", "b", "c", "d", "e", "f", "w")
    monkeypatch.setattr(changes, "_FIELD_BYTES_MAX", a_row_of_many_bytes(Story(), columns) + 30)
    story = Story(t=columns, u=("id",))
    small, large = (1,) * 6, (1_000_000_000,) * 6
    story.inserted("shop.u", (0,))
    story.inserted("shop.t", (0, *small, 1))
    story.begin()
    story.insert("shop.u", (1,))
    story.insert("shop.t", (1, *small, 1))
    story.insert("shop.t", (2, *small, 1), (3, *large, 1))
    story.insert("shop.t", (4, *small, 1))
    story.insert("shop.u", (2,))
    story.insert("shop.u", (3,))
    story.commit()
    story.inserted("shop.t", (5, *small, 1))
    story.inserted("shop.u", (4,))
    made = assembler(story, bytes_max=bytes_max)
    # Whatever is whole is handed out where no event is there yet, within a transaction too.
    appends = [append for event in story.events for append in made.take(event) + made.flush()]
    kept = ['put ["shop","t","2"]'] if bytes_max == 400 else []  # a piece of the event
    assert shown(appends)[4:] == [
        'put ["shop","u","1"]', 'put ["shop","t","1"]', *kept, "stopped", 'put ["shop","u","2"]',
        'put ["shop","u","3"].', 'put ["shop","u","4"].',
    ]  # fmt: skip
    check_restarts(story, appends, bytes_max)


def test_what_was_whole_before_a_stop_does_not_say_that_the_table_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns = ("id", "a", "b", "c", "d", "e", "f")
    monkeypatch.setattr(changes, "_FIELD_BYTES_MAX", a_row_of_many_bytes(Story(), columns) + 30)
    story = Story(t=columns, u=("id",))
    story.inserted("shop.u", (0,))
    story.begin()
    story.insert("shop.u", (1,))
    story.insert("shop.t", (1, *(1_000_000_000,) * 6))
    made = assembler(story)
    assert [append for event in story.events for append in made.take(event)] == []
    assert made.tables.stopped
    (whole,) = made.flush()
    assert whole.position.stopped == {}


@pytest.mark.parametrize("end", ["ROLLBACK", "ROLLBACK TO s"])
def test_a_table_whose_rows_in_the_feed_are_rolled_back_is_stopped(end: str) -> None:
    story = Story(t=("id",), u=("id",), v=("id",))
    story.inserted("shop.v", (0,))
    story.begin()
    story.insert("shop.u", (0,))
    story.statement("SAVEPOINT s")
    for number in range(20):
        story.insert("shop.t", (number,))
    story.statement(end)
    if end != "ROLLBACK":
        story.insert("shop.t", (30,))
        story.insert("shop.v", (1,))
        story.commit()
    story.inserted("shop.u", (2,))
    story.inserted("shop.v", (2,))
    appends = told(assembler(story, bytes_max=1000), story.events)
    if end == "ROLLBACK":
        rest, gone = ["stopped", "stopped."], {"shop.t", "shop.u"}
    else:
        rest, gone = ["stopped", 'put ["shop","v","1"].', 'put ["shop","u","2"].'], {"shop.t"}
    assert shown(appends)[-len(rest) - 1 :] == [*rest, 'put ["shop","v","2"].']
    assert set(appends[-1].position.stopped) == gone
    assert "0-1-3 was rolled back" in appends[-1].position.stopped["shop.t"]
    check_restarts(story, appends, 1000)
