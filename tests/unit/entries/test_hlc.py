"""The hybrid clock: its layout, and that a wall clock that jumps back only advances the logical part."""

from __future__ import annotations

from headrace.entries.hlc import LOGICAL_BITS, HybridClock, from_ms, to_ms

MS = 1_760_000_000_000


def test_layout_is_ms_over_18_bits() -> None:
    assert from_ms(MS) == MS << 18 == MS << LOGICAL_BITS
    assert to_ms(from_ms(MS) | (1 << 18) - 1) == MS


def test_ticks_of_one_millisecond_differ() -> None:
    clock = HybridClock()
    assert [clock.tick(MS) - from_ms(MS) for _ in range(3)] == [0, 1, 2]


def test_clock_that_jumps_back_advances_the_logical_part_only() -> None:
    clock = HybridClock()
    first = clock.tick(MS)
    assert clock.tick(MS - 3_600_000) == first + 1
    assert clock.lead_ms(MS - 3_600_000) == 3_600_000
    assert clock.tick(MS + 5) == from_ms(MS + 5)


def test_restart_goes_on_from_the_newest_stored() -> None:
    stored = from_ms(MS) + 77
    assert HybridClock(stored).tick(MS - 10) == stored + 1


def test_span_keeps_its_timestamps_to_itself() -> None:
    clock = HybridClock()
    first = clock.tick(MS, span=2)
    assert clock.tick(MS) == first + 2


def test_logical_part_may_run_over_into_the_next_millisecond() -> None:
    clock = HybridClock(from_ms(MS) + (1 << 18) - 1)
    assert clock.tick(MS) == from_ms(MS + 1)
    assert clock.lead_ms(MS) == 1
