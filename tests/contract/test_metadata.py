"""What every metadata database promises (``log/metadata/contract.py``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from headrace.entries.lsn import Lsn
from headrace.errors import ListenersTooMany, ListenerTaken
from headrace.log.metadata import owners
from headrace.log.metadata.contract import ALARMS_MAX, Metadata
from headrace.log.metadata.owners import ANYBODY, Claimant
from headrace.log.metadata.postgres import PostgresMetadata
from headrace.log.metadata.rows import HydrationRow, SnapshotRow
from headrace.log.metadata.sqlite import SqliteMetadata
from headrace.log.postgres.connection import parse_address
from headrace.log.postgres.store import PostgresStore
from tests.postgres import Database


def sqlite(request: pytest.FixtureRequest) -> Iterator[Metadata]:
    """The database beside a file store's journal."""
    folder: Path = request.getfixturevalue("tmp_path")
    with closing(SqliteMetadata(folder / "metadata.sqlite3")) as opened:
        yield opened


def postgres(request: pytest.FixtureRequest) -> Iterator[Metadata]:
    """The tables beside a PostgreSQL store's journal."""
    database: Database = request.getfixturevalue("database")
    with closing(PostgresStore(parse_address(database.dsn), segment_bytes=4096)) as store:
        yield PostgresMetadata(store.pool)


Kind = Callable[[pytest.FixtureRequest], Iterator[Metadata]]


@pytest.fixture(params=[sqlite, postgres], ids=lambda kind: str(kind.__name__))
def metadata(request: pytest.FixtureRequest) -> Iterator[Metadata]:
    """Each kind in turn, empty."""
    kind: Kind = request.param
    yield from kind(request)


def test_listeners_keep_their_bookmarks_over_registrations(metadata: Metadata) -> None:
    metadata.register_listener("l", "f", False, 1)
    assert metadata.listener("l", "f") == ("l", "f", False, None, None, None, 1)
    metadata.put_position("l", "f", "i", 7, "1.1.7", 2)
    metadata.register_listener("l", "f", True, 3)
    assert metadata.listeners("f") == [("l", "f", True, "i", 7, "1.1.7", 3)]
    metadata.seen([("l", "f")], 9)
    assert metadata.listeners("f")[0].seen_at_ms == 9
    assert metadata.listener("l", "g") is None


def test_listeners_are_sorted_by_name_and_keep_to_their_feed(metadata: Metadata) -> None:
    for name in ("b", "B", "a-1", "a", "é"):
        metadata.register_listener(name, "f", True, 1)
    metadata.register_listener("a", "g", False, 2)
    assert [row.listener_id for row in metadata.listeners("f")] == ["B", "a", "a-1", "b", "é"]
    metadata.seen([("a", "g"), ("b", "f"), ("nobody", "f"), ("a", "nowhere")], 5)
    assert {(row.listener_id, row.seen_at_ms) for row in metadata.listeners("f")} >= {("a", 1), ("b", 5)}
    assert metadata.listeners("g") == [("a", "g", False, None, None, None, 5)]
    metadata.put_position("a", "g", "i", 1 << 62, None, 6)
    assert metadata.listener("a", "g") == ("a", "g", False, "i", 1 << 62, None, 6)


@pytest.mark.parametrize("name", ["", "\0", "a\0b", "'; DROP TABLE listener; --", "%s", "ü" * 300])
def test_any_text_can_be_asked_for(metadata: Metadata, name: str) -> None:
    assert metadata.listener(name, "f") is None
    metadata.register_listener("l", "f", False, 1)
    assert metadata.listener(name, "f") is None


def test_an_alarm_stands_once_and_comes_again_after_it_was_cleared(metadata: Metadata) -> None:
    first = metadata.raise_alarm("c", "one", 1, feed="f", agent_id="a")
    assert metadata.raise_alarm("c", "two", 2, feed="f", agent_id="a") == first
    metadata.clear_alarms("c", agent_id="a", now_ms=3)
    assert metadata.raise_alarm("c", "three", 4, feed="f", agent_id="a") != first
    found = metadata.alarms()
    assert [(alarm.detail, alarm.cleared_at_ms) for alarm in found] == [("three", None), ("two", 3)]


def test_alarms_that_stand_come_first_then_the_newest_cleared(metadata: Metadata) -> None:
    for number in range(ALARMS_MAX + 3):
        metadata.raise_alarm("c", f"{number}", number, feed=f"f{number}")
    metadata.clear_alarms("c", agent_id="somebody", now_ms=9_000)
    assert all(alarm.cleared_at_ms is None for alarm in metadata.alarms())
    metadata.clear_alarms("c", agent_id="", now_ms=9_001)
    metadata.raise_alarm("d", "stands", 1)
    found = metadata.alarms()
    assert len(found) == ALARMS_MAX
    assert [alarm.detail for alarm in found[:3]] == ["stands", f"{ALARMS_MAX + 2}", f"{ALARMS_MAX + 1}"]


