"""Appends of a chain: behind one that is refused none is taken, in its group and in later ones; others go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import OffsetMismatch, StreamFailed
from headrace.log.log import Log
from headrace.log.requests import Append, Appended, Chain
from tests.bench import append, expecting, register
from tests.fault.journals import opened

FEED = "vmapi::vm"


def chained(chain: Chain) -> Callable[[Append], Append]:
    return lambda one: replace(one, chain=chain)


def test_in_one_group_nothing_is_taken_behind_a_refusal(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        bench.ask(register(FEED))
        first, second = chained(Chain()), chained(Chain())
        outcomes = bench.ask(
            first(append(FEED, "a")),
            first(expecting(FEED, 9, "b")),
            first(append(FEED, "c")),
            second(append(FEED, "d")),
            first(expecting(FEED, 3, "e")),
            append(FEED, "f"),
        )
        assert [type(outcome) for outcome in outcomes] == [
            Appended, OffsetMismatch, StreamFailed, Appended, StreamFailed, Appended,
        ]  # fmt: skip
        tail = bench.store.tail(FEED)
        assert tail is not None
        assert tail.head == 3


def test_a_refused_chain_says_whether_its_entries_may_stand(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        bench.ask(register(FEED))
        bench.append(FEED, "a")
        failed = chained(Chain(failed=True))
        stored, new = bench.ask(failed(expecting(FEED, 1, "a")), failed(expecting(FEED, 2, "b")))
        assert isinstance(stored, StreamFailed)
        assert isinstance(new, StreamFailed)
        assert (stored.members["side-effects"], new.members["side-effects"]) == ("possible", "none")
        assert stored.members["retryable"] is True
        assert stored.members["actual-next"] == 2


async def test_a_chain_stays_failed_in_later_groups(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    await log.start()
    try:
        await log.register(register(FEED))
        chain = Chain()
        of_chain = chained(chain)
        assert (await log.append(of_chain(append(FEED, "a")))).first_sequence_id == 1
        with pytest.raises(OffsetMismatch):
            await log.append(of_chain(expecting(FEED, 7, "b")))
        with pytest.raises(StreamFailed):
            await log.append(of_chain(append(FEED, "c")))
        assert (await log.append(append(FEED, "d"))).first_sequence_id == 2
    finally:
        await log.close()
