"""What every metadata database promises of the schemas that it keeps (``SchemaRows`` in its contract)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.entries.lsn import Lsn
from headrace.errors import MetadataCorrupt
from headrace.log.metadata.contract import SchemaMark, SchemaRow
from tests.contract.test_metadata_damage import Kind, Kit, postgres, sqlite


@pytest.fixture(params=[sqlite, postgres], ids=lambda kind: str(kind.__name__))
def kit(request: pytest.FixtureRequest) -> Iterator[Kit]:
    """Each kind in turn, empty."""
    kind: Kind = request.param
    yield from kind(request)


def row(version: int, at: int, *, table: str = "t", feed: str = "f", value: bytes = b"\x00{}") -> SchemaRow:
    """A schema whose entry has the sequence id ``at``."""
    return SchemaRow(feed, "d", table, version, at, str(Lsn(at, 1, at)), value)


def mark(position: int) -> SchemaMark:
    return SchemaMark("journal", position, position - 10, position * 7)


def test_schemas_are_kept_by_feed_names_and_version(kit: Kit) -> None:
    rows = kit.metadata.schemas
    rows.begin(256)
    given = [row(1, 5, value=b""), row(2, 6), row(1, 7, table="u/x"), row(1, 8, feed="g")]
    assert rows.keep(given, 256, mark(900))
    assert rows.schema("f", "d", "t", 1) == given[0]
    assert rows.schema("f", "d", "t", 2) == given[1]
    assert rows.schema("g", "d", "t", 1) == given[3]
    for missing in (("f", "d", "t", 3), ("f", "e", "t", 1), ("g", "d", "u/x", 1), ("f", "d\0", "t", 1)):
        assert rows.schema(*missing) is None
    assert rows.mark() == mark(900)
    assert kit.metadata.check() == []


def test_of_one_version_the_later_entry_stays(kit: Kit) -> None:
    rows = kit.metadata.schemas
    rows.begin(256)
    later = row(1, 9, value=b"later")
    assert rows.keep([row(1, 5), later, row(1, 7)], 256, None)
    assert rows.keep([row(1, 6)], 256, None)
    assert rows.schema("f", "d", "t", 1) == later


def test_the_newest_of_each_table_come_in_the_order_of_their_entries(kit: Kit) -> None:
    rows = kit.metadata.schemas
    rows.begin(256)
    of_t, of_a = [row(9, 1), row(3, 2)], [row(1, 3, table="a"), row(2, 5, table="a")]
    of_b = row(1, 4, table="b")
    assert rows.keep([*of_t, *of_a, of_b, row(1, 6, feed="g")], 256, None)
    assert rows.newest("f", 0, 10) == [of_t[1], of_b, of_a[1]], "by its entry, not by its number"
    assert rows.newest("f", 0, 2) == [of_t[1], of_b]
    assert rows.newest("f", 2, 10) == [of_b, of_a[1]]
    assert rows.newest("f", 5, 10) == []


def test_the_mark_moves_forward_only_and_never_over_a_new_beginning(kit: Kit) -> None:
    rows = kit.metadata.schemas
    assert rows.mark() is None
    assert not rows.keep([row(1, 1)], 0, mark(500)), "nobody said where to begin"
    rows.begin(256)
    assert rows.mark() == SchemaMark("journal", 256, 0, 0)
    assert rows.keep([], 256, mark(500))
    assert rows.keep([], 256, mark(400)), "another server was further"
    assert rows.mark() == mark(500)
    rows.begin(256)
    assert not rows.keep([row(2, 2)], 500, mark(900)), "what stands before is to be looked for again"
    assert (rows.mark(), rows.schema("f", "d", "t", 2)) == (SchemaMark("journal", 256, 0, 0), None)


def test_a_new_beginning_may_take_away_what_the_journal_no_longer_has(kit: Kit) -> None:
    rows = kit.metadata.schemas
    rows.begin(256)
    rows.keep([row(1, 5), row(2, 6), row(3, 7)], 256, mark(900))
    rows.begin(256, forget_above=str(Lsn(5, 1, 5)))
    assert rows.newest("f", 0, 10) == [row(1, 5)]


def test_a_damaged_schema_is_never_served_and_written_anew_when_it_is_found_again(kit: Kit) -> None:
    rows, told = kit.metadata.schemas, kit.told()
    rows.begin(256)
    rows.keep([row(1, 5), row(1, 6, table="u")], 256, mark(900))
    kit.hurt("table_schema", "sequence_id = 4", "table_name = 't'")
    with pytest.raises(MetadataCorrupt, match="f, d, t, 1"):
        rows.schema("f", "d", "t", 1)
    assert [one.table_name for one in rows.newest("f", 0, 9)] == ["u"]
    (damage,) = kit.metadata.check()
    assert (damage.feed, damage.who) == ("f", "schema d/t/1")
    assert rows.keep([row(1, 5)], 256, None)
    assert rows.schema("f", "d", "t", 1) == row(1, 5)
    assert told == [("schema d/t/1", True), ("schema d/t/1", False)]


def test_a_damaged_schema_that_is_removed_is_looked_for_again(kit: Kit) -> None:
    rows = kit.metadata.schemas
    rows.begin(256)
    rows.keep([row(1, 5)], 256, mark(900))
    kit.hurt("table_schema", "version = 2", "table_name = 't'")
    assert len(kit.metadata.forget_damaged()) == 1
    assert (rows.mark(), rows.schema("f", "d", "t", 1)) == (None, None)


def test_a_damaged_mark_says_nothing(kit: Kit) -> None:
    rows = kit.metadata.schemas
    rows.begin(256)
    kit.hurt("schema_mark", "position = 900", "name = 'journal'")
    assert rows.mark() is None
    assert not rows.keep([row(1, 5)], 256, mark(950))
    rows.begin(256)
    assert rows.keep([row(1, 5)], 256, mark(950))
    assert kit.metadata.check() == []
