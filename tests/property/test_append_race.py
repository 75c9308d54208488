"""Producers race at the tail of a shared feed: whatever the interleaving, exactly one of them wins each place.

Each producer does what a real one does: it appends where it thinks the end is, sends again what it has got no answer to,
reads on after a mismatch. Requests arrive late, twice, in any order and in any groups.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from random import Random

import pytest

from headrace.errors import HeadraceError, OffsetMismatch
from headrace.log.requests import Append, Appended, Outcome, places_from
from tests.bench import append
from tests.scale import scaled, sized
from tests.unit.log.court import FEED, Court


@dataclass
class Racer:
    """A producer that wants each of its batches in the feed, once and in order. It knows only what it is answered."""

    name: str
    batches: list[list[str]]
    place: int = 1
    done: list[tuple[int, list[str]]] = field(default_factory=list)

    def ask(self) -> Append | None:
        """The append that it sends now, and again for as long as it has no answer."""
        if not self.batches:
            return None
        values = self.batches[0]
        offsets = places_from(self.place, len(values))
        return append(FEED, *values, producer=self.name, expected_offsets=offsets)

    def hear(self, asked: Append, outcome: Outcome | HeadraceError) -> None:
        """Take an answer, if it is to what it still waits for."""
        now = self.ask()
        if now is None or (now.halves, now.expected_offsets) != (asked.halves, asked.expected_offsets):
            return
        if isinstance(outcome, Appended):
            assert outcome.first_sequence_id == self.place
            self.done.append((self.place, self.batches.pop(0)))
            self.place = outcome.last_sequence_id + 1
        else:
            assert isinstance(outcome, OffsetMismatch), outcome
            assert outcome.members["side-effects"] == "none"
            self.place = outcome.members["actual-next"]


@pytest.mark.parametrize("racers", [2, 3, 5])
def test_exactly_one_wins_each_place(racers: int) -> None:
    for seed in range(sized(scaled(40), soak=scaled(120))):
        rng = Random(seed * 31 + racers)
        court, running = Court(), []
        for number in range(racers):
            name = f"agent-{number}"
            court.register(name, shared=True)
            sizes = [rng.randint(1, 3) for _ in range(rng.randint(1, 6))]
            # Equal values on purpose: only who sent them tells them apart.
            running.append(Racer(name, [[rng.choice("xy") for _ in range(size)] for size in sizes]))
        wanted = {racer.name: [value for batch in racer.batches for value in batch] for racer in running}
        wins = race(court, running, rng)
        check(court, running, wanted, wins, seed)


def race(court: Court, running: list[Racer], rng: Random) -> dict[int, int]:
    """Let all of them run to their ends; returns how often each place was won anew."""
    wins: dict[int, int] = defaultdict(int)
    on_the_way: list[tuple[Racer, Append]] = []
    while any(racer.batches for racer in running):
        for racer in running:
            asked = racer.ask()
            if asked is not None and rng.random() < 0.7:
                on_the_way.append((racer, asked))
        rng.shuffle(on_the_way)
        arriving, on_the_way = on_the_way[: rng.randint(0, 6)], on_the_way[-12:]
        outcomes = court.ask(*[asked for _, asked in arriving])
        for (racer, asked), outcome in zip(arriving, outcomes, strict=True):
            if isinstance(outcome, Appended) and not outcome.duplicate:
                for place in range(outcome.first_sequence_id, outcome.last_sequence_id + 1):
                    wins[place] += 1
            if rng.random() < 0.8:
                racer.hear(asked, outcome)
    return wins


def check(
    court: Court, running: list[Racer], wanted: dict[str, list[str]], wins: dict[int, int], seed: int
) -> None:
    head = court.tail().head
    assert wins == dict.fromkeys(range(1, head + 1), 1), f"seed {seed}"
    stored = court.history(court.tail(), 1, head)
    for racer in running:
        own = [entry for entry in stored if entry.producer == racer.name]
        mine = append(FEED, *wanted[racer.name]).halves
        assert [entry.half for entry in own] == list(mine), f"seed {seed}: each entry once and in order"
        for place, values in racer.done:
            there = stored[place - 1 : place - 1 + len(values)]
            assert [entry.producer for entry in there] == [racer.name] * len(values), f"seed {seed}"
