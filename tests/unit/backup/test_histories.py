"""What follows what is archived: sequence ids from LSNs that have half of them, histories, gaps."""

from __future__ import annotations

import pytest

from headrace.backup.histories import Histories, registered
from headrace.entries.entry import Change
from headrace.errors import BackupGap
from headrace.wire.documents import FeedSettings, FeedView
from headrace.wire.kwal_columns import Segment
from headrace.wire.kwal_feeds import FeedRun, survey
from tests.kwal import TS, bytes_of, sealed, stamped

OLD, NEW = "ecb4aeb2-1c53-4e81-9b51-2fba0d685531", "00000000-0000-4000-8000-000000000001"
WRAP = 1 << 32


def runs(first_id: int, count: int, region: int = 7) -> list[FeedRun]:
    """What a segment with these entries holds."""
    append = stamped([Change(b"{}")] * count, first_id, ts=TS + first_id, region=region, feed="shop::orders")
    return survey(Segment(bytes_of(sealed([append])), where="a segment").blocks())


def view(incarnation: str, next_id: int, *, first: int = 1, oldest: int = 1, region: int = 7) -> FeedView:
    return FeedView(
        change_feed_id="shop::orders",
        region_id=region,
        tenant_id="acme",
        incarnation=incarnation,
        owner="agent-1",
        epoch=3,
        oldest_sequence_id=oldest,
        head_sequence_id=next_id - 1,
        next_sequence_id=next_id,
        newest_lsn="",
        quarantined=False,
        listeners=[],
        first_sequence_id=first,
    )


def archived(first_id: int, count: int, incarnation: str = OLD) -> Histories:
    made = Histories()
    made.take(run.placed(incarnation, first_id) for run in runs(first_id, count))
    return made


def test_ids_come_from_what_is_archived_or_from_the_registry() -> None:
    histories = archived(5 * WRAP + 1, 3)
    (placed,) = histories.placed(runs(5 * WRAP + 4, 2), {7: OLD}, {})
    assert (placed.first_sequence_id, placed.last_sequence_id) == (5 * WRAP + 4, 5 * WRAP + 5)
    (placed,) = Histories().placed(runs(3 * WRAP + 1, 2), {7: OLD}, {7: view(OLD, 3 * WRAP + 900)})
    assert (placed.first_sequence_id, placed.incarnation) == (3 * WRAP + 1, OLD)
    (placed,) = Histories().placed(runs(9, 2), {}, {})
    assert (placed.first_sequence_id, placed.incarnation) == (9, ""), "as much as can be told"


def test_another_history_may_begin_anywhere() -> None:
    histories = archived(1, 10)
    (placed,) = histories.placed(runs(4, 2), {7: NEW}, {7: view(NEW, 6)})
    assert (placed.first_sequence_id, placed.incarnation) == (4, NEW)
    histories.take([placed])
    assert histories.incarnations == {7: NEW}


@pytest.mark.parametrize("first", [10, 12])
def test_what_does_not_follow_is_refused(first: int) -> None:
    with pytest.raises(BackupGap, match="behind the sequence id 10"):
        archived(1, 10).placed(runs(first, 2), {7: OLD}, {})


def test_an_accepted_gap_is_passed_once() -> None:
    histories = archived(1, 10)
    histories.allow_gap()
    placed = histories.placed(runs(20, 2), {7: OLD}, {})
    histories.take(placed)
    with pytest.raises(BackupGap):
        histories.placed(runs(30, 2), {7: OLD}, {})
    histories.allow_gap()
    with pytest.raises(BackupGap):
        histories.placed(runs(15, 2), {7: OLD}, {})


def test_a_segment_joins_if_each_of_its_feeds_does() -> None:
    histories = archived(1, 10)
    assert histories.joins(runs(11, 5))
    assert not histories.joins(runs(12, 5))
    assert not histories.joins([*runs(11, 5), *runs(1, 1, region=8)]), "that feed is new"
    assert archived(WRAP - 2, 2).joins(runs(WRAP, 1)), "the half of an id begins anew"


def test_what_is_lost_and_what_is_left_to_archive() -> None:
    histories = archived(1, 10)
    feeds = [view(OLD, 31, oldest=21), view(NEW, 9, oldest=5, region=8)]
    assert histories.lost(feeds) == ["shop::orders 11 to 20", "shop::orders 1 to 4"]
    assert histories.behind(feeds) == 10 + 4
    assert histories.lost([view(OLD, 31, oldest=11)]) == []
    assert histories.lost([view(OLD, 1, first=0, region=9)]) == [], "it never had an entry"


def test_ids_are_known_where_the_history_is() -> None:
    histories = archived(1, 10)
    assert histories.stranger(runs(11, 1), {7: OLD}, {}) is None
    assert histories.stranger(runs(11, 1), {7: NEW}, {}) == runs(11, 1)[0]
    assert histories.stranger(runs(11, 1), {7: NEW}, {7: view(NEW, 20)}) is None
    other = runs(1, 2, region=8)
    assert histories.stranger([*runs(11, 1), *other], {7: OLD, 8: NEW}, {}) == other[0]


def test_the_registry_as_manifests_have_it() -> None:
    shown = view(OLD, 9)
    shown.settings = FeedSettings(
        change_feed_id="shop::orders", key_field="id", changes="full", expected_offset="required"
    )
    (found,) = registered([shown])
    assert (found.feed, found.mode, found.owner, found.epoch, found.next_sequence_id) == (
        "shop::orders", "owned", "agent-1", 3, 9,
    )  # fmt: skip
    assert found.settings["expected-offset"] == "required"
    assert (found.incarnation, found.first_sequence_id) == (OLD, 1)
