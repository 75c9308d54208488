"""Did one feed behave as if its appends and reads had happened one at a time, each between its call and its answer?

For a log the order is known at the end: it is the order of its entries. So nothing has to be searched. Each append that
took effect has its place in that order, each read or refusal the gap in which it must have looked, and :func:`check` lays
them out in time as early as it can; where that comes after an answer there is no such order.

An append without an answer (a time-out, a cut connection) may have taken effect or not; if it did, at any time after its
call, even after its client gave it up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

NEVER: Final = float("inf")
"""When an operation ended that nobody saw end."""


class NotLinear(AssertionError):
    """The history has no order that explains it."""


@dataclass(frozen=True, slots=True)
class Appending:
    """One attempt to append ``values`` (each unique in the whole history), called at ``began``.

    ``first``: where it was answered that they stand; None if refused or never answered. ``head``: the feed's newest sequence
    id that a refusal told. Both None: the outcome is unknown. ``expected``: the place that was asked for, None for "next".
    ``duplicate``: the answer said that an earlier attempt had stored them.
    """

    values: tuple[str, ...]
    began: float
    ended: float = NEVER
    expected: int | None = None
    first: int | None = None
    head: int | None = None
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """A read of the whole feed: the values that it found, in order."""

    values: tuple[str, ...]
    began: float
    ended: float


def check(final: Sequence[str], operations: Sequence[Appending | Reading]) -> None:
    """Raise NotLinear unless ``operations`` can have led to the feed ``final`` (its values from sequence id 1 on).

    Attempts with the same values are tries of one append: it takes effect once, in one of them.
    """
    tries: dict[tuple[str, ...], list[Appending]] = {}
    for operation in operations:
        if isinstance(operation, Appending):
            tries.setdefault(operation.values, []).append(operation)
    placed = _placed(final, tries)
    for values, attempts in tries.items():
        _check_answers(placed.get(values), attempts)
    looks = _looks(final, operations)
    now = float("-inf")
    for look in sorted(looks.pop(0, []), key=lambda look: look.began):
        now = _happen(now, look.began, look.ended, f"a look at the empty feed: {look}")
    for values, first in sorted(placed.items(), key=lambda item: item[1]):
        began, ended = _window(tries[values])
        now = _happen(now, began, ended, f"the append of {values} at {first}")
        for look in sorted(looks.pop(first + len(values) - 1, []), key=lambda look: look.began):
            now = _happen(
                now, look.began, look.ended, f"a look after {first + len(values) - 1} entries: {look}"
            )
    if looks:
        raise NotLinear(f"somebody saw the feed end inside an append, or beyond its end: {looks}")


def _placed(
    final: Sequence[str], tries: dict[tuple[str, ...], list[Appending]]
) -> dict[tuple[str, ...], int]:
    """Cut the feed into whole appends: values -> first sequence id."""
    begins = {values[0]: values for values in tries}
    placed: dict[tuple[str, ...], int] = {}
    at = 0
    while at < len(final):
        values = begins.get(final[at])
        if values is None or tuple(final[at : at + len(values)]) != values:
            raise NotLinear(
                f"sequence id {at + 1} holds {final[at]!r}: nobody sent that, or it is part of a torn append"
            )
        if values in placed:
            raise NotLinear(f"{values} stands there twice, at {placed[values]} and at {at + 1}")
        placed[values] = at + 1
        at += len(values)
    return placed


def _check_answers(first: int | None, attempts: Sequence[Appending]) -> None:
    for attempt in attempts:
        if attempt.first is not None and attempt.first != first:
            raise NotLinear(f"{attempt} was acknowledged, but stands at {first}")
        if attempt.first is not None and attempt.expected not in (None, attempt.first):
            raise NotLinear(f"{attempt} was put at another place than it asked for")
    fresh = [attempt for attempt in attempts if attempt.first is not None and not attempt.duplicate]
    if len(fresh) > 1:
        raise NotLinear(f"{fresh} were each answered as new")


def _window(attempts: Sequence[Appending]) -> tuple[float, float]:
    """When an append that is there can have happened: in one of its tries that was not refused.

    An answer bounds it: a fresh one by its own call and end, a duplicate by its end (an earlier try did it).
    """
    possible = [attempt for attempt in attempts if attempt.head is None]
    fresh = next(
        (attempt for attempt in possible if attempt.first is not None and not attempt.duplicate), None
    )
    if fresh is not None:
        return fresh.began, fresh.ended
    ended = min((attempt.ended for attempt in possible if attempt.first is not None), default=NEVER)
    began = min((attempt.began for attempt in possible if not attempt.duplicate), default=NEVER)
    return began, ended


def _looks(
    final: Sequence[str], operations: Sequence[Appending | Reading]
) -> dict[int, list[Appending | Reading]]:
    """Who saw the feed with how many entries in it: reads, and refusals that told where it was."""
    looks: dict[int, list[Appending | Reading]] = {}
    for operation in operations:
        if isinstance(operation, Reading):
            if list(operation.values) != list(final[: len(operation.values)]):
                raise NotLinear(f"{operation} is not what the feed began with")
            looks.setdefault(len(operation.values), []).append(operation)
        elif operation.head is not None:
            if operation.expected == operation.head + 1:
                raise NotLinear(f"{operation} was refused at the very place it asked for")
            looks.setdefault(operation.head, []).append(operation)
    return looks


def _happen(now: float, began: float, ended: float, what: str) -> float:
    moment = max(now, began)
    if moment > ended:
        raise NotLinear(f"{what} ended at {ended}, before what must have come first ({moment})")
    return moment
