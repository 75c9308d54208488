"""What every metadata database promises of replication slots (``SlotRows`` in its contract)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.log.metadata.contract import SlotMove, SlotRow
from headrace.log.metadata.rows import slot_subscriber
from tests.contract.test_metadata_damage import Kind, Kit, postgres, sqlite

OLD, NEW = f"{5:016x}.0000000001.0000000001", f"{6:016x}.0000000001.0000000002"


@pytest.fixture(params=[sqlite, postgres], ids=lambda kind: str(kind.__name__))
def kit(request: pytest.FixtureRequest) -> Iterator[Kit]:
    """Each kind in turn, empty."""
    kind: Kind = request.param
    yield from kind(request)


def row(name: str, position: int = 256) -> SlotRow:
    return SlotRow(name, f"id of {name}", "ann", "headrace", "{}", position, "here", 0)


def move(name: str, position: int, lsn: str, **fields: Any) -> SlotMove:
    return SlotMove(name, f"id of {name}", "here", position, lsn)._replace(**fields)


def test_a_slot_is_made_once_with_its_place(kit: Kit) -> None:
    slots = kit.metadata.slots
    assert slots.make(row("b"), OLD, 1)
    assert slots.make(row("a"), OLD, 1)
    assert not slots.make(row("a", 300), NEW, 2)
    assert slots.all() == [row("a"), row("b")]
    assert slots.one("a") == row("a")
    assert slots.one("c") is None
    places = [(one.subject, one.subscriber_id, one.lsn, one.seen_at_ms) for one in kit.metadata.subscribers()]
    assert places == [("ann", "slot a", OLD, 1), ("ann", "slot b", OLD, 1)]


def test_slots_and_places_move_forward_together(kit: Kit) -> None:
    slots = kit.metadata.slots
    slots.make(row("a"), OLD, 1)
    assert slots.move([move("a", 300, NEW)], 7) == []
    assert slots.move([move("a", 299, OLD)], 8) == []
    assert slots.one("a") == row("a", 300)
    (place,) = kit.metadata.subscribers()
    assert (place.lsn, place.seen_at_ms) == (NEW, 8)


def test_whoever_has_lost_a_slot_moves_it_no_more(kit: Kit) -> None:
    slots = kit.metadata.slots
    slots.make(row("a"), OLD, 1)
    slots.make(row("b"), OLD, 1)
    foreign = [
        move("a", 300, NEW, holder="there"),
        move("a", 300, NEW, slot_id="id of an earlier one"),
        move("nobody", 300, NEW),
    ]
    assert slots.move([foreign[0], move("b", 300, NEW), *foreign[1:]], 7) == foreign
    assert slots.all() == [row("a"), row("b", 300)]
    places = [(one.subscriber_id, one.lsn, one.seen_at_ms) for one in kit.metadata.subscribers()]
    assert places == [("slot a", OLD, 1), ("slot b", NEW, 7)]
    slots.change("a", lambda one: one._replace(holder=""))
    assert slots.move([move("a", 300, NEW)], 8) == [move("a", 300, NEW)]


def test_a_damaged_slot_stays_as_it_is(kit: Kit) -> None:
    slots = kit.metadata.slots
    slots.make(row("a"), OLD, 1)
    kit.hurt("slot", "position = 257", "name = 'a'")
    assert slots.move([move("a", 300, NEW)], 7) == []
    assert [(one.lsn, one.seen_at_ms) for one in kit.metadata.subscribers()] == [(OLD, 1)]


def test_a_slot_is_changed_by_what_stands(kit: Kit) -> None:
    slots = kit.metadata.slots
    slots.make(row("a"), OLD, 1)
    assert slots.change("a", lambda one: one._replace(holder="there", held_until_ms=9)) == SlotRow(
        "a", "id of a", "ann", "headrace", "{}", 256, "there", 9
    )
    assert slots.change("nobody", lambda one: one) is None

    def refuse(_: SlotRow) -> SlotRow:
        raise LookupError

    with pytest.raises(LookupError):
        slots.change("a", refuse)
    found = slots.one("a")
    assert found is not None
    assert found.holder == "there"


def test_a_dropped_slot_leaves_no_place(kit: Kit) -> None:
    slots = kit.metadata.slots
    slots.make(row("a"), OLD, 1)
    kit.metadata.begin_subscriber("ann", "a", OLD, 1)
    assert slots.drop("a")
    assert not slots.drop("a")
    assert slots.all() == []
    assert [one.subscriber_id for one in kit.metadata.subscribers()] == ["a"]
    assert slots.make(row("a"), NEW, 3)
    assert slot_subscriber("a") in {one.subscriber_id for one in kit.metadata.subscribers()}


def test_a_slot_is_dropped_and_not_a_later_one_of_its_name(kit: Kit) -> None:
    slots = kit.metadata.slots
    slots.make(row("a"), OLD, 1)
    assert not slots.drop("a", "id of an earlier one")
    assert slots.all() == [row("a")]
    assert [one.subscriber_id for one in kit.metadata.subscribers()] == [slot_subscriber("a")]
    assert slots.drop("a", row("a").slot_id)
    assert (slots.all(), kit.metadata.subscribers()) == ([], [])
