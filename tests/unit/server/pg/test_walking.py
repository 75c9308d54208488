"""What a stream carries of a journal in memory: which entries in how much memory, and under which feed's name."""

from __future__ import annotations

import random
import sys

import pytest

from headrace.errors import MetadataCorrupt
from headrace.server.pg.walking import indices_of
from tests.pg_journal import Journal, Slot, Wanted
from tests.scale import scaled


@pytest.mark.parametrize(
    ("runs", "wanted"),
    [
        ([], []),
        ([(0, 5)], None),
        ([(1, 4)], [1, 2, 3]),
        ([(0, 1), (3, 5)], [0, 3, 4]),
    ],
)
def test_runs_are_told_as_indices(runs: list[tuple[int, int]], wanted: list[int] | None) -> None:
    found = indices_of(runs, 5)
    assert (None if found is None else list(found)) == wanted


def test_indices_take_little_memory() -> None:
    whole, every_other = (
        indices_of([(1, 100_000)], 100_001),
        indices_of([(n, n + 1) for n in range(0, 100_000, 2)], 100_000),
    )
    assert whole is not None
    assert every_other is not None
    assert sys.getsizeof(whole[10:]) < 100
    assert sys.getsizeof(every_other) < 5 * len(every_other)


def test_entries_of_a_feed_that_nobody_can_name_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once sent, and confirmed, they would never come under their name."""
    journal = Journal()
    journal.append(1, [Wanted()])
    refreshed: list[str] = []
    monkeypatch.setattr(journal, "tails", list)
    monkeypatch.setattr(journal, "refresh", lambda: refreshed.append("another server may have made the feed"))
    with pytest.raises(MetadataCorrupt, match="region 1"):
        Slot(journal).stream()
    assert refreshed


@pytest.mark.parametrize("seed", range(scaled(20)))
def test_what_is_confirmed_between_chunks_leaves_nothing_held(seed: int) -> None:
    """However the confirmations fall: once all is confirmed, the slot holds what is open, and nothing before that."""
    chance, journal = random.Random(seed), Journal()
    for _ in range(12):
        names = [
            Wanted(chance.choice(["", "a", "b"]), chance.random() < 0.4) for _ in range(chance.randint(1, 4))
        ]
        journal.append(chance.randint(1, 2), [one if one.tx else Wanted() for one in names])
    slot, held = Slot(journal), Slot(journal)
    sent = 0
    for messages in slot.steps(chunk_bytes=chance.choice([1, 40, 200])):
        sent = max([sent, *(message.position for message in messages)])
        slot.confirm(sent)
    for messages in held.steps():
        sent = max([sent, *(message.position for message in messages)])
    held.confirm(sent)
    assert (slot.position, slot.place) == (held.position, held.place)
