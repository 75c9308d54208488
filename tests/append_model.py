"""What must come of registrations and appends, said by plain lists: the reference that the rules are compared with.

It knows nothing of frames, groups or digests. Used by the generated tests on every store and by the crash simulator.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from headrace.errors import HeadraceError
from headrace.log.requests import NEXT, Append, Appended, Outcome
from tests.bench import INCARNATION

Said = dict[str, Any]
"""What the model says of a request: ``code`` and members of a refusal, or the places of an append; empty: no refusal."""


@dataclass
class Feed:
    """What a feed should hold: ``entries`` are (producer, value) from ``begin`` on, those that are gone as well.

    ``dropped``: the newest place that retention took away. ``lost``: places that a repair skipped. ``last``: what each
    producer appended last, and where. ``incarnation``: what an append may name.
    """

    shared: bool
    owner: str = ""
    epoch: int = 0
    terms: str = "optional"
    begin: int = 1
    dropped: int = 0
    incarnation: str = INCARNATION
    entries: list[tuple[str, Any]] = field(default_factory=list)
    instances: dict[str, str] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    quarantined: set[str] = field(default_factory=set)
    last: dict[str, tuple[int, list[Any]]] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)

    def clone(self) -> Self:
        """Return a copy that can go another way."""
        twin = copy.copy(self)
        twin.entries, twin.last, twin.lost = list(self.entries), dict(self.last), self.lost
        twin.instances, twin.epochs = dict(self.instances), dict(self.epochs)
        twin.quarantined = set(self.quarantined)
        return twin

    @property
    def next(self) -> int:
        return self.begin + len(self.entries)

    def newest_epoch(self, agent: str) -> int:
        return self.epochs.get(agent, 0) if self.shared else self.epoch

    def register(self, agent: str, instance: str, *, takeover: bool) -> Said:
        if self.shared and takeover:
            return {"code": "invalid-request"}
        if not self.shared and self.owner not in ("", agent) and not takeover:
            return {"code": "feed-owned"}
        here = self.instances.get(agent) == instance and (self.shared or self.owner == agent)
        if not here:
            self.epoch += not self.shared
            self.epochs[agent] = self.epochs.get(agent, 0) + 1 if self.shared else self.epoch
            if not self.shared:
                self.owner, self.instances = agent, {}
            self.instances[agent] = instance
        return {}

    def append(self, ask: Append, values: Sequence[Any], *, chain_failed: bool = False) -> Said:
        """What becomes of an append of ``values``; ``chain_failed``: one before it on its stream was refused."""
        if chain_failed:
            return self._stopped(ask, "stream-failed")
        return self._not_let_in(ask) or self._by_sequence_id(ask) or self._by_offset(ask, values)

    def _not_let_in(self, ask: Append) -> Said:
        code, agent = "", ask.producer
        epoch = self.epochs.get(agent, 0) if ask.epoch is None else ask.epoch
        if ask.incarnation not in (None, self.incarnation):
            code = "feed-recreated"
        elif agent not in self.epochs or epoch > self.newest_epoch(agent):
            code = "not-registered"
        elif epoch < self.newest_epoch(agent) or (not self.shared and agent != self.owner):
            code = "fenced"
        elif agent in self.quarantined:
            code = "quarantined"
        return self._stopped(ask, code) if code else {}

    def _stopped(self, ask: Append, code: str) -> Said:
        """Refused before its entries were compared: an earlier try of it may stand there."""
        named = [
            place - at for places in (ask.expected_offsets, ask.sequence_ids) for at, place in _given(places)
        ]
        beyond = named and min(named) >= self.next and self.terms != "ignored"
        return self._refusal(code, side_effects="none" if beyond else "possible")

    def _by_sequence_id(self, ask: Append) -> Said:
        base = self._base(ask)
        for at, number in _given(ask.sequence_ids):
            if self.shared:
                return {"code": "invalid-request"}
            if number == base + at:
                continue
            if self.entries and number < self.next:
                self.quarantined.add(ask.producer)
                return self._refusal("duplicate-entry", index=at, side_effects="possible")
            return self._stopped(ask, "sequence-gap") | {"index": at}
        return {}

    def _by_offset(self, ask: Append, values: Sequence[Any]) -> Said:
        base, offsets = self._base(ask), dict(_given(ask.expected_offsets))
        unnamed = [
            at for at in range(len(values)) if at not in offsets and at not in dict(_given(ask.sequence_ids))
        ]
        if self.terms == "required" and unnamed:
            return self._stopped(ask, "expected-offset-required") | {"index": unnamed[0]}
        wrong = [at for at, offset in offsets.items() if offset != base + at]
        if not wrong or self.terms == "ignored":
            self.begin = base if not self.entries else self.begin
            first = self.next
            self.entries += [(ask.producer, value) for value in values]
            self.last[ask.producer] = (first, list(values))
            return {"first": first, "last": self.next - 1, "duplicate": False}
        starts = {offset - at for at, offset in offsets.items()}
        start = min(starts)
        if len(starts) == 1 and self._holds(ask.producer, start, values):
            return {"first": start, "last": start + len(values) - 1, "duplicate": True}
        if len(starts) == 1:
            stands = any(self._may_hold(ask.producer, at, value) for at, value in enumerate(values, start))
        else:
            stands = min(offsets.values()) < base
        return self._refusal(
            "offset-mismatch",
            index=wrong[0],
            expected=offsets[wrong[0]],
            retryable=len(starts) == 1 and start > self.next,
            side_effects="possible" if stands else "none",
        )

    def _base(self, ask: Append) -> int:
        """Where this append would stand: a feed begins where its first entry says."""
        says = not self.entries and not self.shared and ask.sequence_ids and ask.sequence_ids[0] != NEXT
        return ask.sequence_ids[0] if says else self.next

    def _holds(self, producer: str, first: int, values: Sequence[Any]) -> bool:
        if not self.lost.isdisjoint(range(first, first + len(values))):
            return False
        at = first - self.begin
        kept = first > self.dropped and at >= 0
        stored = kept and self.entries[at : at + len(values)] == [(producer, value) for value in values]
        return stored or self.last.get(producer) == (first, list(values))

    def _may_hold(self, producer: str, place: int, value: Any) -> bool:
        """Can anybody say that this entry does not stand there? Not where it can't be read any more."""
        at = place - self.begin
        if not 0 <= at < len(self.entries):
            return False
        return place <= self.dropped or place in self.lost or self.entries[at] == (producer, value)

    def _refusal(self, code: str, *, side_effects: str = "none", **members: Any) -> Said:
        return {"code": code, "actual-next": self.next, "side-effects": side_effects, **members}


def _given(places: Any) -> list[tuple[int, int]]:
    return [(at, place) for at, place in enumerate(places) if place != NEXT]


def told(outcome: Outcome | HeadraceError, said: Said) -> Said:
    """The outcome in the model's words: of a refusal's members those that the model speaks of."""
    if isinstance(outcome, HeadraceError):
        return {"code": outcome.code} | {name: outcome.members.get(name) for name in said if name != "code"}
    if isinstance(outcome, Appended):
        return {
            "first": outcome.first_sequence_id,
            "last": outcome.last_sequence_id,
            "duplicate": outcome.duplicate,
        }
    return {}
