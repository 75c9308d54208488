"""Random histories of a journal, archived in random segments and rebuilt: the same entries, and then a life of its own."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.entries.lsn import Lsn
from tests.bench import Bench
from tests.rebuilding import Backup, Given, feed_of, opened, rebuilt, stream
from tests.scale import scaled

FEEDS = ("owned", "shared", "late")
BEGINS = {"owned": 1, "shared": 1, "late": (1 << 32) - 5}
"""One feed begins elsewhere than at 1, and its LSNs wrap after a few entries."""


@dataclass(frozen=True)
class Step:
    """An append of so many entries; ``again``: its producer has registered as a new process before."""

    feed: str
    size: int
    again: bool


STEPS = st.lists(
    st.builds(Step, st.sampled_from(FEEDS), st.integers(1, 4), st.booleans()), min_size=1, max_size=12
)
SIZES = st.lists(st.integers(1, 6), max_size=5)


def live(bench: Bench, steps: list[Step], life: str) -> list[Lsn]:
    """Carry the steps out; returns the LSN of each append's last entry."""
    ends = []
    for number, step in enumerate(steps):
        tail = bench.store.tail(step.feed)
        producer = f"p-{step.feed}"
        if step.again or tail is None or producer not in tail.agents:
            bench.register(step.feed, producer, f"{life}-{number}", shared=step.feed == "shared")
        first = BEGINS[step.feed] if bench.tail(step.feed).first_sequence_id == 0 else -1
        named = (first, *[-1] * (step.size - 1)) if first > 1 else ()
        values = [f"{life}-{number}-{at}" for at in range(step.size)]
        ends.append(bench.append(step.feed, *values, producer=producer, sequence_ids=named).last_lsn)
        bench.clock.ms += step.size % 2
    return ends


@settings(max_examples=scaled(8), deadline=None)
@given(before=STEPS, behind=STEPS, sizes=SIZES, target=st.integers(0, 11))
def test_rebuilt_journal_has_the_same_entries_and_goes_on(
    before: list[Step], behind: list[Step], sizes: list[int], target: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        backup = Backup(folder / "archive")
        with opened(folder / "server") as bench:
            ends = live(bench, before, "first")
            backup.take(bench, sizes=sizes)
            wanted = stream(bench)
        at = ends[min(target, len(ends) - 1)]
        made = rebuilt(backup.folder, folder / "earlier", at)
        with opened(folder / "earlier") as earlier:
            assert [one[:3] for one in stream(earlier)] == [one[:3] for one in wanted if one.lsn <= at]
        assert made.entries == sum(one.lsn <= at for one in wanted)
        rebuilt(backup.folder, folder / "second")
        with opened(folder / "second") as second:
            live(second, behind, "second")
            backup.take(second, sizes=sizes)
            grown = stream(second)
            incarnations = {tail.name: tail.incarnation for tail in second.store.tails()}
        assert [one[:3] for one in grown[: len(wanted)]] == [one[:3] for one in wanted]
        again = rebuilt(backup.folder, folder / "third")
        _check_third(folder / "third", grown, incarnations)
        for feed, incarnation in incarnations.items():
            if any(one.incarnation == incarnation for one in grown[len(wanted) :]):
                assert feed_of(again, feed).was == incarnation


def _check_third(folder: Path, archived: list[Given], incarnations: dict[str, str]) -> None:
    """Each feed's newest history went in with the one that it goes on from: all of them, under a history of their own."""
    with opened(folder) as third:
        held = stream(third)
        assert [one[:3] for one in held] == [one[:3] for one in archived]
        assert third.store.dropped_lsn() < held[0].lsn
        for tail in third.store.tails():
            assert (tail.oldest, tail.dropped_sequence_id) == (BEGINS[tail.name], 0)
            assert tail.incarnation != incarnations[tail.name]
