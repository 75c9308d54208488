"""What the simulator knows: what each feed must hold, what must come of each request, which states a crash may leave."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from headrace.errors import HeadraceError
from headrace.log.requests import NEXT, Append, Chain, Outcome, Register, Release, Request
from headrace.log.tail import FeedTail
from headrace.wire.entry import digest
from tests.append_model import Feed, Said


@dataclass(frozen=True)
class World:
    """All feeds at one moment, and the streams on which an append was refused. A value: what is heard makes a new one."""

    feeds: Mapping[str, Feed] = field(default_factory=dict)
    failed: frozenset[Chain] = frozenset()

    def hear(self, request: Request) -> tuple[Self, Said]:
        """Return the world after ``request``, and what its sender must be told."""
        known = self.feeds.get(request.feed)
        if known is None and not isinstance(request, Register):
            is_behind = isinstance(request, Append) and request.chain in self.failed
            return self._after(request, {"code": "stream-failed" if is_behind else "feed-not-found"}, None)
        if known is None:
            assert isinstance(request, Register)
            feed = Feed(request.shared, incarnation=request.new_incarnation)
        else:
            feed = known.clone()
        return self._after(request, _said(feed, request, self.failed), feed)

    def _after(self, request: Request, said: Said, feed: Feed | None) -> tuple[Self, Said]:
        feeds = self.feeds if feed is None else {**self.feeds, request.feed: feed}
        chain = request.chain if isinstance(request, Append) and "code" in said else None
        failed = self.failed if chain is None else self.failed | {chain}
        return replace(self, feeds=feeds, failed=failed), said

    def without(self, requests: Iterable[Request]) -> Self:
        """Return the world in which the streams of these requests have failed."""
        chains = {one.chain for one in requests if isinstance(one, Append) and one.chain is not None}
        return replace(self, failed=self.failed | chains)

    def stands(self, ask: Append) -> bool:
        """Does any entry of this append stand where it was to stand, or did it before retention or a repair took it away?

        An entry that names no place, neither by itself nor by another of its append, is looked for everywhere.
        """
        feed = self.feeds.get(ask.feed)
        if feed is None:
            return False
        named = [ask.sequence_ids] if feed.terms == "ignored" else [ask.sequence_ids, ask.expected_offsets]
        starts = {place - at for places in named for at, place in enumerate(places) if place != NEXT}
        wanted = [(ask.producer, half) for half in ask.halves]
        if not starts:
            return not set(wanted).isdisjoint(feed.entries)
        return any(
            place >= feed.begin and feed.entries[place - feed.begin : place - feed.begin + 1] == [entry]
            for start in starts
            for place, entry in enumerate(wanted, start)
        )


def _said(feed: Feed, request: Request, failed: frozenset[Chain]) -> Said:
    if isinstance(request, Append):
        return feed.append(request, request.halves, chain_failed=request.chain in failed)
    if isinstance(request, Register):
        if request.shared != feed.shared:
            return {"code": "invalid-request"}
        return feed.register(request.agent_id, request.instance, takeover=request.takeover)
    if isinstance(request, Release):
        feed.quarantined.discard(request.agent_id)
    elif request.expected_offset is not None:
        feed.terms = request.expected_offset
    return {}


@dataclass
class Asked:
    """A request, what must come of it, the world afterwards, and what did come of it."""

    request: Request
    said: Said
    after: World
    outcome: Outcome | HeadraceError | None = None

    @property
    def kind(self) -> str:
        """What it comes to, in a word or two."""
        if "first" in self.said:
            return "duplicate" if self.said["duplicate"] else "appended"
        return str(self.said.get("code", type(self.request).__name__))


class Shape(NamedTuple):
    """All that a feed's tail says and the model knows as well, side by side."""

    owned_by: tuple[bool, str, str, int]
    agents: Mapping[str, int]
    instances: Mapping[str, str]
    quarantined: set[str]
    terms: str
    incarnation: str
    next: int
    last: Mapping[str, tuple[int, int, str]]


def shape_of(feed: Feed) -> Shape:
    """What the model says of a feed's tail."""
    return Shape(
        (feed.shared, feed.owner, "" if feed.shared else feed.instances.get(feed.owner, ""), feed.epoch),
        feed.epochs,
        feed.instances if feed.shared else {},
        feed.quarantined,
        feed.terms,
        feed.incarnation,
        feed.next,
        {agent: (first, len(halves), digest(halves).hex()) for agent, (first, halves) in feed.last.items()},
    )


def shape_in(tail: FeedTail) -> Shape:
    """What the store says of a feed's tail."""
    return Shape(
        (tail.shared, tail.owner, tail.instance, tail.epoch),
        tail.agents,
        tail.instances,
        set(tail.quarantines),
        tail.settings.expected_offset,
        tail.incarnation,
        tail.next_sequence_id,
        {
            agent: (place.first_sequence_id, place.count, place.digest)
            for agent, place in tail.producers.items()
        },
    )


def twisted(half: bytes) -> bytes:
    """Another producer's half of the very same length."""
    return half[:-1] + bytes([half[-1] ^ 1])


def made(feed: str, producer: str, halves: list[bytes], first: int | None = None, **fields: Any) -> Append:
    """Return an append of these halves; ``first``: the place that its first entry expects."""
    offsets = [first, *[NEXT] * (len(halves) - 1)] if first is not None else []
    ask = Append(feed, producer, halves, digest(halves), expected_offsets=offsets)
    return replace(ask, **fields)


def short(value: object) -> str:
    """A value's text for the story, cut to one line."""
    if isinstance(value, Append):
        mark = hashlib.sha256(value.digest).hexdigest()[:6]
        places = f"{list(value.expected_offsets)}{list(value.sequence_ids)}"
        return f"append {value.feed} by {value.producer} {mark} x{len(value.halves)} at {places} epoch {value.epoch}"
    return f"{value!r:.110}"
