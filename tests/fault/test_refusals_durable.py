"""A refusal rests on what stands before it: it is answered only once that is durable, and never if that fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.log.log import Log
from headrace.server.http.app import HttpFace
from headrace.server.service import Service
from headrace.testing.disk import Fault, FaultyDisk, Step
from tests.waiting import async_wait_until

FEED = "ledger"
HELD_S_MAX = 60.0


class HeldDisk(FaultyDisk):
    """A disk whose segments are synced one at a time, when the test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.held = 0
        """How many syncs have come to wait so far."""
        self._holding = False
        self._gate = threading.Semaphore(0)

    def hold(self) -> None:
        """From now on a sync waits for :meth:`let_one`."""
        self._holding = True

    def let_one(self) -> None:
        """Let the sync that waits (or else the next one) go on."""
        self._gate.release()

    def let_all(self) -> None:
        """Hold nothing any more."""
        self._holding = False
        self._gate.release()

    def meet(self, step: Step, path: Path) -> Fault | None:
        if step == Step.SYNC and path.suffix == ".seg" and self._holding:
            self.held += 1
            assert self._gate.acquire(timeout=HELD_S_MAX), "nobody let this sync go on"
        return super().meet(step, path)


class Ledger:
    """A server in this process over a held disk; a shared feed with two producers."""

    def __init__(self, http: httpx.AsyncClient, disk: HeldDisk) -> None:
        self.http = http
        self.disk = disk

    async def register(self, agent: str, **members: Any) -> httpx.Response:
        body = {"agent-id": agent, "change-feed-id": FEED, "shared": True, **members}
        return await self.http.post("/publishers/register", json=body)

    def post(self, agent: str, place: int, value: str, **headers: str) -> asyncio.Task[httpx.Response]:
        """Send an append and don't wait for its answer."""
        body = {"agent-id": agent, "changes": {"value": value}, "expected-offset": place}
        return asyncio.create_task(self.http.post(f"/feeds/{FEED}/entries", json=body, headers=headers))

    async def group(self, *asked: tuple[str, int, str]) -> list[asyncio.Task[httpx.Response]]:
        """Send appends that are judged as one group, and return when its sync waits.

        The first of them is alone in the group before; the others gather while that one is synced.
        """
        tasks = [self.post(*asked[0])]
        syncs = self.disk.held
        await async_wait_until(lambda: self.disk.held == syncs + 1, what="the first sync")
        tasks += [self.post(*each) for each in asked[1:]]
        await self.settle()
        self.disk.let_one()
        await async_wait_until(lambda: self.disk.held == syncs + 2, what="the second sync")
        await asyncio.wait_for(asyncio.shield(tasks[0]), HELD_S_MAX)
        return tasks

    async def settle(self) -> None:
        """Let every task run until it waits for the log's thread; an answer that was ready would be there then."""
        for _ in range(20):
            await asyncio.to_thread(int)


@asynccontextmanager
async def ledger(folder: Path) -> AsyncIterator[Ledger]:
    disk = HeldDisk()
    log = Log.open(folder, disk=disk)
    await log.start()
    transport = httpx.ASGITransport(HttpFace(Service(log)))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            made = Ledger(http, disk)
            for agent in ("a", "b"):
                assert (await made.register(agent)).status_code == 200
            disk.hold()
            yield made
    finally:
        disk.let_all()
        await log.close()


async def test_refusal_waits_for_the_sync_of_what_it_was_judged_against(tmp_path: Path) -> None:
    async with ledger(tmp_path) as made:
        _, won, lost, repeated = await made.group(("a", 1, "x"), ("a", 2, "y"), ("b", 2, "z"), ("a", 2, "y"))
        await made.settle()
        assert [task.done() for task in (won, lost, repeated)] == [False, False, False]
        made.disk.let_one()
        answers = await asyncio.gather(won, lost, repeated)
        assert [answer.status_code for answer in answers] == [200, 409, 200]
        assert [answer.json().get("duplicate") for answer in answers] == [False, None, True]
        refusal = answers[1].json()
        assert (refusal["code"], refusal["index"], refusal["expected"], refusal["actual-next"]) == (
            "offset-mismatch", 0, 2, 3,
        )  # fmt: skip
        assert (refusal["retryable"], refusal["side-effects"]) == (False, "none")


async def test_fenced_waits_for_the_sync_of_the_registration(tmp_path: Path) -> None:
    async with ledger(tmp_path) as made:
        first = made.post("b", 1, "x")
        await async_wait_until(lambda: made.disk.held == 1, what="the first sync")
        twin = asyncio.create_task(made.register("a", instance="twin"))
        await made.settle()
        late = made.post("a", 2, "y", **{"Headrace-Epoch": "1"})
        await made.settle()
        made.disk.let_one()
        await async_wait_until(lambda: made.disk.held == 2, what="the second sync")
        assert (await first).status_code == 200
        await made.settle()
        assert not twin.done()
        assert not late.done()
        made.disk.let_one()
        assert (await twin).json()["epoch"] == 2
        assert (await late).json()["code"] == "fenced"


@pytest.mark.parametrize("number", [5, 28], ids=["EIO", "ENOSPC"])
async def test_after_a_failed_sync_nothing_is_said_of_the_entries(tmp_path: Path, number: int) -> None:
    """Neither accepted nor refused nor a duplicate: 503, and there may be side effects."""
    async with ledger(tmp_path) as made:
        _, won, lost, repeated = await made.group(("a", 1, "x"), ("a", 2, "y"), ("b", 2, "z"), ("a", 2, "y"))
        made.disk.faults.append(Fault(Step.SYNC, number, suffix=".seg"))
        made.disk.let_all()
        for answer in await asyncio.gather(won, lost, repeated):
            problem = answer.json()
            assert (answer.status_code, problem["code"]) == (503, "writer-stopped")
            assert (problem["side-effects"], problem["retryable"]) == ("possible", True)
            assert answer.headers["retry-after"]
        later = await made.post("a", 2, "y")
        assert (later.status_code, later.json()["side-effects"]) == (503, "possible")
    async with ledger(
        tmp_path
    ) as made:  # a restart: what the disk had not confirmed may be there, and a retry tells
        made.disk.let_all()
        again = await made.post("a", 2, "y")
        assert (again.status_code, again.json()["first-sequence-id"]) == (200, 2)


async def test_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    async with ledger(tmp_path) as made:
        made.disk.let_all()
        made.disk.faults.append(Fault(Step.WRITE, 28, suffix=".seg", written=300))
        answer = await made.post("a", 1, "x")
        assert (answer.status_code, answer.json()["code"]) == (503, "store-unavailable")
        assert answer.json()["side-effects"] == "none"
        assert (await made.post("b", 1, "y")).json()["duplicate"] is False
