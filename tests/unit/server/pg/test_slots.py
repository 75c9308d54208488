"""Slots in this process, on a real log: what waits for a write, whose confirmations count, and what a place says."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.access.grants import EVERYTHING, Grant, Role
from headrace.entries.lsn import ZERO
from headrace.errors import MetadataCorrupt
from headrace.log.log import Log
from headrace.log.metadata.contract import SlotRow
from headrace.log.metadata.sqlite import METADATA_NAME
from headrace.server.pg.slot_views import SlotOptions
from headrace.server.pg.slots import HELD_MS, Held, Slots
from headrace.server.pg.sqlstate import PgError
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
async def opened(folder: Path, terms: PgTerms | None = None) -> AsyncIterator[Kit]:
    """A log on files with a feed, and its slots; the clock is that of leases alone."""
    log = Log.open(folder)
    await log.start()
    clock = ManualClock()
    slots = Slots(log, clock, terms or PgTerms())
    await slots.start()
    await log.register(register("f"))
    try:
        yield Kit(log, slots, clock)
    finally:
        await slots.close()
        await log.close()


def stored(kit: Kit, name: str = "s") -> SlotRow:
    row = kit.log.metadata.slots.one(name)
    assert row is not None
    return row


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
            assert stored(kit, "other").position == 999
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
        assert stored(kit).held_until_ms == kit.clock.ms + HELD_MS


async def test_a_slot_that_was_made_anew_is_not_moved_by_the_client_of_the_old_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as kit:
        ended = asyncio.Event()
        await kit.slots.create("s", "headrace", OPTIONS, EVERYTHING, None)
        held = await kit.slots.take("s", EVERYTHING, 1, ended.set)
        # As another server of the store would do it.
        kit.log.metadata.slots.drop("s")
        row = held.row._replace(slot_id="another one")
        assert kit.log.metadata.slots.make(row, str(ZERO), kit.clock.ms)
        kit.slots.confirm(held, held.position + 7, ZERO)
        await kit.slots.settle()
        assert ended.is_set()
        assert held.gone is not None
        assert held.gone.state == "55006"
        kit.slots.confirm(held, held.position + 9, ZERO)
        await kit.slots.release(held)
        assert stored(kit) == row


async def test_a_slot_in_use_that_is_gone_is_noticed_without_a_confirmation(tmp_path: Path) -> None:
    async with opened(tmp_path) as kit:
        ended = asyncio.Event()
        await kit.slots.create("s", "headrace", OPTIONS, EVERYTHING, None)
        held = await kit.slots.take("s", EVERYTHING, 1, ended.set)
        await kit.slots.note()
        assert not ended.is_set()
        kit.log.metadata.slots.drop("s")
        await kit.slots.note()
        assert ended.is_set()
        await kit.slots.release(held)


async def test_a_slot_that_is_taken_was_seen_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as kit:
        await kit.slots.create("s", "headrace", OPTIONS, EVERYTHING, None)
        kit.clock.ms += 3_600_000
        await kit.slots.release(await kit.slots.take("s", EVERYTHING, 1, lambda: None))
        (place,) = kit.log.metadata.subscribers()
        assert place.seen_at_ms == kit.clock.ms


async def test_a_damaged_place_is_not_a_lost_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as kit:
        for name in ("s", "whole"):
            await kit.slots.create(name, "headrace", OPTIONS, EVERYTHING, None)
        with closing(sqlite3.connect(tmp_path / METADATA_NAME)) as other, other:
            other.execute("UPDATE subscriber SET seen_at_ms = 7 WHERE subscriber_id = 'slot s'")
        with pytest.raises(MetadataCorrupt, match="slot s"):
            await kit.slots.take("s", EVERYTHING, 1, lambda: None)
        with pytest.raises(MetadataCorrupt, match="slot s"):
            await kit.slots.one("s", EVERYTHING)
        shown = {view.row.name: (view.lost, view.active) for view in await kit.slots.all(EVERYTHING)}
        assert shown == {"s": (None, False), "whole": (False, False)}
        await kit.slots.release(await kit.slots.take("whole", EVERYTHING, 1, lambda: None))
        await kit.slots.drop("s", EVERYTHING)
        await kit.slots.release(await taken(kit.slots))


async def test_one_subject_can_not_take_all_slots(tmp_path: Path) -> None:
    async with opened(tmp_path, PgTerms(subject_slots_max=2, slots_max=4)) as kit:
        bob, eve = (Grant(subject=name, roles=frozenset({Role.REPLICATION})) for name in ("bob", "eve"))
        for name in ("a", "b"):
            await kit.slots.create(name, "headrace", OPTIONS, bob, None)
        with pytest.raises(PgError, match="this subject has 2") as refused:
            await kit.slots.create("c", "headrace", OPTIONS, bob, None)
        assert refused.value.state == "53400"
        await kit.slots.create("c", "headrace", OPTIONS, eve, None)
        await kit.slots.drop("a", bob)
        await kit.slots.create("a", "headrace", OPTIONS, bob, None)


async def test_a_damaged_row_costs_no_other_slot_its_lease(tmp_path: Path) -> None:
    async with opened(tmp_path) as kit:
        held = [await taken(kit.slots, name) for name in ("a", "b")]
        with closing(sqlite3.connect(tmp_path / METADATA_NAME)) as other, other:
            other.execute("UPDATE slot SET position = 7 WHERE name = 'a'")
        kit.clock.ms += HELD_MS - 1
        await kit.slots.note()
        assert stored(kit, "b").held_until_ms == kit.clock.ms + HELD_MS
        assert held[0].gone is None
        for one in held:
            await kit.slots.release(one)


TEMPORARY = SlotOptions("headrace", temporary=True)
OWNER, OTHER = 1, 2
"""Sessions."""


async def test_the_end_of_a_session_leaves_a_later_slot_of_that_name(tmp_path: Path) -> None:
    async with opened(tmp_path) as kit:
        bob, eve = (Grant(subject=name, roles=frozenset({Role.REPLICATION})) for name in ("bob", "eve"))
        await kit.slots.create("s", "headrace", TEMPORARY, eve, None, pid=OWNER)
        await kit.slots.drop("s", eve, pid=OWNER)
        await kit.slots.create("s", "headrace", OPTIONS, bob, None, pid=OTHER)
        held = await kit.slots.take("s", bob, OTHER, lambda: None)
        await kit.slots.drop_temporary(OWNER)
        await kit.slots.note()
        assert stored(kit) == held.row
        assert held.gone is None
        await kit.slots.release(held)


async def test_the_end_of_a_session_leaves_what_another_server_made_of_that_name(tmp_path: Path) -> None:
    async with opened(tmp_path) as kit:
        rows = kit.log.metadata.slots
        await kit.slots.create("s", "headrace", TEMPORARY, EVERYTHING, None, pid=OWNER)
        row = stored(kit)._replace(slot_id="another one", holder="another server")
        rows.drop("s")  # its lease had lapsed there
        assert rows.make(row, str(ZERO), kit.clock.ms)
        await kit.slots.note()
        await kit.slots.drop_temporary(OWNER)
        assert stored(kit) == row
        assert len(kit.log.metadata.subscribers()) == 1


async def test_a_temporary_slot_is_its_session_s_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as kit:
        await kit.slots.create("s", "headrace", TEMPORARY, EVERYTHING, None, pid=OWNER)
        (view,) = await kit.slots.all(EVERYTHING)
        assert (view.active, view.active_pid) == (True, OWNER)
        for refused in (
            kit.slots.take("s", EVERYTHING, OTHER, lambda: None),
            kit.slots.drop("s", EVERYTHING, pid=OTHER),
        ):
            with pytest.raises(PgError, match=f"is active for PID {OWNER}") as raised:
                await refused
            assert raised.value.state == "55006"
        held = await kit.slots.take("s", EVERYTHING, OWNER, lambda: None)
        await kit.slots.release(held)
        waiting = asyncio.create_task(kit.slots.drop("s", EVERYTHING, pid=OTHER, wait=True))
        await kit.slots.drop_temporary(OWNER)
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(PgError, match="does not exist"):
                await waiting
        assert kit.log.metadata.slots.all() == []
