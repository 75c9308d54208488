"""Requests drawn by chance: producers that race, retry, are fenced, count by themselves, stream; and operators."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from headrace.log.requests import NEXT, Append, Chain, Configure, Register, Release, Request, places_from
from tests.append_model import Feed
from tests.bench import half, register
from tests.fault.simulated import World, made, twisted

AGENTS: Final = ("a1", "a2", "a3")
TERMS: Final = ("optional", "optional", "optional", "required", "ignored")


class Requests:
    """What a server is asked, drawn from ``rng``. ``feeds``: name -> whether it is shared."""

    def __init__(self, rng: random.Random, feeds: dict[str, bool]) -> None:
        self.rng = rng
        self.feeds = feeds
        self.number = 0
        self.sent: deque[Append] = deque(maxlen=30)
        self.chain = Chain()

    def reconnected(self) -> None:
        """Streams end with their server; what was sent on them is remembered."""
        self.chain = Chain()

    def draw(self, begin: World, now: World) -> Request:
        """One more request of a group that is judged from ``begin`` on; ``now``: what those before it come to."""
        name = self.rng.choice(list(self.feeds))
        feed = now.feeds.get(name)
        if feed is None:
            return register(name, "a1", "i0", shared=self.feeds[name])
        roll = self.rng.random()
        if roll < 0.08:
            return self._registration(name, feed)
        if roll < 0.12 or (feed.quarantined and roll < 0.3):
            return self._administration(name, feed)
        ask = self._append(name, feed, begin.feeds.get(name))
        self.sent.append(ask)
        return ask

    def _registration(self, name: str, feed: Feed) -> Register:
        agent = self.rng.choice(AGENTS)
        instance = self.rng.choice((feed.instances.get(agent, "i0"), f"i{self.number}"))
        self.number += 1
        shared = feed.shared if self.rng.random() < 0.95 else not feed.shared
        return register(name, agent, instance, takeover=self.rng.random() < 0.6, shared=shared)

    def _administration(self, name: str, feed: Feed) -> Request:
        if self.rng.random() < 0.75:
            return Release(name, self.rng.choice(sorted(feed.quarantined) or AGENTS))
        return Configure(name, expected_offset=self.rng.choice(TERMS))

    # -- appends ------------------------------------------------------------------------------------------------------

    def _append(self, name: str, feed: Feed, before: Feed | None) -> Append:
        roll = self.rng.random()
        if roll < 0.25 and feed.entries:
            ask = self._retry(name, feed)
        elif roll < 0.33 and self.sent:
            ask = replace(self.rng.choice(self.sent), chain=None)
        else:
            ask = self._fresh(name, feed, before if before is not None else feed)
        if ask.expected_offsets and not ask.sequence_ids and self.rng.random() < 0.4:
            ask = replace(ask, expected_offsets=places_from(ask.expected_offsets[0], len(ask.halves)))
        if ask.chain is None and self.rng.random() < 0.2:
            self.chain = Chain() if self.rng.random() < 0.2 else self.chain
            ask = replace(ask, chain=self.chain)
        return ask

    def _fresh(self, name: str, feed: Feed, before: Feed) -> Append:
        """New entries: without a place, at the end, where the end was before this group (a race), or beside it."""
        agent, halves, roll = self._sender(feed), self._halves(), self.rng.random()
        fields: dict[str, Any] = {"epoch": self._epoch(feed, agent), "incarnation": self._incarnation(feed)}
        if roll < 0.2:
            return made(name, agent, halves, **fields)
        if roll < 0.35:
            ids = self._counted(feed, len(halves))
            offsets = [NEXT if self.rng.random() < 0.5 else number for number in ids]
            given = offsets if self.rng.random() < 0.2 else []
            return made(name, agent, halves, **fields, sequence_ids=ids, expected_offsets=given)
        if roll < 0.5:
            ahead = max(0, feed.next + self.rng.choice((-3, -1, 1, 2, 3)))
            return made(name, agent, halves, ahead, **fields)
        place = before.next if self.rng.random() < 0.3 else feed.next
        return made(name, agent, halves, place, **fields)

    def _counted(self, feed: Feed, count: int) -> list[int]:
        first = max(1, feed.next + self.rng.choice((0, 0, 0, 0, -1, 1, 62)))
        ids = [first + at for at in range(count)]
        if self.rng.random() < 0.2:
            ids[self.rng.randrange(count)] = self.rng.choice((NEXT, first))
        return ids

    def _retry(self, name: str, feed: Feed) -> Append:
        """What stands there or did, cut anew: across frames, in part, beyond the end, below the oldest, or changed."""
        if feed.last and self.rng.random() < 0.4:
            first, kept = self.rng.choice(list(feed.last.values()))
            halves = list(kept)
        else:
            low = max(feed.begin, feed.next - 60) if self.rng.random() < 0.7 else feed.begin
            first = self.rng.randint(low, feed.next - 1)
            stop = first - feed.begin + self.rng.randint(1, 6)
            halves = [stored for _, stored in feed.entries[first - feed.begin : stop]]
        roll = self.rng.random()
        if roll < 0.3:
            at = self.rng.randrange(len(halves))
            halves[at] = twisted(halves[at])
        elif roll < 0.4:
            halves += self._halves()
        at = first - feed.begin
        writer = feed.entries[at][0] if at < len(feed.entries) else feed.owner
        agent = writer if self.rng.random() < 0.8 else self._sender(feed)
        return made(name, agent, halves, first, epoch=self._epoch(feed, agent))

    def _sender(self, feed: Feed) -> str:
        if self.rng.random() < 0.12:
            return self.rng.choice(AGENTS)
        return self.rng.choice(sorted(feed.epochs)) if feed.shared else feed.owner

    def _epoch(self, feed: Feed, agent: str) -> int | None:
        roll = self.rng.random()
        if roll < 0.75 or agent not in feed.epochs:
            return None
        if roll < 0.9:
            return feed.epochs[agent]
        return max(1, feed.epochs[agent] + self.rng.choice((-1, -1, -1, 1)))

    def _incarnation(self, feed: Feed) -> str | None:
        roll = self.rng.random()
        return None if roll < 0.8 else feed.incarnation if roll < 0.97 else "another"

    def _halves(self) -> list[bytes]:
        self.number += 1
        size = self.rng.choice((0, 0, 0, 30, 300, 5000))
        return [half(f"{self.number}.{at}" + "." * size) for at in range(self.rng.randint(1, 4))]


def again(asked: Sequence[tuple[Append, int]]) -> list[Append]:
    """Retries of appends that stand from these places on: as they were, and with their last entry changed."""
    found: list[Append] = []
    for ask, first in asked:
        halves = list(ask.halves)
        found.append(made(ask.feed, ask.producer, halves, first))
        found.append(made(ask.feed, ask.producer, [*halves[:-1], twisted(halves[-1])], first))
    return found