def test_a_subscriber_keeps_its_place_and_moves_forward_only(metadata: Metadata) -> None:
    low, high = str(Lsn(1, 1, 1)), str(Lsn(2, 1, 5))
    assert metadata.begin_subscriber("anonymous", "", low, 10) == ("anonymous", "", low, 10)
    assert metadata.begin_subscriber("anonymous", "", high, 11) == ("anonymous", "", low, 11)
    metadata.begin_subscriber("admin", "backup", low, 12)
    moved = metadata.move_subscribers(
        [("anonymous", "", high), ("admin", "backup", low), ("nobody", "", high)], 13
    )
    assert sorted(moved) == [("admin", "backup", low, 13), ("anonymous", "", high, 13)], "who is not there"
    metadata.move_subscribers([("anonymous", "", low)], 14)
    assert metadata.subscribers() == [("admin", "backup", low, 13), ("anonymous", "", high, 14)]


def test_the_least_place_is_that_of_who_was_seen_late_enough(metadata: Metadata) -> None:
    assert metadata.least_place(-1) is None
    for number in range(1, 6):
        metadata.begin_subscriber("anonymous", f"s{number}", str(Lsn(number, 1, 1)), number)
    assert metadata.least_place(-1) == str(Lsn(1, 1, 1))
    assert metadata.least_place(3) == str(Lsn(4, 1, 1))
    assert metadata.least_place(5) is None


def test_subscribers_are_forgotten_oldest_first_so_many_at_once(metadata: Metadata) -> None:
    for number in range(5):
        metadata.begin_subscriber("anonymous", f"s{number}", str(Lsn(9, 1, 1)), 10 - number)
    assert metadata.forget_subscribers(6, 9) == []
    gone = metadata.forget_subscribers(9, 2)
    assert sorted(row.subscriber_id for row in gone) == ["s3", "s4"]
    assert [row.subscriber_id for row in metadata.subscribers()] == ["s0", "s1", "s2"]
    assert [row.subscriber_id for row in metadata.forget_subscribers(9, 2)] == ["s2"]
    metadata.begin_subscriber("anonymous", "s2", str(Lsn(1, 1, 1)), 11)
    assert metadata.subscribers()[2].lsn == str(Lsn(1, 1, 1)), "it begins anew"


