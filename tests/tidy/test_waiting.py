"""The shared wait really waits, and gives up at its bound saying what it waited for."""

from __future__ import annotations

import pytest

from tests.waiting import async_wait_until, wait_until


def test_wait_returns_the_first_true_answer() -> None:
    answers = iter([None, 0, 7, 8])
    assert wait_until(lambda: next(answers)) == 7


async def test_async_wait_takes_functions_and_coroutines() -> None:
    answers = iter(["", "a", "", "b"])

    async def ask() -> str:
        return next(answers)

    assert await async_wait_until(lambda: next(answers)) == "a"
    assert await async_wait_until(ask) == "b"


async def test_wait_gives_up_at_its_bound() -> None:
    with pytest.raises(AssertionError, match=r"0\.01 s in vain for the server; the last answer was 0"):
        wait_until(lambda: 0, within=0.01, what="the server")
    with pytest.raises(AssertionError, match="never_true"):
        await async_wait_until(never_true, within=0.01)


def never_true() -> bool:
    return False
