"""Which history of which feed goes into a rebuilt journal, and what is left out."""

from __future__ import annotations

import msgspec
import pytest

from headrace.backup.rebuilding.feeds import LeftOut, Place, Selection, Why, select
from headrace.backup.rebuilding.parts import Hole
from headrace.backup.rebuilding.tails import begin_state
from headrace.entries.hlc import from_ms
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import RestoreInexact
from headrace.wire.base_manifest import BaseFeed, BaseManifest
from headrace.wire.kwal_manifest import FeedRange, Manifest, Predecessor, RegisteredFeed
from headrace.wire.lost_lsns import LostLsns

OLD, NEW = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"


def lsn(ts: int, region: int, sequence_id: int) -> Lsn:
    return Lsn(ts, region, sequence_id & 0xFFFFFFFF)


def run(
    ts: int, first: int, last: int, *, region: int = 1, feed: str = "f", incarnation: str = OLD
) -> FeedRange:
    """Entries of one append at ``ts``."""
    return FeedRange(
        feed=feed,
        region_id=region,
        incarnation=incarnation,
        first_sequence_id=first,
        last_sequence_id=last,
        first_lsn=str(lsn(ts, region, first)),
        last_lsn=str(lsn(ts, region, last)),
    )


def registered(
    feed: str = "f",
    region: int = 1,
    next_id: int = 1,
    *,
    epoch: int = 1,
    incarnation: str = OLD,
    first: int = 0,
) -> RegisteredFeed:
    return RegisteredFeed(
        feed=feed,
        region_id=region,
        tenant_id="acme",
        mode="owned",
        owner="agent",
        epoch=epoch,
        next_sequence_id=next_id,
        incarnation=incarnation,
        first_sequence_id=first,
    )


def segment(*runs: FeedRange, registry: tuple[RegisteredFeed, ...] = (), walked_from: Lsn = ZERO) -> Manifest:
    first, last = min(one.first_lsn for one in runs), max(one.last_lsn for one in runs)
    return Manifest(
        segment=f"kdb-wal-{first}-{last}.bin",
        first_lsn=first,
        last_lsn=last,
        entries=sum(one.last_sequence_id - one.first_sequence_id + 1 for one in runs),
        size=1,
        crc=1,
        walked_from=str(walked_from),
        feeds=runs,
        registry=registry,
    )


def base_at(ts: int, *feeds: BaseFeed, registry: tuple[RegisteredFeed, ...] = ()) -> BaseManifest:
    return BaseManifest(
        lsn=str(Lsn(ts, 99, 0)),
        committed_at_ms=0,
        created_at_ms=0,
        buckets=1,
        feeds=feeds,
        files=(),
        registry=registry,
    )


def based(last: int, ts: int, *, first: int = 1, incarnation: str = OLD) -> BaseFeed:
    return BaseFeed(
        feed="f",
        region_id=1,
        incarnation=incarnation,
        first_sequence_id=first,
        sequence_id=last,
        lsn=str(lsn(ts, 1, last)),
        entries=0,
    )


def chosen(*manifests: Manifest, base: BaseManifest | None = None, target: int = 1000) -> Selection:
    return select(manifests, manifests, base, Lsn(target, 0, 0))


def test_newest_history_goes_in_and_the_older_is_named() -> None:
    found = chosen(segment(run(1, 1, 9)), segment(run(2, 5, 6, incarnation=NEW)))
    one = found.feeds[1]
    assert (one.incarnation, one.first, one.below) == (NEW, 5, Place(4, lsn(1, 1, 4)))
    assert found.left_out == [LeftOut("f", OLD, 1, 9, Why.OLDER)]


def test_history_goes_on_from_the_one_before_if_the_server_said_so() -> None:
    told = (registered(next_id=12, incarnation=NEW, first=1),)
    older, newer = run(1, 1, 9), run(3, 10, 11, incarnation=NEW)
    for found in (
        chosen(segment(older), segment(newer, registry=told)),
        chosen(segment(older, newer, registry=told)),
    ):
        one = found.feeds[1]
        assert (one.first, one.below, one.histories, found.left_out) == (1, None, frozenset({OLD, NEW}), [])
        assert (one.incarnation, one.began) == (NEW, 1)
    apart = chosen(segment(older), segment(run(3, 11, 11, incarnation=NEW), registry=told))
    assert (apart.since, apart.feeds[1].first, apart.feeds[1].holes) == (1, 11, (Hole(10, 10),))
    assert apart.left_out == [LeftOut("f", OLD, 1, 9, Why.GAP)], "entry 10 is not in the archive"
    assert apart.feeds[1].below == Place(10, lsn(1, 1, 10))
    again = chosen(segment(older), segment(run(3, 9, 11, incarnation=NEW), registry=told)).feeds[1]
    assert (again.first, again.histories) == (9, frozenset({NEW})), "its entry 9 is another one"
    anew = (registered(next_id=12, incarnation=NEW, first=10),)
    begun = chosen(segment(older), segment(newer, registry=anew))
    assert (begun.feeds[1].first, begun.feeds[1].below) == (10, None), "it began there"
    assert [one.why for one in begun.left_out] == [Why.OLDER]


