"""Subscribers of several servers on one database: a watermark never tells more than all of them have acked."""

from __future__ import annotations

from contextlib import aclosing

from headrace.entries.lsn import Lsn
from headrace.log.log import Log
from headrace.log.opening import damaged_rows_of_address, parse_store
from headrace.server.streams.subscriptions import Ask, Subscriber, Subscriptions
from headrace.wire.batch import Batch
from tests.bench import append, register
from tests.integration.store_postgres.shared import started
from tests.postgres import Database

ONE, TWO = Subscriber("anonymous", "one"), Subscriber("anonymous", "two")


async def subscribed(log: Log) -> Subscriptions:
    found = Subscriptions(log)
    await found.start()
    return found


async def test_a_watermark_counts_who_began_at_another_server_at_once(database: Database) -> None:
    async with started(database.dsn) as log, started(database.dsn) as other:
        await log.register(register("f"))
        lsns = [(await log.append(append("f", f"{number}"))).last_lsn for number in range(9)]
        here, there = await subscribed(log), await subscribed(other)
        async with aclosing(here.subscribe(ONE, Ask(start=lsns[3]))) as items:
            await anext(items)
            assert await here.ack(ONE, lsns[5]) == lsns[5]
            await other.refresh()
            async with aclosing(there.subscribe(TWO, Ask(start=lsns[1]))) as others:
                await anext(others)
                assert await here.ack(ONE, lsns[6]) == Lsn.from_int(int(lsns[1]) - 1)
                assert await there.ack(TWO, lsns[2]) == lsns[2]
                assert await here.ack(ONE, lsns[7]) <= lsns[2]
        await there.close()
        await here.close()


async def test_a_row_that_log_repair_removes_beside_a_server_comes_back(database: Database) -> None:
    async with started(database.dsn) as log:
        await log.register(register("f"))
        for number in range(9):
            await log.append(append("f", f"{number}"))
        here = await subscribed(log)
        async with aclosing(here.subscribe(ONE, Ask(entries_max=1))) as items:
            batches = [await anext(items) for _ in range(3)]
            lsns = [batch.last_lsn for batch in batches if isinstance(batch, Batch)]
            await here.ack(ONE, lsns[0])
            database.sql("UPDATE headrace_log.subscriber SET seen_at_ms = seen_at_ms + 1")
            assert len(damaged_rows_of_address(parse_store(database.dsn), remove=True)) == 1
            assert log.metadata.subscribers() == []
            (held,) = log.present_subscribers()
            assert held.lsn == str(lsns[0])
            assert await here.ack(ONE, lsns[2]) == lsns[2]
            assert [row.lsn for row in log.metadata.subscribers()] == [str(lsns[2])]
        await here.close()
