"""A slot's lease at several servers of one store: who has it moves it, and who has lost it moves it no more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.access.grants import EVERYTHING
from headrace.entries.lsn import ZERO
from headrace.log.log import Log
from headrace.server.pg.slot_views import SlotOptions
from headrace.server.pg.slots import HELD_MS, Slots
from headrace.server.pg.sqlstate import PgError
from headrace.server.pg.terms import PgTerms
from headrace.testing.clock import ManualClock
from tests.integration.store_postgres.shared import started
from tests.pg import create_slot, numbers, registered, replicating, serving_pg, slot_row
from tests.postgres import Database
from tests.waiting import async_wait_until, wait_until


class Server(NamedTuple):
    log: Log
    slots: Slots
    clock: ManualClock


@asynccontextmanager
async def server(database: Database, ms: int | None = None) -> AsyncIterator[Server]:
    """The slots of one more server; its clock is set by hand."""
    async with started(database.dsn) as log:
        clock = ManualClock() if ms is None else ManualClock(ms)
        slots = Slots(log, clock, PgTerms())
        await slots.start()
        yield Server(log, slots, clock)
        await slots.close()


def position_of(one: Server) -> int:
    row = one.log.metadata.slots.one("s")
    assert row is not None
    return row.position


async def test_a_server_whose_lease_has_lapsed_moves_the_slot_no_more(database: Database) -> None:
    async with server(database) as one, server(database) as two:
        ended = asyncio.Event()
        await one.slots.create("s", "headrace", SlotOptions("headrace"), EVERYTHING, None)
        old = await one.slots.take("s", EVERYTHING, 1, ended.set)
        two.clock.ms += HELD_MS - 1
        with pytest.raises(PgError, match="another server"):
            await two.slots.take("s", EVERYTHING, 2, lambda: None)
        two.clock.ms += 1
        new = await two.slots.take("s", EVERYTHING, 2, lambda: None)
        begin = new.position
        one.slots.confirm(old, begin + 1_000, ZERO)
        await async_wait_until(ended.is_set, what="the stream at the old server to end")
        assert position_of(two) == begin
        two.slots.confirm(new, begin + 10, ZERO)
        await two.slots.settle()
        await one.slots.release(old)
        assert position_of(one) == begin + 10
        with pytest.raises(PgError, match="another server"):
            await one.slots.take("s", EVERYTHING, 1, lambda: None)
        await two.slots.release(new)
        back = await one.slots.take("s", EVERYTHING, 1, lambda: None)
        assert back.position == begin + 10
        await one.slots.release(back)


async def test_whoever_waits_to_drop_waits_for_other_servers_too(database: Database) -> None:
    async with server(database) as one, server(database) as two:
        await one.slots.create("s", "headrace", SlotOptions("headrace"), EVERYTHING, None)
        held = await one.slots.take("s", EVERYTHING, 1, lambda: None)
        with pytest.raises(PgError, match="another server"):
            await two.slots.drop("s", EVERYTHING)
        dropping = asyncio.create_task(two.slots.drop("s", EVERYTHING, wait=True))
        await one.slots.note()
        assert position_of(two) == held.position
        await one.slots.release(held)
        await asyncio.wait_for(dropping, 30)
        assert one.log.metadata.slots.one("s") is None


async def test_a_slot_of_a_server_that_was_killed_goes_on_where_it_was(
    database: Database, tmp_path: Path
) -> None:
    with serving_pg(tmp_path, "--store", database.dsn) as killed:
        feed = registered(killed, "f")
        create_slot(killed, "s")
        numbers(feed, 1, 2)
        connection = replicating(killed)
        with connection.cursor() as cursor:
            cursor.start_replication(slot_name="s", decode=True)
            last = [wait_until(cursor.read_message, what="a record") for _ in range(2)][-1].data_start
            cursor.send_feedback(flush_lsn=last, force=True)
            kept = f"{last >> 32:X}/{last & 0xFFFFFFFF:X}"
            wait_until(lambda: slot_row(killed, "s")["confirmed_flush_lsn"] == kept, what="it to be kept")
            killed.kill()
    async with server(database, time.time_ns() // 1_000_000) as other:
        with pytest.raises(PgError, match="another server"):
            await other.slots.take("s", EVERYTHING, 1, lambda: None)
        other.clock.ms += HELD_MS
        held = await other.slots.take("s", EVERYTHING, 1, lambda: None)
        assert held.position == last
        await other.slots.release(held)