def test_history_goes_on_from_the_base() -> None:
    told = (registered(next_id=6, incarnation=NEW, first=1),)
    behind = segment(run(8, 4, 5, incarnation=NEW), registry=told, walked_from=Lsn(5, 99, 0))
    found = chosen(behind, base=base_at(5, based(3, 3)))
    one = found.feeds[1]
    assert (one.first, one.below, one.began) == (4, Place(3, lsn(3, 1, 3)), 1)
    assert found.left_out == [LeftOut("f", OLD, 1, 3, Why.BASE)]
    both = base_at(5, based(2, 2), based(3, 3, first=3, incarnation=NEW), registry=told)
    one = chosen(behind, base=both).feeds[1]
    assert (one.first, one.below, one.histories) == (4, Place(3, lsn(3, 1, 3)), frozenset({OLD, NEW}))


def test_entry_below_a_history_is_put_below_the_whole_journal() -> None:
    other = run(2, 1, 7, region=2, feed="g")
    found = chosen(segment(run(1, 1, 4)), segment(other, run(9, 7, 8, incarnation=NEW)))
    assert found.feeds[1].below == Place(6, lsn(1, 1, 6))


def test_lost_entries_that_are_in_the_archive_after_all_are_not_lost() -> None:
    """The agent held them when the server was rebuilt without."""
    lost = LostLsns(str(lsn(1, 1, 4)), str(Lsn(50, 0, 0)))
    told = (msgspec.structs.replace(registered(incarnation=NEW, first=1), lost_lsns=(lost,)),)
    held, new = segment(run(2, 5, 6)), segment(run(60, 7, 7, incarnation=NEW), registry=told)
    found = chosen(segment(run(1, 1, 4)), held, new)
    assert found.lost == (LostLsns(str(lsn(2, 1, 6)), lost.before),)
    assert chosen(segment(run(1, 1, 4)), new).lost == (lost,)


def test_history_that_begins_at_1_has_nothing_below() -> None:
    found = chosen(segment(run(1, 1, 9), run(2, 1, 2, incarnation=NEW)))
    assert (found.feeds[1].first, found.feeds[1].below) == (1, None)


def test_newest_is_the_newest_at_the_target() -> None:
    found = chosen(segment(run(1, 1, 9)), segment(run(20, 1, 2, incarnation=NEW)), target=10)
    assert found.feeds[1].incarnation == OLD
    assert not found.left_out


def test_number_that_was_given_twice_is_the_newer_feeds() -> None:
    """The server had lost its folder, and began anew with an empty one."""
    found = chosen(
        segment(run(1, 1, 9), run(2, 1, 4, region=2, feed="g")),
        segment(run(3, 1, 1, feed="g", incarnation=NEW)),
    )
    assert {one.feed for one in found.feeds.values()} == {"g"}
    assert found.next_region_id == 3
    assert {(one.feed, one.why) for one in found.left_out} == {("f", Why.REPLACED), ("g", Why.OLDER)}


def test_feed_that_begins_at_63() -> None:
    assert chosen(segment(run(1, 63, 70))).feeds[1].below is None
    late = chosen(segment(run(9, 63, 70), walked_from=Lsn(5, 0, 0))).feeds[1]
    assert late.below == Place(62, lsn(8, 1, 62)), "nobody knows whether there was anything before"
    told = segment(run(9, 63, 70), walked_from=Lsn(5, 0, 0), registry=(registered(next_id=71, first=63),))
    assert chosen(told).feeds[1].below is None


def test_base_stands_for_what_is_below_it() -> None:
    straddling = segment(run(3, 3, 3), run(8, 4, 9), walked_from=Lsn(2, 0, 0))
    found = chosen(straddling, base=base_at(5, based(3, 3)))
    one = found.feeds[1]
    assert (found.after.global_ts, one.first, one.below, one.began) == (5, 4, Place(3, lsn(3, 1, 3)), 1)
    assert found.left_out == [LeftOut("f", OLD, 1, 3, Why.BASE)]


def test_feed_that_only_the_base_has() -> None:
    other = segment(run(8, 1, 2, region=2, feed="g"), walked_from=Lsn(5, 99, 0))
    found = chosen(other, base=base_at(5, based(3, 3, first=2)))
    one = found.feeds[1]
    assert (one.first, one.below, one.began) == (0, Place(3, lsn(3, 1, 3)), 2)
    state = begin_state(found, from_ms(5000), lambda: NEW)
    tail = state.feeds["f"]
    assert (tail.next_sequence_id, tail.first_sequence_id, tail.newest_lsn) == (4, 2, str(lsn(3, 1, 3)))
    assert state.feeds["g"].first_sequence_id == 0, "it began behind the base"


