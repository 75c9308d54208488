"""Who may do what with a feed: registrations, takeovers, settings, releases; and whether an append is let in at all.

Each change is a control frame: the functions here return what it says (its kind and the whole tail afterwards), or None
where nothing changes and so nothing is written.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from headrace.errors import (
    FeedOwned,
    FeedRecreated,
    Fenced,
    InvalidRequest,
    NotRegistered,
    Quarantined,
    TooLarge,
)
from headrace.log.control import ControlKind
from headrace.log.requests import Append, Configure, Register, Release
from headrace.log.tail import FeedTail, Quarantine

AGENTS_MAX: Final = 10_000
"""Agents that may ever register with one feed: all of them stand in each control frame and each segment's start."""


class Change(NamedTuple):
    """What a control frame will say: what happened, and the feed's tail afterwards."""

    kind: ControlKind
    tail: FeedTail


def make_feed(ask: Register, region_id: int) -> Change:
    """Return the feed that the first registration makes: owned by its agent, or shared for life."""
    tail = FeedTail(
        name=ask.feed,
        region_id=region_id,
        tenant=ask.tenant or "default",
        incarnation=ask.new_incarnation,
        owner="" if ask.shared else ask.agent_id,
        instance="" if ask.shared else ask.instance,
        epoch=0 if ask.shared else 1,
        agents={ask.agent_id: 1},
        shared=ask.shared,
        instances={ask.agent_id: ask.instance} if ask.shared else {},
    )
    return Change(ControlKind.FEED_MADE, tail)


def check_terms(ask: Register) -> None:
    """Raise InvalidRequest if what the registration asks for can be said of no feed."""
    if ask.shared and ask.takeover:
        raise InvalidRequest(
            "takeover: a shared feed has no owner to take it from",
            hint="Leave takeover out: each producer of a shared feed registers beside the others.",
            member="takeover",
        )


def register(ask: Register, tail: FeedTail) -> Change | None:
    """Return what the registration changes of a feed that exists; None: the same instance came again."""
    if ask.tenant and ask.tenant != tail.tenant:
        raise InvalidRequest(
            f"tenant-id: the feed {ask.feed} belongs to the tenant {tail.tenant!r}, not to {ask.tenant!r}",
            hint="Leave tenant-id out, or use another feed.",
            member="tenant-id",
        )
    if ask.shared != tail.shared:
        was, asked = ("shared", "false") if tail.shared else ("owned", "true")
        raise InvalidRequest(
            f"shared: the feed {ask.feed} was made as {was} and stays so for life; this registration says {asked}",
            hint="Register with shared: true." if tail.shared else "Leave shared out, or use another feed.",
            member="shared",
        )
    if len(tail.agents) >= AGENTS_MAX and ask.agent_id not in tail.agents:
        raise TooLarge(
            f"{len(tail.agents)} agents have registered with the feed {ask.feed}; the most is {AGENTS_MAX}",
            hint="Let a producer keep its agent-id and give each of its processes an instance of its own.",
            agents_max=AGENTS_MAX,
        )
    return _join(ask, tail) if tail.shared else _claim(ask, tail)


def _join(ask: Register, tail: FeedTail) -> Change | None:
    """A producer of a shared feed: beside the others, fencing only an older instance of itself."""
    if tail.instances.get(ask.agent_id) == ask.instance:
        return None
    joined = msgspec.structs.replace(
        tail,
        agents=tail.agents | {ask.agent_id: tail.agents.get(ask.agent_id, tail.epoch) + 1},
        instances=tail.instances | {ask.agent_id: ask.instance},
    )
    return Change(ControlKind.REGISTERED, joined)


