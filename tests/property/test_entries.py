"""Properties of the values: LSN text order is LSN order, round trips, and a clock that only grows."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.entries.hlc import HybridClock, to_ms
from headrace.entries.lsn import Lsn, lsn_of

U32, U64 = st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)
LSNS = st.builds(Lsn, U64, U32, U32)
WALL_MS = st.integers(0, 1 << 43)


@given(LSNS, LSNS)
def test_text_order_and_integer_order_are_lsn_order(one: Lsn, other: Lsn) -> None:
    assert (str(one) < str(other)) == (one < other) == (int(one) < int(other))


@given(LSNS)
def test_text_and_integer_round_trip(lsn: Lsn) -> None:
    assert Lsn.parse(str(lsn)) == lsn
    assert Lsn.parse(f"{lsn.global_ts:x}.{lsn.region_id}.{lsn.raft_index}") == lsn
    assert Lsn.parse(f"{lsn.global_ts:X}.{lsn.region_id:05d}.{lsn.raft_index}") == lsn
    assert Lsn.from_int(int(lsn)) == lsn


@given(st.lists(st.tuples(WALL_MS, st.integers(1, 3)), max_size=60), U64)
def test_clock_strictly_grows_whatever_the_wall_clock_does(walls: list[tuple[int, int]], start: int) -> None:
    clock = HybridClock(start)
    given_out = [start]
    for wall_ms, span in walls:
        first = clock.tick(wall_ms, span)
        given_out += range(first, first + span)
        assert to_ms(first) >= wall_ms or first > given_out[0]
    assert all(earlier < later for earlier, later in pairwise(given_out))
    assert clock.last == given_out[-1]


@given(st.integers(1, 1 << 40), st.lists(st.integers(1, 5), min_size=1, max_size=12), U32, WALL_MS)
def test_lsns_of_a_feed_strictly_grow_across_wraps(
    wraps_before: int, counts: list[int], region_id: int, wall_ms: int
) -> None:
    """The feed is just below a wrap of ``raft_index``; an append ticks once more for the wrap inside it."""
    clock, at = HybridClock(), (wraps_before << 32) - 4
    lsns: list[Lsn] = []
    for count in counts:
        ts = clock.tick(wall_ms, 1 + (((at & 0xFFFFFFFF) + count - 1) >> 32))
        lsns += [lsn_of(ts, region_id, at, index) for index in range(count)]
        at += count
    assert all(earlier < later for earlier, later in pairwise(lsns))
    assert [lsn.raft_index for lsn in lsns] == [(at - len(lsns) + n) & 0xFFFFFFFF for n in range(len(lsns))]