def test_journal_begins_behind_a_gap() -> None:
    found = chosen(
        segment(run(1, 1, 3), run(2, 1, 2, region=2, feed="g")),
        segment(run(9, 6, 7), walked_from=Lsn(8, 0, 0)),
    )
    assert (found.since, found.after) == (1, lsn(2, 2, 2))
    f, g = found.feeds[1], found.feeds[2]
    assert (f.first, f.below) == (6, Place(5, lsn(1, 1, 5)))
    assert (g.first, g.below) == (0, Place(2, lsn(2, 2, 2)))
    assert {(one.feed, one.why) for one in found.left_out} == {("f", Why.GAP), ("g", Why.GAP)}


def test_gap_inside_a_segment_leaves_all_of_it_out() -> None:
    found = chosen(segment(run(1, 1, 3), run(2, 5, 6)), segment(run(3, 7, 7)))
    assert (found.since, found.feeds[1].first, found.feeds[1].below) == (1, 7, Place(6, lsn(2, 1, 6)))


def joined(*manifests: Manifest) -> list[Manifest]:
    """The same segments, written by one stream that ran unbroken."""
    found = list(manifests[:1])
    for after in manifests[1:]:
        before = found[-1]
        known = Predecessor(name=before.segment, last_lsn=before.last_lsn, crc=before.crc)
        found.append(msgspec.structs.replace(after, predecessor=known, walked_from=before.last_lsn))
    return found


def test_first_entries_that_a_gap_took() -> None:
    """As those in the middle: the journal begins behind the gap, and what is missing is named."""
    other, told = run(1, 1, 3, region=2, feed="g"), (registered(next_id=8, first=1),)
    late = segment(run(9, 6, 7), run(8, 4, 4, region=2, feed="g"), registry=told)
    found = chosen(segment(other), late)
    f = found.feeds[1]
    assert (found.since, found.after, f.first, f.began) == (1, lsn(1, 2, 3), 6, 1)
    assert (f.below, f.holes) == (Place(5, lsn(7, 1, 5)), (Hole(1, 5),))
    assert [(one.feed, one.why) for one in found.left_out] == [("g", Why.GAP)]
    tail = begin_state(found, from_ms(5000), lambda: NEW).feeds["f"]
    assert (tail.first_sequence_id, tail.next_sequence_id) == (1, 6)

    begun_there = msgspec.structs.replace(late, registry=(registered(next_id=8, first=6),))
    found = chosen(segment(other), begun_there)
    assert (found.since, found.feeds[1].holes, found.feeds[1].below) == (0, (), None), "it began at 6"
    untold = msgspec.structs.replace(late, registry=())
    assert chosen(segment(other), untold).feeds[1].holes == (Hole(1, 5),), "in doubt they are missing"
    found = chosen(*joined(segment(other), untold))
    assert (found.since, found.feeds[1].holes, found.feeds[1].below) == (0, (), None), "nothing was between"


def test_first_entries_may_have_been_in_any_gap_before_what_is_left() -> None:
    def of(ts: int, number: int) -> Manifest:
        return segment(run(ts, number, number, region=2, feed="g"))

    told = (registered(next_id=8, first=1),)
    late = segment(run(9, 6, 7), registry=told)
    whole = joined(of(3, 3), of(4, 4), late)
    assert chosen(of(1, 1), of(2, 2), *whole).since == 2
    base = base_at(5, BaseFeed(feed="g", region_id=2, incarnation=OLD, first_sequence_id=1, sequence_id=1,
                               lsn=str(lsn(1, 2, 1)), entries=0))  # fmt: skip
    behind = msgspec.structs.replace(late, walked_from=str(Lsn(6, 0, 0)))
    found = chosen(behind, base=base)
    assert (found.since, found.feeds[1].holes, found.feeds[1].below) == (
        0,
        (Hole(1, 5),),
        Place(5, lsn(8, 1, 5)),
    )


def test_gap_right_behind_the_base() -> None:
    told = (registered(next_id=8, incarnation=NEW, first=1),)
    for incarnation in (OLD, NEW):
        late = segment(run(9, 6, 7, incarnation=incarnation), registry=told, walked_from=Lsn(8, 0, 0))
        found = chosen(late, base=base_at(5, based(3, 3)))
        one = found.feeds[1]
        assert (one.first, one.below, one.holes) == (6, Place(5, lsn(3, 1, 5)), (Hole(4, 5),))
        assert one.histories == {OLD, incarnation}


