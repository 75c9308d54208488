"""Any segments, any consumers, any moment: what the retention plan must never do, and what it must not leave undone."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.entries.hlc import from_ms
from headrace.log.contract import SegmentView
from headrace.log.retention.loss import ACTIVE_MS, Rates, time_to_loss
from headrace.log.retention.plan import Consumer, Fate, Terms, plan_retention
from tests.retention import consumer, sizes
from tests.scale import scaled, sized

MS_MAX = 1000
ROUNDS = settings(max_examples=sized(scaled(90), soak=scaled(300)), deadline=None)


@st.composite
def journals(draw: st.DrawFn) -> list[SegmentView]:
    """Up to eight segments of any size, their newest frames at any times in order; the last one is open."""
    count = draw(st.integers(1, 8))
    times = sorted(draw(st.lists(st.integers(0, MS_MAX), min_size=count, max_size=count)))
    found: list[SegmentView] = []
    begin = draw(st.integers(0, 50))
    for index, ms in enumerate(times):
        end = begin + draw(st.integers(1, 40))
        found.append(SegmentView(begin, end, end - begin + 5, from_ms(ms), index == count - 1))
        begin = end
    return found


@st.composite
def crowds(draw: st.DrawFn) -> list[Consumer]:
    """Up to six consumers: some hold until some time, some lost their place, some have none."""
    return [
        consumer(
            draw(st.none() | st.integers(0, 400)),
            name=str(number),
            hold_until_ms=draw(st.none() | st.integers(0, 2 * MS_MAX)),
            lost=draw(st.sampled_from([False, False, False, True])),
            seen_at_ms=0,
        )
        for number in range(draw(st.integers(0, 6)))
    ]


MOMENTS = st.builds(
    Terms,
    now_ms=st.integers(0, 3 * MS_MAX),
    retention_ms=st.integers(1, MS_MAX),
    expiry_ms=st.integers(1, MS_MAX),
    bytes_max=st.integers(1, 400),
)


@ROUNDS
@given(journals(), crowds(), MOMENTS)
def test_what_a_plan_never_does(journal: list[SegmentView], crowd: list[Consumer], terms: Terms) -> None:
    plan = plan_retention(journal, crowd, terms)
    gone = [one for one in plan.fates if one.fate.goes]
    assert [one.segment for one in plan.fates] == journal
    assert gone == list(plan.fates[: len(gone)]), "oldest first, without a hole"
    assert plan.position == journal[len(gone)].first_position, "whole segments"
    assert plan.fates[-1].fate is Fate.OPEN
    assert plan.bytes_after == sizes(journal[len(gone) :]) == plan.bytes_before - sizes(journal[: len(gone)])
    holders = [one for one in crowd if one.holds(terms.now_ms)]
    for one in gone:
        held = any(who.position is not None and who.position < one.segment.end for who in holders)
        young = one.segment.newest_global_ts > from_ms(terms.now_ms - terms.retention_ms)
        if held or young:
            assert one.fate is Fate.BYTE_CAP
            assert sizes(journal[journal.index(one.segment) :]) > terms.bytes_max, (
                "only while it is over the cap"
            )
        else:
            assert one.fate is Fate.AGED


@ROUNDS
@given(journals(), crowds(), MOMENTS)
def test_what_a_plan_never_leaves_undone(
    journal: list[SegmentView], crowd: list[Consumer], terms: Terms
) -> None:
    plan = plan_retention(journal, crowd, terms)
    stays = [one for one in plan.fates if not one.fate.goes]
    assert plan.bytes_after <= terms.bytes_max or len(stays) == 1
    oldest = stays[0]
    if oldest.fate is Fate.HELD:
        assert oldest.holders
    if oldest.fate is Fate.YOUNG:
        assert oldest.old_at_ms > terms.now_ms
    losers = {
        one.name
        for one in crowd
        if not one.lost
        and one.position is not None
        and one.position < plan.position > journal[0].first_position
    }
    assert {one.consumer.name for one in plan.losing} == losers
    for one in plan.losing:
        assert one.fate is Fate.BYTE_CAP or not one.consumer.holds(terms.now_ms)


@ROUNDS
@given(journals(), crowds(), MOMENTS, st.integers(0, MS_MAX))
def test_as_time_passes_more_goes(
    journal: list[SegmentView], crowd: list[Consumer], terms: Terms, later_ms: int
) -> None:
    then = terms._replace(now_ms=terms.now_ms + later_ms)
    assert plan_retention(journal, crowd, terms).position <= plan_retention(journal, crowd, then).position


@ROUNDS
@given(journals(), crowds(), MOMENTS)
def test_one_more_consumer_never_makes_more_go(
    journal: list[SegmentView], crowd: list[Consumer], terms: Terms
) -> None:
    positions = [plan_retention(journal, crowd[:count], terms).position for count in range(len(crowd) + 1)]
    assert positions == sorted(positions, reverse=True)


@ROUNDS
@given(journals(), crowds(), MOMENTS)
def test_goes_at_is_when_it_goes(journal: list[SegmentView], crowd: list[Consumer], terms: Terms) -> None:
    """If nobody moves, each sealed segment that the cap leaves goes in the very millisecond that was named."""
    for index, one in enumerate(plan_retention(journal, crowd, terms).fates):
        if one.goes_at_ms is not None and one.fate is not Fate.BYTE_CAP:
            for late_ms, goes in ((-1, False), (0, True)):
                now_ms = max(terms.now_ms, one.goes_at_ms + late_ms)
                again = plan_retention(journal, crowd, terms._replace(now_ms=now_ms, bytes_max=1 << 40))
                assert again.fates[index].fate.goes is (goes or one.fate.goes)


@ROUNDS
@given(journals(), crowds(), MOMENTS)
def test_time_to_loss_of_who_stands_still_is_when_the_plan_takes_it(
    journal: list[SegmentView], crowd: list[Consumer], terms: Terms
) -> None:
    """Nothing is written and nobody moves or is seen: the estimate is exact. Holders are away for long."""
    for one in crowd:
        away = one._replace(seen_at_ms=terms.now_ms - ACTIVE_MS - 1)
        loss = time_to_loss(away, None, journal, Rates(), terms)
        sealed = range(journal[0].first_position, journal[-1].first_position)
        if one.lost or one.position not in sealed:
            continue
        then_ms = terms.now_ms + round(loss.seconds * 1000)
        assert plan_retention(journal, [one], terms._replace(now_ms=then_ms)).losing
        if then_ms > terms.now_ms:
            assert not plan_retention(journal, [one], terms._replace(now_ms=then_ms - 1)).losing
