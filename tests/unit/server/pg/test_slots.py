"""Slots in this process, on a real log: what waits for a write, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from headrace.access.grants import EVERYTHING
from headrace.entries.lsn import ZERO
from headrace.log.log import Log
from headrace.server.pg.slots import HELD_MS, Held, SlotOptions, Slots
from headrace.server.pg.terms import PgTerms
from headrace.testing.clock import ManualClock
from tests.bench import register

WAIT_S = 30.0
OPTIONS = SlotOptions("headrace")


class Kit(NamedTuple):
    log: Log
    slots: Slots
    clock: ManualClock


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Kit]:
    """A log on files with a feed, and its slots; the clock is that of leases alone."""
    log = Log.open(folder)
    await log.start()
    clock = ManualClock()
    slots = Slots(log, clock, PgTerms())
    await slots.start()
    await log.register(register("f"))
    try:
        yield Kit(log, slots, clock)
    finally:
        await slots.close()
        await log.close()


async def taken(slots: Slots, name: str = "s") -> Held:
    """A new slot, in use."""
    await slots.create(name, "headrace", OPTIONS, EVERYTHING, None)
    return await slots.take(name, EVERYTHING, 1, lambda: None)


class Client:
    """Confirms one position after another, without a pause."""

    def __init__(self, slots: Slots, held: Held) -> None:
        self._slots, self._held = slots, held
        self._again()

    def _again(self) -> None:
        self._slots.confirm(self._held, self._held.position + 1, ZERO)
        self._next = asyncio.get_running_loop().call_soon(self._again)

    def end(self) -> None:
        self._next.cancel()


async def test_nobody_waits_for_a_client_that_goes_on_confirming(tmp_path: Path) -> None:
    async with opened(tmp_path) as kit:
        client = Client(kit.slots, await taken(kit.slots))
        other = await taken(kit.slots, "other")
        async with asyncio.timeout(WAIT_S):
            kit.slots.confirm(other, 999, ZERO)
            await kit.slots.settle()
            (row,) = [one for one in kit.log.metadata.slots.all() if one.name == "other"]
            assert row.position == 999
            assert len(await kit.slots.all(EVERYTHING)) == 2
            await kit.slots.release(other)
            await kit.slots.drop("other", EVERYTHING)
        client.end()


async def test_leases_are_renewed_while_a_client_goes_on_confirming(tmp_path: Path) -> None:
    async with opened(tmp_path) as kit:
        held = await taken(kit.slots)
        client = Client(kit.slots, held)
        kit.clock.ms += HELD_MS - 1
        async with asyncio.timeout(WAIT_S):
            await kit.slots.note()
        client.end()
        row = kit.log.metadata.slots.one("s")
        assert row is not None
        assert row.held_until_ms == kit.clock.ms + HELD_MS
