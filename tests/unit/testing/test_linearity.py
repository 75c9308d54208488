"""The checker of histories takes what can have happened and refuses what can't, also where an outcome is unknown."""

from __future__ import annotations

import pytest

from headrace.testing.linearity import Appending, NotLinear, Reading, check


def done(values: str, first: int, began: float, ended: float, **fields: object) -> Appending:
    return Appending(tuple(values), began, ended, first=first, **fields)  # type: ignore[arg-type]  # by name


def refused(values: str, head: int, began: float, ended: float, expected: int = 1) -> Appending:
    return Appending(tuple(values), began, ended, expected=expected, head=head)


SOUND: dict[str, tuple[str, list[Appending | Reading]]] = {
    "in turn": ("abc", [done("a", 1, 0, 1), done("bc", 2, 2, 3)]),
    "overlapping, the later call first": ("ab", [done("b", 2, 0, 9), done("a", 1, 1, 8)]),
    "unknown and there": ("ab", [Appending(("a",), 0), done("b", 2, 5, 6)]),
    "unknown and there, long after": ("ba", [Appending(("a",), 0), done("b", 1, 5, 6)]),
    "unknown and not there": ("b", [Appending(("a",), 0), done("b", 1, 5, 6)]),
    "unknown, then a duplicate": ("a", [Appending(("a",), 0, 2), done("a", 1, 3, 4, duplicate=True)]),
    "retried as new": ("ba", [Appending(("a",), 0, 2), done("b", 1, 3, 4), done("a", 2, 5, 6)]),
    "read between": ("ab", [done("a", 1, 0, 1), Reading(("a",), 2, 3), done("b", 2, 4, 5)]),
    "read that overlaps": ("ab", [done("a", 1, 0, 1), Reading(("a", "b"), 2, 5), done("b", 2, 3, 9)]),
    "refused with where it is": ("ab", [done("a", 1, 0, 1), refused("x", 1, 2, 3), done("b", 2, 4, 5)]),
    "nothing at all": ("", [Reading((), 0, 1)]),
}


@pytest.mark.parametrize("name", SOUND)
def test_what_can_have_happened(name: str) -> None:
    final, operations = SOUND[name]
    check(final, operations)


WRONG: dict[str, tuple[str, list[Appending | Reading]]] = {
    "acknowledged and gone": ("b", [done("a", 1, 0, 1), done("b", 1, 2, 3)]),
    "acknowledged elsewhere": ("ba", [done("a", 1, 0, 9), done("b", 2, 0, 9)]),
    "nobody sent it": ("ax", [done("a", 1, 0, 1)]),
    "torn": ("ab", [done("a", 1, 0, 1), Appending(("b", "c"), 0)]),
    "twice": ("aa", [done("a", 1, 0, 1), Appending(("a",), 2)]),
    "both tries as new": ("a", [done("a", 1, 0, 1), done("a", 1, 2, 3)]),
    "out of order in time": ("ba", [done("a", 2, 0, 1), done("b", 1, 2, 3)]),
    "unknown, but before its call": ("ab", [Appending(("a",), 5), done("b", 2, 0, 1)]),
    "duplicate of what came only later": ("ba", [done("b", 1, 5, 6), Appending(("a",), 0, 1),
                                                 done("a", 2, 2, 3, duplicate=True)]),
    "stale read": ("ab", [done("a", 1, 0, 1), done("b", 2, 2, 3), Reading(("a",), 4, 5)]),
    "read of the future": ("ab", [done("a", 1, 0, 1), Reading(("a", "b"), 2, 3), done("b", 2, 4, 5)]),
    "read that goes back": ("ab", [done("a", 1, 0, 1), Appending(("b",), 2), Reading(("a", "b"), 3, 4),
                                   Reading(("a",), 5, 6)]),
    "read of something else": ("ab", [done("ab", 1, 0, 1), Reading(("a", "c"), 2, 3)]),
    "read inside an append": ("ab", [done("ab", 1, 0, 9), Reading(("a",), 2, 3)]),
    "refused at its own place": ("a", [done("a", 1, 0, 1), refused("x", 1, 2, 3, expected=2)]),
    "refused by what came later": ("ab", [done("a", 1, 0, 1), refused("x", 2, 2, 3), done("b", 2, 4, 5)]),
    "not where it asked": ("ab", [done("a", 1, 0, 1), done("b", 2, 2, 3, expected=3)]),
    "lost behind the end": ("a", [done("a", 1, 0, 1), Reading(("a",), 2, 3), refused("x", 7, 4, 5)]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_can_not_have_happened(name: str) -> None:
    final, operations = WRONG[name]
    with pytest.raises(NotLinear):
        check(final, operations)
