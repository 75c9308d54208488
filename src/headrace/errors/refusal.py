"""A refused append in one shape, whichever error it was: what HTTP's problem document and gRPC's refusal both say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.errors.root import HeadraceError, SideEffects


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an append was not taken, and what may be thought of it (KAFKA-2260, design rule 3).

    ``index``: the first entry at fault, from 0; None where no entry is (a fenced producer, a store that is away).
    ``expected``: the place that this entry named, ``actual_next``: the feed's next one when it was judged; None where they
    play no part or are not known. ``retryable``: the same append can succeed later without a change.
    ``side_effects``: ``none`` means that, when it was judged, no entry of this append stood in the feed at the place that it
    names, neither by this try nor by an earlier one, and that this try will leave none; it is said only where that is
    certain. ``possible`` means that some or all of them may stand there, or may still appear.
    """

    code: str
    index: int | None
    expected: int | None
    actual_next: int | None
    retryable: bool
    side_effects: SideEffects


def refusal_of(error: HeadraceError) -> Refusal:
    """Return what ``error`` says of the append that it refused. Where nothing is known, side effects are ``possible``."""
    members = error.members
    return Refusal(
        code=error.code,
        index=_number(members.get("index")),
        # Where ``sequence-id`` named the place, ``expected`` is the feed's and ``received`` the entry's (RFD 5's names).
        expected=_number(members.get("received", members.get("expected"))),
        actual_next=_number(members.get("actual-next")),
        retryable=bool(members.get("retryable", error.retryable)),
        side_effects="none" if members.get("side-effects", error.side_effects) == "none" else "possible",
    )


def refused_with(error: HeadraceError, side_effects: SideEffects) -> HeadraceError:
    """Return ``error``, which refused several appends, as the refusal of one of them: what may be thought of that one."""
    own = type(error)(error.detail, hint=error.advice)
    own.members = {**error.members, "side-effects": side_effects}
    return complete_refusal(own)


def complete_refusal(error: HeadraceError) -> HeadraceError:
    """Give ``error`` the members ``retryable`` and ``side-effects`` if it has none yet, and return it."""
    known = refusal_of(error)
    error.members = {"retryable": known.retryable, "side-effects": known.side_effects, **error.members}
    return error


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
