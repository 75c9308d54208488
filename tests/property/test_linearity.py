"""The checker of histories can fail: what a right log can show passes, and each way of being wrong is refused.

A history is drawn as a right log makes it: each operation takes effect at one moment inside its window, some answers get
lost, some appends are tried again. Then one thing in it is made wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headrace.testing.linearity import Appending, NotLinear, Reading, check
from tests.scale import scaled, sized

History = tuple[list[str], list[Appending | Reading]]
"""What the feed holds in the end, and what its clients saw."""
RANDOM = st.randoms(use_true_random=True)


def right(rng: Random) -> History:
    """A history of a right log with racing producers: appends, retries, refusals, reads, lost answers."""
    final: list[str] = []
    operations: list[Appending | Reading] = []
    moments = sorted(rng.uniform(0, 100) for _ in range(rng.randint(5, 40)))
    for number, moment in enumerate(moments):
        began, ended = moment - rng.uniform(0.1, 20), moment + rng.uniform(0.1, 20)
        kind = rng.random()
        values = tuple(f"{number}.{at}" for at in range(rng.randint(1, 3)))
        end = len(final)
        if kind < 0.2:
            operations.append(Reading(tuple(final), began, ended))
        elif kind < 0.3:  # refused: another was there first, or it is too far ahead
            expected = rng.choice([end + 2, *range(1, end + 1)])
            operations.append(Appending(values, began, ended, expected=expected, head=end))
        elif kind < 0.4:  # never arrived
            operations.append(Appending(values, began, expected=end + 1))
        else:
            final += values
            expected = rng.choice((None, end + 1))
            if rng.random() < 0.75:
                operations.append(Appending(values, began, ended, expected, end + 1))
                continue
            operations.append(Appending(values, began, expected=end + 1))
            if rng.random() < 0.6:  # it was stored, and its retry hears so
                again = moment + rng.uniform(0.1, 30)
                told = Appending(values, again, again + rng.uniform(0.1, 5), end + 1, end + 1, duplicate=True)
                operations.append(told)
    rng.shuffle(operations)
    return final, operations


def answered(operations: list[Appending | Reading]) -> list[Appending]:
    """The appends whose place was told."""
    found = [one for one in operations if isinstance(one, Appending) and one.first is not None]
    assume(found)
    return found


def lost_acknowledgement(rng: Random, final: list[str], operations: list[Appending | Reading]) -> History:
    """What was acknowledged is not there."""
    gone = rng.choice(answered(operations))
    return [value for value in final if value not in gone.values], operations


def lost_end(rng: Random, final: list[str], operations: list[Appending | Reading]) -> History:
    """The feed ends before something that was acknowledged."""
    gone = rng.choice(answered(operations))
    assert gone.first is not None
    return final[: gone.first - 1], operations


def duplicated_entry(rng: Random, final: list[str], operations: list[Appending | Reading]) -> History:
    """An append stands there a second time, at the end or where another append begins."""
    twice = rng.choice(answered(operations))
    begins = [one.first - 1 for one in answered(operations) if one.first is not None]
    at = rng.choice([*begins, len(final)])
    return [*final[:at], *twice.values, *final[at:]], operations


def duplicated_unknown(rng: Random, final: list[str], operations: list[Appending | Reading]) -> History:
    """An append that nobody heard of again stands there twice: each of its tries was stored."""
    once = Appending(("unknown.0", "unknown.1"), rng.uniform(0, 100))
    return [*final, *once.values, *once.values], [*operations, once, replace(once, began=once.began + 1)]


def read_inside_an_append(rng: Random, final: list[str], operations: list[Appending | Reading]) -> History:
    """A read saw a part of what is atomic."""
    whole = Appending(("whole.0", "whole.1"), 200, 201, first=len(final) + 1)
    seen = Reading((*final, "whole.0"), 150, 300)
    return [*final, *whole.values], [*operations, whole, seen]


def two_winners(rng: Random, final: list[str], operations: list[Appending | Reading]) -> History:
    """Another producer was told that the same place is its own."""
    winner = rng.choice(answered(operations))
    other = replace(winner, values=tuple(f"other {value}" for value in winner.values), duplicate=False)
    return final, [*operations, other]


def swapped_places(rng: Random, final: list[str], operations: list[Appending | Reading]) -> History:
    """An answer names the place of another append."""
    firsts = sorted({one.first for one in answered(operations) if one.first is not None})
    assume(len(firsts) > 1)
    wrong = rng.choice(answered(operations))
    place = rng.choice([first for first in firsts if first != wrong.first])
    return final, [replace(one, first=place, expected=None) if one is wrong else one for one in operations]


def stale_read(rng: Random, final: list[str], operations: list[Appending | Reading]) -> History:
    """A read that began after an acknowledgement does not see what was acknowledged."""
    seen = rng.choice(answered(operations))
    begins = [one.first - 1 for one in answered(operations) if one.first is not None and seen.first is not None
              and one.first <= seen.first]  # fmt: skip
    stale = Reading(tuple(final[: rng.choice(begins)]), seen.ended + 0.1, seen.ended + 50)
    return final, [*operations, stale]


def stale_refusal(rng: Random, final: list[str], operations: list[Appending | Reading]) -> History:
    """A refusal that came after an acknowledgement tells an end before it."""
    seen = rng.choice(answered(operations))
    assert seen.first is not None
    stale = Appending(("stale",), seen.ended + 0.1, seen.ended + 50, seen.first + 5, head=seen.first - 1)
    return final, [*operations, stale]


def torn_append(rng: Random, final: list[str], operations: list[Appending | Reading]) -> History:
    """Only a part of an unanswered append is there."""
    return [*final, "torn.0"], [*operations, Appending(("torn.0", "torn.1"), rng.uniform(0, 100))]


Wrong = Callable[[Random, list[str], list[Appending | Reading]], History]
WRONGS: list[Wrong] = [
    lost_acknowledgement, lost_end, duplicated_entry, duplicated_unknown, read_inside_an_append, two_winners, swapped_places,
    stale_read, stale_refusal, torn_append,
]  # fmt: skip


@settings(max_examples=sized(scaled(90), soak=scaled(300)), deadline=None)
@given(rng=RANDOM)
def test_what_a_right_log_shows_passes(rng: Random) -> None:
    check(*right(rng))


@pytest.mark.parametrize("wrong", WRONGS, ids=lambda wrong: wrong.__name__)
@settings(max_examples=sized(scaled(30), soak=scaled(100)), deadline=None)
@given(rng=RANDOM)
def test_each_way_of_being_wrong_is_refused(wrong: Wrong, rng: Random) -> None:
    final, operations = wrong(rng, *right(rng))
    with pytest.raises(NotLinear):
        check(final, operations)