def test_cleared_alarms_are_kept_up_to_a_bound_and_standing_ones_all(
    metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{type(metadata).__module__}.ALARMS_MAX", 5)
    metadata.raise_alarm("c", "stands", 1, feed="other")
    for number in range(20):
        metadata.raise_alarm("c", f"{number}", 1_000 - number, feed=f"f{number}")
        metadata.clear_alarms("c", agent_id="", now_ms=9_001, feed=f"f{number}")
    monkeypatch.undo()
    stands, *cleared = metadata.alarms()
    assert (stands.detail, stands.cleared_at_ms) == ("stands", None)
    assert sorted(alarm.detail for alarm in cleared) == ["15", "16", "17", "18", "19"]
    assert metadata.raise_alarm("d", "new", 1) > max(alarm.alarm_id for alarm in cleared)
    assert metadata.check() == []


def test_text_that_is_no_utf8_can_be_stored(metadata: Metadata) -> None:
    metadata.raise_alarm("c", "/caf\udce9: full", 1)
    assert [alarm.detail for alarm in metadata.alarms()] == ["/caf\\udce9: full"]
    assert metadata.check() == []


def test_alarms_of_one_feed_are_cleared_alone(metadata: Metadata) -> None:
    for feed in ("f", "g", ""):
        metadata.raise_alarm("c", f"of {feed}", 1, feed=feed)
    metadata.clear_alarms("c", agent_id="", now_ms=2, feed="f")
    assert {alarm.feed for alarm in metadata.alarms() if alarm.cleared_at_ms is None} == {"g", ""}
    metadata.clear_alarms("c", agent_id="", now_ms=3, feed="")
    assert {alarm.feed for alarm in metadata.alarms() if alarm.cleared_at_ms is None} == {"g"}


def kept(row: HydrationRow, _: HydrationRow | None) -> HydrationRow:
    """Put this row, whatever stands there."""
    return row


def test_leases_are_kept_by_listener_and_feed(metadata: Metadata) -> None:
    def lease(name: str, feed: str, holds_from: int) -> HydrationRow:
        return HydrationRow(name, feed, "i", holds_from, None, None, 1, 2)

    for fresh in (lease("b", "f", 1), lease("a", "f", 1), lease("a", "g", 1)):
        assert metadata.change_hydration(fresh.listener_id, fresh.feed, partial(kept, fresh)) == fresh
    metadata.change_hydration("a", "f", lambda row: lease("a", "f", 1 + (row.holds_from if row else 100)))
    assert [(row.listener_id, row.holds_from) for row in metadata.hydrations("f")] == [("a", 2), ("b", 1)]
    metadata.end_hydration("a", "f")
    metadata.end_hydration("a", "f")
    assert metadata.hydration("a", "f") is None
    assert metadata.hydration("a\0", "f") is None
    assert metadata.hydration("a", "g") == lease("a", "g", 1)


def test_a_change_of_a_lease_that_fails_changes_nothing(metadata: Metadata) -> None:
    def fail(_: HydrationRow | None) -> HydrationRow:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        metadata.change_hydration("a", "f", fail)
    assert metadata.hydrations("f") == []


def test_where_snapshots_are_is_what_the_newest_epoch_said_last(metadata: Metadata) -> None:
    def said(epoch: int, url: str | None, key: str, incarnation: str = "i") -> SnapshotRow:
        return metadata.keep_snapshot(SnapshotRow("f", incarnation, epoch, url, key))

    assert metadata.snapshot("f") is None
    assert said(2, "u", "k2").ticket_key == "k2"
    assert said(2, "v", "other") == SnapshotRow("f", "i", 2, "v", "k2"), "the same instance keeps its key"
    assert said(1, "late", "k1") == SnapshotRow("f", "i", 2, "v", "k2"), "fenced by then"
    assert said(3, "w", "k3").ticket_key == "k3"
    assert said(3, None, "k").url is None
    assert said(1, "u", "k4", "another").ticket_key == "k4", "the feed was made anew"
    assert metadata.snapshot("f") == SnapshotRow("f", "another", 1, "u", "k4")
    assert "k4" not in repr(metadata.snapshot("f"))


ALICE, BOB, ADMIN = Claimant("alice", False), Claimant("bob", False), Claimant("root", True)


def test_a_listener_is_its_first_subjects_until_an_admin_takes_it_over(metadata: Metadata) -> None:
    metadata.register_listener("l", "f", True, 1, ALICE)
    metadata.register_listener("l", "f", True, 2, ALICE)
    metadata.register_listener("l", "g", False, 2, BOB)
    with pytest.raises(ListenerTaken):
        metadata.register_listener("l", "f", False, 3, BOB)
    with pytest.raises(ListenerTaken):
        metadata.register_listener("l", "f", False, 3, Claimant("", False))
    assert metadata.listener("l", "f") == ("l", "f", True, None, None, None, 2), "its hold stands"
    metadata.register_listener("l", "f", True, 4, ANYBODY)
    assert metadata.owner("l", "f") == "alice", "who has no name owns nothing"
    metadata.register_listener("l", "f", True, 5, ADMIN)
    assert (metadata.owner("l", "f"), metadata.owner("l", "g"), metadata.owner("m", "f")) == (
        "root",
        "bob",
        None,
    )


def test_a_listener_that_is_nobodys_becomes_that_of_who_registers_it(metadata: Metadata) -> None:
    metadata.register_listener("l", "f", False, 1)
    assert metadata.owner("l", "f") is None
    metadata.register_listener("l", "f", False, 2, BOB)
    assert metadata.owner("l", "f") == "bob"


def test_listeners_are_bounded_by_subject_and_by_feed(
    metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "OF_SUBJECT_MAX", 2)
    monkeypatch.setattr(owners, "OF_FEED_MAX", 4)
    for name in ("a-1", "a-2"):
        metadata.register_listener(name, "f", False, 1, ALICE)
    with pytest.raises(ListenersTooMany, match="this token's subject has 2 listeners"):
        metadata.register_listener("a-3", "f", False, 1, ALICE)
    metadata.register_listener("a-2", "f", True, 2, ALICE)
    metadata.register_listener("a-3", "g", False, 1, ALICE)
    for name in ("b-1", "b-2"):
        metadata.register_listener(name, "f", False, 1, BOB)
    with pytest.raises(ListenersTooMany, match="the feed f has 4 listeners"):
        metadata.register_listener("c", "f", False, 1)
    assert [row.listener_id for row in metadata.listeners("f")] == ["a-1", "a-2", "b-1", "b-2"]
    assert metadata.owner("a-3", "f") is None


def test_listeners_are_forgotten_oldest_first_and_never_under_a_lease(metadata: Metadata) -> None:
    for name, seen_at in (("old", 9), ("older", 8), ("leased", 7), ("ended", 6), ("new", 50)):
        metadata.register_listener(name, "f", name == "older", seen_at, ALICE)
    for name, expires_at in (("leased", 40), ("ended", 19)):
        row = HydrationRow(name, "f", "i", 1, None, None, 1, expires_at)
        metadata.change_hydration(name, "f", partial(_always, row))
    assert [row.listener_id for row in metadata.forget_listeners(20, 2)] == ["ended", "older"]
    assert [row.listener_id for row in metadata.forget_listeners(20, 9)] == ["old"]
    assert [row.listener_id for row in metadata.listeners("f")] == ["leased", "new"]
    assert [row.listener_id for row in metadata.hydrations("f")] == ["leased"]
    assert metadata.owner("old", "f") is None
    assert metadata.owner("leased", "f") == "alice"
    metadata.register_listener("old", "f", False, 60, BOB)
    assert metadata.owner("old", "f") == "bob", "a name that is forgotten is free"


def _always(row: HydrationRow, _: HydrationRow | None) -> HydrationRow:
    return row