def _claim(ask: Register, tail: FeedTail) -> Change | None:
    """The one publisher of an owned feed: the owner's new instance, or another agent that takes over."""
    if tail.owner != ask.agent_id and not ask.takeover:
        raise FeedOwned(f"the feed {ask.feed} is owned by the agent {tail.owner}", owner=tail.owner)
    if tail.owner == ask.agent_id and tail.instance == ask.instance:
        return None
    kind = ControlKind.REGISTERED if tail.owner == ask.agent_id else ControlKind.TAKEN_OVER
    claimed = msgspec.structs.replace(
        tail,
        owner=ask.agent_id,
        instance=ask.instance,
        epoch=tail.epoch + 1,
        agents=tail.agents | {ask.agent_id: tail.epoch + 1},
    )
    return Change(kind, claimed)


def configure(ask: Configure, tail: FeedTail) -> Change | None:
    """Return what a change of settings makes of the feed; it holds for every append that is judged after it."""
    given = {"key_field": ask.key_field, "changes": ask.changes, "expected_offset": ask.expected_offset}
    changed = msgspec.structs.replace(
        tail.settings, **{name: value for name, value in given.items() if value is not None}
    )
    if changed == tail.settings:
        return None
    return Change(ControlKind.CONFIGURED, msgspec.structs.replace(tail, settings=changed))


def release(ask: Release, tail: FeedTail) -> Change | None:
    """Return the feed without the agent's quarantine; None if there is none."""
    if ask.agent_id not in tail.quarantines:
        return None
    left = {name: mark for name, mark in tail.quarantines.items() if name != ask.agent_id}
    return Change(ControlKind.RELEASED, msgspec.structs.replace(tail, quarantines=left))


def quarantine(ask: Append, tail: FeedTail, sequence_id: int, at_ms: int) -> Change:
    """Return the feed with the append's producer quarantined: it sent ``sequence_id`` a second time (RFD 5)."""
    mark = Quarantine(agent_id=ask.producer, sequence_id=sequence_id, at_ms=at_ms)
    quarantines = tail.quarantines | {ask.producer: mark}
    return Change(ControlKind.QUARANTINED, msgspec.structs.replace(tail, quarantines=quarantines))


def admit(ask: Append, tail: FeedTail) -> int:
    """Check incarnation, then fenced?, then quarantined?; returns the epoch that the append is judged under.

    Raises FeedRecreated, NotRegistered, Fenced, Quarantined.
    """
    if ask.incarnation is not None and ask.incarnation != tail.incarnation:
        raise FeedRecreated(
            f"the feed {tail.name} has the incarnation {tail.incarnation}, not {ask.incarnation}",
            incarnation=tail.incarnation,
        )
    if ask.producer not in tail.agents:
        raise NotRegistered(f"the publisher {ask.producer} has not registered with the feed {tail.name}")
    epoch = tail.agents[ask.producer] if ask.epoch is None else ask.epoch
    newest = tail.agents[ask.producer] if tail.shared else tail.epoch
    if epoch > newest:
        raise NotRegistered(
            f"the feed {tail.name} is at epoch {newest}{_own(tail)}; it never gave the epoch {epoch}",
            epoch=newest,
        )
    if epoch < newest or (not tail.shared and ask.producer != tail.owner):
        raise _fenced(ask, tail, epoch, newest)
    mark = tail.quarantines.get(ask.producer)
    if mark is not None:
        raise Quarantined(
            f"the publisher {ask.producer} is quarantined since it posted sequence id {mark.sequence_id} of "
            f"{tail.name} a second time",
            sequence_id=mark.sequence_id,
        )
    return epoch


def _fenced(ask: Append, tail: FeedTail, epoch: int, newest: int) -> Fenced:
    if tail.shared:
        return Fenced(
            f"a newer process of {ask.producer} writes to {tail.name} at epoch {newest}; this append is of epoch {epoch}",
            epoch=newest,
        )
    return Fenced(
        f"the feed {tail.name} is owned by {tail.owner} at epoch {tail.epoch}; "
        f"this append is of {ask.producer} at epoch {epoch}",
        owner=tail.owner,
        epoch=tail.epoch,
    )


def _own(tail: FeedTail) -> str:
    return " for this publisher" if tail.shared else ""