def test_gaps_in_the_middle_are_named() -> None:
    found = chosen(segment(run(1, 1, 3)), segment(run(5, 6, 6)), segment(run(9, 9, 9)))
    assert found.feeds[1].holes == (Hole(4, 5), Hole(7, 8))


def test_end_that_a_gap_took() -> None:
    """Nothing of the feed follows. The server said what there was, and the journal begins behind the gap."""
    other = segment(run(9, 1, 2, region=2, feed="g"), registry=(registered(next_id=6), registered("g", 2, 3)))
    found = chosen(segment(run(1, 1, 3)), other)
    f = found.feeds[1]
    assert (found.since, f.first, f.holes, f.below) == (1, 0, (Hole(4, 5),), Place(5, lsn(1, 1, 5)))
    tail = begin_state(found, from_ms(5000), lambda: NEW).feeds["f"]
    assert (tail.next_sequence_id, tail.first_sequence_id) == (6, 1)
    assert chosen(*joined(segment(run(1, 1, 3)), other)).feeds[1].holes == (), (
        "behind the target, or lost there"
    )
    first = segment(run(1, 1, 3))
    behind = segment(run(20, 4, 5))
    found = select([first, other], [first, other, behind], None, Lsn(10, 0, 0))
    assert (found.since, found.feeds[1].holes) == (0, ()), "they are in the archive, behind the target"
    anew = segment(run(9, 1, 2, region=2, feed="g"), registry=(registered(next_id=6, incarnation=NEW),))
    assert chosen(first, anew).feeds[1].holes == (), "another history"


def test_feed_that_a_gap_took_wholly() -> None:
    def of(ts: int, number: int, next_id: int) -> Manifest:
        told = (registered(next_id=next_id, first=3),)
        return segment(run(ts, number, number, region=2, feed="g"), registry=told)

    found = chosen(of(1, 1, 3), of(5, 2, 9))
    f = found.feeds[1]
    assert (found.since, f.holes, f.below, f.began) == (1, (Hole(3, 8),), Place(8, lsn(4, 1, 8)), 3)
    tail = begin_state(found, from_ms(5000), lambda: NEW).feeds["f"]
    assert (tail.next_sequence_id, tail.first_sequence_id) == (9, 3)
    assert chosen(of(1, 1, 3), of(5, 2, 3)).feeds[1].below is None, "it had no entries"
    later = of(1, 1, 3), *joined(of(5, 2, 5), of(6, 3, 9))
    found = chosen(*later)
    assert (found.since, found.feeds[1].holes, found.feeds[1].known_next) == (1, (Hole(3, 4),), 9)
    assert chosen(*joined(of(1, 1, 3), of(5, 2, 9))).feeds[1].below is None, (
        "no gap took them: they came later"
    )
    assert chosen(of(1, 1, 9), of(5, 2, 9), of(6, 3, 9)).since == 2, (
        "the agent may have been far behind the server"
    )
    late = base_at(5, registry=(registered(next_id=9, first=3),))
    after = segment(run(8, 1, 2, region=2, feed="g"), walked_from=Lsn(6, 0, 0))
    found = chosen(after, base=late)
    assert (found.since, found.feeds[1].holes, found.feeds[1].below) == (
        0,
        (Hole(3, 8),),
        Place(8, lsn(7, 1, 8)),
    )


def test_entries_that_stand_there_twice_are_refused() -> None:
    with pytest.raises(RestoreInexact, match="3 to 3 of f stand in the archive twice"):
        chosen(segment(run(1, 1, 3)), segment(run(2, 3, 4)))


def test_epochs_and_numbers_are_above_all_that_the_archive_knows() -> None:
    """Also what it knows from behind the target."""
    first = segment(run(1, 1, 3), registry=(registered(next_id=4, epoch=3),))
    later = segment(run(50, 4, 4), registry=(registered(next_id=5, epoch=7), registered("late", 8, epoch=2)))
    found = select([first], [first, later], None, Lsn(10, 0, 0))
    assert (found.feeds[1].epoch, found.next_region_id) == (7, 9)
    assert "late" not in {one.feed for one in found.feeds.values()}
    assert begin_state(found, 0, lambda: NEW).feeds["f"].epoch == 8
    assert begin_state(found, from_ms(5000), lambda: NEW).feeds["f"].epoch == 5000


def test_settings_that_nobody_can_read_are_refused() -> None:
    strange = registered()
    strange = RegisteredFeed(
        **{name: getattr(strange, name) for name in strange.__struct_fields__}
        | {"settings": {"changes": "odd"}}
    )
    found = chosen(segment(run(1, 1, 1), registry=(strange,)))
    with pytest.raises(RestoreInexact, match="settings of f"):
        begin_state(found, 0, lambda: NEW)
