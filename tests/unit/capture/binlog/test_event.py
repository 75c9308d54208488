"""What a binlog is made of: GTIDs, positions and places, as text and in order."""

import pytest

from headrace.capture.binlog.event import Gtid, GtidPosition, Place
from headrace.errors import BinlogInvalid


def test_a_gtid_is_what_the_server_writes() -> None:
    assert Gtid.parse("0-1-100") == Gtid(0, 1, 100)
    assert str(Gtid(4294967295, 1, 18446744073709551615)) == "4294967295-1-18446744073709551615"


@pytest.mark.parametrize("text", ["", "0-1", "0-1-1-1", "a-b-c", "0-1--1", "0-1-\u0661", " 0-1-1"])
def test_anything_else_is_none(text: str) -> None:
    with pytest.raises(BinlogInvalid, match="is no GTID"):
        Gtid.parse(text)


def test_a_position_holds_the_last_of_each_domain() -> None:
    position = GtidPosition.parse("2-1-7, 0-1-100")
    assert str(position) == "0-1-100,2-1-7"
    assert position.of(2) == Gtid(2, 1, 7)
    assert position.of(1) is None
    moved = position.advanced(Gtid(0, 9, 101)).advanced(Gtid(1, 1, 1))
    assert str(moved) == "0-9-101,1-1-1,2-1-7"
    assert moved == GtidPosition.parse("2-1-7,1-1-1,0-9-101")
    assert len({moved, GtidPosition.parse(str(moved))}) == 1
    assert GtidPosition.parse("") == GtidPosition()


def test_a_position_covers_what_is_before_it_in_its_domain() -> None:
    position = GtidPosition.parse("0-1-100")
    assert position.covers(Gtid(0, 2, 100))
    assert not position.covers(Gtid(0, 1, 101))
    assert not position.covers(Gtid(1, 1, 1))


def test_a_domain_stands_in_a_position_once() -> None:
    with pytest.raises(BinlogInvalid, match="names a domain twice"):
        GtidPosition.parse("0-1-1,0-2-2")


def test_places_are_ordered_by_the_number_of_the_file() -> None:
    places = [Place("binlog.1000000", 4), Place("binlog.999999", 400), Place("binlog.999998", 500)]
    assert sorted(places) == places[::-1]
    assert places[0] > places[1] >= places[2]
    assert places[2] <= places[2] < places[1]
    with pytest.raises(TypeError, match="places alone"):
        _ = places[0] < ("binlog.1", 4)
