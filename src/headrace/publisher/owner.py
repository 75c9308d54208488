"""Who may mark rows of a feed, how far they are, and what a look at the feed means for them. Pure."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import msgspec

from headrace.errors import (
    AgentFenced,
    FeedBehindOutbox,
    FeedRecreated,
    OutboxBehindFeed,
    Refused,
    SourceUnavailable,
    Stopped,
    Usage,
)
from headrace.runtime.typed_json import decode_json


class FeedPlace(NamedTuple):
    """Where the feed is, as a registration answered: its history, its next sequence id, and our epoch there."""

    incarnation: str
    next_sequence_id: int
    epoch: int


class RefusedRow(msgspec.Struct, frozen=True, rename="kebab"):
    """An outbox row that the server refused for good: its id and its place, and what it is about."""

    id: int
    sequence_id: int
    op: str
    key: str | None = None
    table: tuple[str, ...] = ()
    control: str | None = None


class Alarm(msgspec.Struct, frozen=True, rename="kebab"):
    """What a person must know of a feed.

    ``incarnation`` and ``next_sequence_id``: where the feed was seen, if the alarm is about that. ``reason``: why an
    operator accepted it. ``row``: the row that the server refused, if that is what it is about.
    """

    code: str
    detail: str
    hint: str
    raised_at_ms: int
    incarnation: str = ""
    next_sequence_id: int = 0
    reason: str = ""
    row: RefusedRow | None = None


class Owner(msgspec.Struct, frozen=True):
    """How far a feed is, as the outbox database says. Each database's own row adds what it needs beside.

    Sequence ids: the next to give, the first unprocessed, the least that is still kept.
    """

    feed: str
    agent_id: str
    epoch: int
    incarnation: str | None
    next_sequence_id: int
    processed_next: int
    kept_from: int
    alarm: Alarm | None
    accepted: Alarm | None

    @property
    def progress(self) -> tuple[str | int | None, ...]:
        """What only the owning agent moves. A sweep, a detach, an alarm, an acceptance leave it as it is."""
        return self.agent_id, self.epoch, self.incarnation, self.next_sequence_id, self.processed_next


class Resume(NamedTuple):
    """What to do before going on.

    ``first_time``: nothing was ever handed over, begin at the feed's next place. ``adopt``: an operator accepted the feed as
    it is, so begin anew there. ``confirm_below``: marked rows below it are in the feed. ``repost_from``: rows from there on
    are in the feed no more, and are still kept.
    """

    first_time: bool = False
    adopt: bool = False
    confirm_below: int | None = None
    repost_from: int | None = None


GO_ON = "headrace publisher accept DSN --feed {feed} --reason WHY"
"""The command that goes on after one of the three stops."""


def compare(owner: Owner, place: FeedPlace) -> Resume:
    """Return how the agent goes on from where ``owner`` says the outbox is, and ``place`` says the feed is.

    Raises FeedRecreated, OutboxBehindFeed, FeedBehindOutbox unless an operator accepted just that, and AgentFenced if a
    newer agent has marked rows.
    """
    try:
        return _compare(owner, place)
    except (FeedRecreated, OutboxBehindFeed, FeedBehindOutbox) as stop:
        if _is_accepted(owner, place, stop.code):
            return Resume(adopt=True)
        raise


def check_kept(owner: Owner, place: FeedPlace, resume: Resume, first: int, count: int) -> Resume:
    """Return ``resume`` if the outbox has all rows from the place ``first`` on that it gave out; ``count``: how many it has.

    Raises FeedBehindOutbox unless an operator accepted just that: somebody emptied the outbox before its rows were posted.
    """
    given = owner.next_sequence_id - first
    if count >= given:
        return resume
    if _is_accepted(owner, place, FeedBehindOutbox.code):
        return Resume(adopt=True)
    raise _stop(
        FeedBehindOutbox,
        owner.feed,
        f"the outbox gave out the places {first} to {owner.next_sequence_id - 1} of {owner.feed}, but {given - count} of "
        "those rows are gone: somebody deleted them, or emptied the table, before they were in the feed",
    )


def _compare(owner: Owner, place: FeedPlace) -> Resume:
    feed, found = owner.feed, place.next_sequence_id
    if owner.incarnation is None:
        if found == 1:
            return Resume(first_time=True)
        raise _stop(
            OutboxBehindFeed,
            feed,
            f"the feed {feed} already holds entries (its next is {found}), and this outbox has never handed over one",
        )
    if owner.incarnation != place.incarnation:
        raise _stop(
            FeedRecreated,
            feed,
            f"the feed {feed} has the incarnation {place.incarnation}; this outbox was handed over to {owner.incarnation}"
            + _lost(owner, found),
        )
    if owner.epoch > place.epoch:
        raise AgentFenced(
            f"rows of {feed} were marked at epoch {owner.epoch}; this agent has epoch {place.epoch}"
        )
    if found > owner.next_sequence_id:
        raise _stop(
            OutboxBehindFeed,
            feed,
            f"the feed {feed} is at {found}, but this outbox has only given out places below {owner.next_sequence_id}: "
            "the source was restored from an older state",
        )
    if found >= owner.processed_next:
        return Resume(confirm_below=found)
    if found < owner.kept_from:
        raise _stop(
            FeedBehindOutbox,
            feed,
            f"the feed {feed} is at {found} and has lost entries; the outbox keeps only those from {owner.kept_from} on",
        )
    return Resume(repost_from=found)


def _lost(owner: Owner, found: int) -> str:
    """Say which entries a feed lacks whose next one is ``found``, so that nobody accepts that unawares; empty for none."""
    last = owner.processed_next - 1
    if found > last:
        return ""
    return f". It lacks the entries {found} to {last}; rows of Outbox.add among them are not sent again"


def _is_accepted(owner: Owner, place: FeedPlace, code: str) -> bool:
    """An acceptance holds for what its operator saw: the same stop, of the same history, not gone back since."""
    given = owner.accepted
    return (
        given is not None
        and given.code == code
        and given.incarnation == place.incarnation
        and given.next_sequence_id <= place.next_sequence_id
    )


def _stop(kind: type[Stopped | Refused], feed: str, detail: str) -> Stopped | Refused:
    hint = (
        f"To take the feed as it is and go on at its end, with all attached tables copied anew: {GO_ON.format(feed=feed)}, "
        "then start the agent again."
    )
    return kind(detail, hint=hint)


AnyOwner = TypeVar("AnyOwner", bound=Owner)


def check_unmoved(
    owner: AnyOwner | None, feed: str, agent_id: str, epoch: int, known: AnyOwner | None
) -> AnyOwner:
    """Return ``owner`` if the feed is this agent's at this epoch, and stands just where this agent left it (``known``).

    Every marking transaction asks. Raises AgentFenced if another took over, SourceUnavailable if ``owner`` is not as
    ``known`` or nothing is known: a restore can put an earlier state into the open database, at the same epoch, and sequence
    ids that the feed already has would then be given to new rows. Where the outbox is must be compared with the feed first.
    """
    older = owner is not None and owner.epoch < epoch
    if owner is None or (older and (known is None or known.incarnation == owner.incarnation)):
        raise _moved(feed)
    if owner.agent_id != agent_id or owner.epoch != epoch:
        raise AgentFenced(
            f"rows of {feed} are marked by {owner.agent_id} at epoch {owner.epoch}, "
            f"this agent is {agent_id} at epoch {epoch}"
        )
    if known is None or owner.progress != known.progress:
        raise _moved(feed)
    return owner


def _moved(feed: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"the outbox of {feed} is not where this agent left it: the database was restored or opened anew",
        hint="It is compared with the feed anew.",
    )


def alarm_to_accept(owner: Owner | None, feed: str, reason: str) -> Alarm:
    """Return the alarm over which the agent stopped, with the operator's ``reason``; Usage if there is none to accept."""
    if owner is None or owner.alarm is None or owner.alarm.code not in ACCEPTABLE:
        found = (
            "no agent has stopped"
            if owner is None or owner.alarm is None
            else f"its alarm is {owner.alarm.code}"
        )
        raise Usage(
            f"{feed}: there is nothing to accept: {found}",
            hint=f"Only {', '.join(sorted(ACCEPTABLE))} can be accepted, after the agent has stopped with it.",
        )
    return msgspec.structs.replace(owner.alarm, reason=reason)


def write_alarm(alarm: Alarm | None) -> str | None:
    """Return the alarm as it is stored: JSON text, None for none."""
    return None if alarm is None else msgspec.json.encode(alarm).decode()


def read_alarm(text: str | None) -> Alarm | None:
    """Return the alarm that :func:`write_alarm` wrote."""
    return None if text is None else decode_json(text, Alarm)


ACCEPTABLE = frozenset({FeedRecreated.code, OutboxBehindFeed.code, FeedBehindOutbox.code})
"""The stops that ``publisher accept`` is about."""
