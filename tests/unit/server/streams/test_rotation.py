"""A rotation that is asked for reaches a subscriber that is far behind: it need not catch up first."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

from headrace.log.log import Log
from headrace.server.streams.subscriptions import Subscriber, Subscriptions
from headrace.server.streams.terms import StreamTerms
from headrace.wire.batch import Batch, Heartbeat
from tests.bench import append, register


async def test_a_stream_that_is_never_idle_is_told_between_two_batches(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    subscriptions = Subscriptions(log, terms=StreamTerms(heartbeat_s=600.0, batch_entries=1))
    await log.start()
    await subscriptions.start()
    try:
        await log.register(register("a"))
        for number in range(3):
            await log.append(append("a", str(number)))
        who = Subscriber("anonymous", "backup")
        async with aclosing(subscriptions.subscribe(who)) as items, asyncio.timeout(60):
            first = await anext(items)
            assert isinstance(first, Batch)
            subscriptions.rotate()
            assert await anext(items) == Heartbeat(first.last_lsn, rotate=True)
            for _ in range(2):
                assert isinstance(await anext(items), Batch)
    finally:
        await subscriptions.close()
        await log.close()
