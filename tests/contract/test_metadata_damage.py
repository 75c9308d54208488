"""A value that changed in a row of the metadata database: noticed, never served, and its owner's trouble alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.entries.lsn import Lsn
from headrace.errors import MetadataCorrupt
from headrace.log.metadata.contract import Metadata, RowDamage
from headrace.log.metadata.owners import Claimant
from headrace.log.metadata.postgres import PostgresMetadata
from headrace.log.metadata.rows import LISTENER, SUBSCRIBER, TABLES, HydrationRow, SnapshotRow, Table
from headrace.log.metadata.sqlite import SqliteMetadata
from headrace.log.postgres.connection import parse_address
from headrace.log.postgres.store import PostgresStore
from tests.postgres import Database

LOW, HIGH = str(Lsn(1, 1, 1)), str(Lsn(2, 1, 5))


@dataclass(frozen=True)
class Kit:
    """An open database, a way past it into its tables, and their prefix there."""

    metadata: Metadata
    sql: Callable[[str], Any]
    prefix: str

    def hurt(self, table: str, change: str, where: str) -> None:
        """Change a row behind the back of whoever keeps its checksum."""
        self.sql(f"UPDATE {self.prefix}{table} SET {change} WHERE {where}")

    def told(self) -> list[tuple[str, bool]]:
        """What is told from now on: (whose row, does it stand)."""
        told: list[tuple[str, bool]] = []
        self.metadata.damages.tell_to(lambda damage, stands: told.append((damage.who, stands)))
        return told


def sqlite(request: pytest.FixtureRequest) -> Iterator[Kit]:
    path: Path = request.getfixturevalue("tmp_path") / "metadata.sqlite3"

    def sql(statement: str) -> Any:
        with closing(sqlite3.connect(path)) as other, other:
            return other.execute(statement).fetchall()

    with closing(SqliteMetadata(path)) as opened:
        yield Kit(opened, sql, "")


def postgres(request: pytest.FixtureRequest) -> Iterator[Kit]:
    database: Database = request.getfixturevalue("database")
    with closing(PostgresStore(parse_address(database.dsn), segment_bytes=4096)) as store:
        yield Kit(PostgresMetadata(store.pool), database.sql, "headrace_log.")


Kind = Callable[[pytest.FixtureRequest], Iterator[Kit]]


@pytest.fixture(params=[sqlite, postgres], ids=lambda kind: str(kind.__name__))
def kit(request: pytest.FixtureRequest) -> Iterator[Kit]:
    """Each kind in turn, with two listeners of one feed, two subscribers and two alarms."""
    kind: Kind = request.param
    for made in kind(request):
        metadata = made.metadata
        for name in ("l1", "l2"):
            metadata.register_listener(name, "f", True, 1)
            metadata.put_position(name, "f", "i", 7, "1.1.7", 2)
        for name in ("s1", "s2"):
            metadata.begin_subscriber("anonymous", name, LOW, 3)
        metadata.change_hydration("l1", "f", lambda _: HydrationRow("l1", "f", "i", 3, "x", 7, 1, 9))
        metadata.keep_snapshot(SnapshotRow("f", "i", 1, "http://h/snapshot", "key"))
        metadata.raise_alarm("c", "one", 4, feed="f", agent_id="a")
        metadata.raise_alarm("d", "two", 5)
        yield made


CHANGES = {
    "hold": ("listener", "hold = NOT hold", "listener_id = 'l1'"),
    "incarnation": ("listener", "incarnation = 'h'", "listener_id = 'l1'"),
    "sequence id": ("listener", "sequence_id = 6", "listener_id = 'l1'"),
    "no sequence id": ("listener", "sequence_id = NULL", "listener_id = 'l1'"),
    "listener's LSN": ("listener", "lsn = '1.1.6'", "listener_id = 'l1'"),
    "listener seen": ("listener", "seen_at_ms = 3", "listener_id = 'l1'"),
    "listener's name": ("listener", "listener_id = 'l0'", "listener_id = 'l1'"),
    "listener's feed": ("listener", "feed = 'e'", "listener_id = 'l1'"),
    "place": ("subscriber", f"lsn = '{HIGH}'", "subscriber_id = 's1'"),
    "subscriber seen": ("subscriber", "seen_at_ms = 9", "subscriber_id = 's1'"),
    "subject": ("subscriber", "subject = 'anonymout'", "subscriber_id = 's1'"),
    "alarm's text": ("alarm", "detail = 'ond'", "code = 'c'"),
    "alarm cleared": ("alarm", "cleared_at_ms = 8", "code = 'c'"),
    "lease's place": ("hydration", "holds_from = 4", "listener_id = 'l1'"),
    "lease's end": ("hydration", "expires_at_ms = 99", "listener_id = 'l1'"),
    "lease's snapshot": ("hydration", "snapshot_id = NULL", "listener_id = 'l1'"),
    "snapshot's address": ("snapshot", "url = 'http://evil/snapshot'", "feed = 'f'"),
    "ticket key": ("snapshot", "ticket_key = 'kez'", "feed = 'f'"),
    "checksum": ("subscriber", "crc = crc + 1", "subscriber_id = 's1'"),
}


@pytest.mark.parametrize("what", list(CHANGES))
def test_a_changed_value_is_noticed_and_never_served(kit: Kit, what: str) -> None:
    table, change, where = CHANGES[what]
    told = kit.told()
    kit.hurt(table, change, where)
    (damage,) = kit.metadata.check()
    assert damage.table == table
    assert f"{kit.prefix}{table}" in damage.detail or f"table {table}" in damage.detail
    assert all(str(part) in damage.detail for part in damage.key)
    assert told == [(damage.who, True)]
    served = [*kit.metadata.listeners("f"), *kit.metadata.listeners("e")]
    assert [row.listener_id for row in served] == (["l2"] if table == "listener" else ["l1", "l2"])
    names = [row.subscriber_id for row in kit.metadata.subscribers()]
    assert names == (["s2"] if table == "subscriber" else ["s1", "s2"])
    assert [row.code for row in kit.metadata.alarms()] == (["d"] if table == "alarm" else ["d", "c"])
    assert told == [(damage.who, True)], "once"


def test_checksum_that_is_gone_is_damage_too(kit: Kit) -> None:
    if not kit.prefix:  # elsewhere the column takes no NULL
        kit.hurt("subscriber", "crc = NULL", "subscriber_id = 's1'")
        assert [damage.key for damage in kit.metadata.check()] == [("anonymous", "s1")]


def test_a_damaged_listener_stops_until_it_registers_again(kit: Kit) -> None:
    metadata, told = kit.metadata, kit.told()
    kit.hurt("listener", "hold = NOT hold", "listener_id = 'l1'")
    with pytest.raises(MetadataCorrupt, match="l1, f"):
        metadata.listener("l1", "f")
    with pytest.raises(MetadataCorrupt):
        metadata.put_position("l1", "f", "i", 8, None, 9)
    metadata.seen([("l1", "f"), ("l2", "f")], 20)
    assert [row.seen_at_ms for row in metadata.listeners("f")] == [20]
    assert [damage.key for damage in metadata.check()] == [("l1", "f")], "not blessed by a later write"
    metadata.put_position("l2", "f", "i", 9, None, 21)
    metadata.register_listener("l1", "f", True, 22)
    assert metadata.listener("l1", "f") == ("l1", "f", True, None, None, None, 22)
    metadata.put_position("l1", "f", "i", 8, None, 23)
    assert metadata.check() == []
    assert told == [("l1", True), ("l1", False)]


def test_a_damaged_subscriber_stops_and_the_others_go_on(kit: Kit) -> None:
    metadata, told = kit.metadata, kit.told()
    kit.hurt("subscriber", f"lsn = '{HIGH}'", "subscriber_id = 's1'")
    with pytest.raises(MetadataCorrupt, match="anonymous, s1"):
        metadata.begin_subscriber("anonymous", "s1", LOW, 9)
    metadata.move_subscribers([("anonymous", "s1", HIGH), ("anonymous", "s2", HIGH)], 10)
    assert metadata.subscribers() == [("anonymous", "s2", HIGH, 10)]
    with pytest.raises(MetadataCorrupt):
        metadata.damages.raise_if_damaged(SUBSCRIBER, ("anonymous", "s1"))
    metadata.damages.raise_if_damaged(SUBSCRIBER, ("anonymous", "s2"))
    assert [damage.key for damage in metadata.forget_damaged()] == [("anonymous", "s1")]
    assert metadata.check() == []
    assert metadata.begin_subscriber("anonymous", "s1", LOW, 11) == ("anonymous", "s1", LOW, 11)
    assert metadata.subscribers()[1] == ("anonymous", "s2", HIGH, 10)
    assert told == [("anonymous/s1", True), ("anonymous/s1", False)]


def test_a_damaged_alarm_is_said_anew_and_never_cleared_by_chance(kit: Kit) -> None:
    metadata = kit.metadata
    kit.hurt("alarm", "detail = 'ond'", "code = 'c'")
    metadata.clear_alarms("c", agent_id="a", now_ms=8)
    assert [damage.table for damage in metadata.check()] == ["alarm"]
    metadata.raise_alarm("c", "again", 9, feed="f", agent_id="a")
    assert metadata.check() == []
    assert [(row.code, row.detail) for row in metadata.alarms()] == [("c", "again"), ("d", "two")]


def test_a_row_that_an_operator_deletes_is_damaged_no_more(kit: Kit) -> None:
    told = kit.told()
    kit.hurt("listener", "hold = NOT hold", "listener_id = 'l1'")
    assert len(kit.metadata.check()) == 1
    kit.sql(f"DELETE FROM {kit.prefix}listener WHERE listener_id = 'l1'")
    assert kit.metadata.check() == []
    assert kit.metadata.listener("l1", "f") is None
    assert told == [("l1", True), ("l1", False)]


def test_whoever_asks_later_is_told_of_what_was_met_before(kit: Kit) -> None:
    kit.hurt("listener", "hold = NOT hold", "listener_id = 'l1'")
    (damage,) = kit.metadata.check()
    assert kit.told() == [("l1", True)]
    assert damage == RowDamage("listener", ("l1", "f"), damage.detail)
    assert (damage.feed, damage.who) == ("f", "l1")


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(table.name))
def test_every_value_counts(table: Table[Any]) -> None:
    row = table.make(*("x" if column != "hold" else True for column in table.columns))
    stored = table.stamped(row)
    assert table.whole(stored) == row
    others: tuple[Any, ...] = ("y", None, 0, "", "xx")
    for at in range(len(table.columns)):
        for other in others:
            assert table.whole((*stored[:at], other, *stored[at + 1 :])) is None
    for alien in (1.5, b"x", 1 << 64):
        assert table.whole((alien, *stored[1:])) is None
    other_table = SUBSCRIBER if table is LISTENER else LISTENER
    assert other_table.whole(stored) is None, "a row of another table"


def test_a_damaged_lease_is_refused_until_it_is_taken_anew_or_ended(kit: Kit) -> None:
    told = kit.told()
    kit.hurt("hydration", "holds_from = 4", "listener_id = 'l1'")
    assert kit.metadata.hydrations("f") == []
    with pytest.raises(MetadataCorrupt):
        kit.metadata.hydration("l1", "f")
    seen: list[HydrationRow | None] = []

    def change(row: HydrationRow | None) -> HydrationRow:
        seen.append(row)
        return HydrationRow("l1", "f", "i", 1, None, None, 2, 10)

    anew = kit.metadata.change_hydration("l1", "f", change)
    assert seen == [None], "nothing of a damaged row is gone by"
    assert kit.metadata.hydrations("f") == [anew]
    kit.hurt("hydration", "holds_from = 4", "listener_id = 'l1'")
    kit.metadata.check()
    kit.metadata.end_hydration("l1", "f")
    assert kit.metadata.hydration("l1", "f") is None
    assert kit.metadata.check() == []
    assert told == [("l1", True), ("l1", False), ("l1", True), ("l1", False)]


def test_where_it_cannot_be_read_whose_a_listener_is_only_an_admin_gets_through(kit: Kit) -> None:
    kit.metadata.register_listener("l1", "f", True, 1, Claimant("alice", False))
    kit.hurt("listener_owner", "subject = 'bob'", "listener_id = 'l1'")
    with pytest.raises(MetadataCorrupt):
        kit.metadata.owner("l1", "f")
    for subject in ("alice", "bob"):
        with pytest.raises(MetadataCorrupt):
            kit.metadata.register_listener("l1", "f", False, 2, Claimant(subject, False))
    kit.metadata.register_listener("l1", "f", True, 3, Claimant("root", True))
    assert kit.metadata.owner("l1", "f") == "root"
    assert kit.metadata.check() == []


def test_a_damaged_ticket_key_is_never_used_and_made_anew_at_the_next_registration(kit: Kit) -> None:
    kit.hurt("snapshot", "ticket_key = 'kez'", "feed = 'f'")
    with pytest.raises(MetadataCorrupt) as refused:
        kit.metadata.snapshot("f")
    assert "kez" not in refused.value.detail
    said = SnapshotRow("f", "i", 1, "http://h/snapshot", "another")
    assert kit.metadata.keep_snapshot(said) == said
    assert kit.metadata.snapshot("f") == said
