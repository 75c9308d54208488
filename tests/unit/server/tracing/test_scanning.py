"""Searches for a key: two at once on threads of their own, and the server goes on beside them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from headrace.errors import ServerBusy
from headrace.server.tracing.finding import scan_key
from headrace.server.tracing.scanning import SCANS_MAX, Scans
from tests.unit.server.retention.benches import opened
from tests.waiting import async_wait_until


class Search:
    """A search that lasts until it is let go."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.go_on.wait(30)
        return threading.current_thread().name


async def test_more_searches_than_may_run_are_refused_and_nothing_else_waits(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        await bench.write("a", 3)
        searches = [Search() for _ in range(SCANS_MAX)]
        running = [asyncio.create_task(bench.service.scans.run(one)) for one in searches]
        await async_wait_until(lambda: all(one.begun.is_set() for one in searches), 30)
        with pytest.raises(ServerBusy, match="searches for a key"):
            await bench.service.trace_key("a", b"k")
        assert (await bench.service.trace("a", 3)).state == "retained", "one entry is no search"
        await bench.write("a", 1)
        for search in searches:
            search.go_on.set()
        assert all(name.startswith("headrace-scan") for name in await asyncio.gather(*running))
        assert (await bench.service.trace_key("a", b"k")).same_key == [4, 3, 2, 1]
        stopped = scan_key(bench.log.store, bench.log.tail("a"), b"k", lambda: True)
        assert (stopped.sequence_ids, stopped.scanned_from) == ([], 5)


async def test_a_search_whose_caller_went_away_still_counts() -> None:
    scans, searches = Scans(), [Search() for _ in range(SCANS_MAX)]
    running = [asyncio.create_task(scans.run(one)) for one in searches]
    await async_wait_until(lambda: all(one.begun.is_set() for one in searches), 30)
    for task in running:
        task.cancel()
    await asyncio.wait(running)
    with pytest.raises(ServerBusy):
        await scans.run(str)
    searches[0].go_on.set()

    async def taken() -> str | None:
        try:
            return await scans.run(lambda: "found")
        except ServerBusy:
            return None

    async with asyncio.timeout(30):
        while await taken() is None:
            await asyncio.to_thread(searches[0].begun.wait)
    searches[1].go_on.set()
    await scans.close()


async def test_a_stop_ends_the_searches_that_run() -> None:
    scans, begun = Scans(), threading.Event()

    def search() -> str:
        begun.set()
        while not scans.is_ending():
            threading.Event().wait(0.01)
        return "what it had"

    running = asyncio.create_task(scans.run(search))
    assert await asyncio.to_thread(begun.wait, 30)
    async with asyncio.timeout(30):
        await scans.close()
        assert await running == "what it had"
