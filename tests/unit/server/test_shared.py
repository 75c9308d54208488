"""Work asked for by several at once is done once; what is kept of it is bounded; errors are never kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from headrace.server.shared import Shared


class Work:
    """Makes bytes on demand, once ``go`` is set, and counts."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.done: list[str] = []
        self.error: Exception | None = None

    def of(self, name: str, size: int = 1) -> Callable[[], Coroutine[None, None, bytes]]:
        async def make() -> bytes:
            await self.go.wait()
            self.done.append(name)
            if self.error is not None:
                raise self.error
            return b"x" * size

        return make


async def test_who_asks_meanwhile_or_later_gets_the_same() -> None:
    shared, work = Shared[bytes](len), Work()
    asking = [asyncio.create_task(shared.get("k", work.of("k"))) for _ in range(50)]
    await asyncio.wait(asking, timeout=0)
    work.go.set()
    found = await asyncio.gather(*asking)
    assert all(one is found[0] for one in found)
    assert await shared.get("k", work.of("k")) is found[0]
    assert work.done == ["k"]


async def test_an_error_is_told_to_all_who_wait_and_not_kept() -> None:
    shared, work = Shared[bytes](len), Work()
    work.error = ValueError("no")
    asking = [asyncio.create_task(shared.get("k", work.of("k"))) for _ in range(3)]
    await asyncio.wait(asking, timeout=0)
    work.go.set()
    assert all(isinstance(one, ValueError) for one in await asyncio.gather(*asking, return_exceptions=True))
    work.error = None
    assert await shared.get("k", work.of("k")) == b"x"
    assert work.done == ["k", "k"]


async def test_one_who_gives_up_does_not_take_it_from_the_others() -> None:
    shared, work = Shared[bytes](len), Work()
    first, second = (asyncio.create_task(shared.get("k", work.of("k"))) for _ in range(2))
    await asyncio.wait([first], timeout=0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    work.go.set()
    assert await second == b"x"


async def test_what_is_kept_is_bounded_in_number_and_bytes_the_newest_used_stay() -> None:
    shared, work = Shared[bytes](len, kept_max=3, bytes_max=100), Work()
    work.go.set()
    for name in "abcad":
        await shared.get(name, work.of(name))
    assert work.done == ["a", "b", "c", "d"]
    await shared.get("a", work.of("a"))
    assert work.done == ["a", "b", "c", "d"], "used last, so b had to go"
    await shared.get("b", work.of("b"))
    assert work.done[-1] == "b"
    for name in "ef":
        await shared.get(name, work.of(name, size=26))
        await shared.get(name, work.of(name, size=26))
    assert work.done[-4:] == ["e", "e", "f", "f"], "above a quarter of the bound, nothing is kept"
    for name in "ghijk":
        await shared.get(name, work.of(name, size=25))
    assert len(shared._kept) == 3
    assert shared._bytes == 75
