"""A subscription where nothing comes for it, at a real server: it holds nothing back, and a start by time stays one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest

from headrace.client.wal_stream import EVERYTHING, StreamFilter, WalClient
from headrace.client.wal_subscription import WalSubscription
from headrace.entries.lsn import ZERO
from headrace.runtime.backoff import Backoff
from headrace.wire.batch import Heartbeat
from tests.integration.grpc.conftest import registered
from tests.integration.grpc.streams import WAIT_S_MAX
from tests.servers import ServerProcess, changes, serving
from tests.waiting import async_wait_until

SOON = partial(Backoff, 0.01, 0.3)
HOUR_MS = 3_600_000


@pytest.fixture
def beating(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with a heartbeat that a test can wait for."""
    with serving(tmp_path / "server", grpc=True, args=["--stream-heartbeat", "200ms"]) as running:
        yield running
    assert "Traceback" not in running.errors()


async def test_who_gets_nothing_holds_nothing_back(beating: ServerProcess) -> None:
    """Also one that begins above its stored place, of which the server alone can not know that it has the rest."""
    feed = registered(beating)
    assert feed.post({"changes": changes(1)}).status_code == 200
    nothing = StreamFilter(key_prefix="of nobody:")
    async with (
        asyncio.timeout(2 * WAIT_S_MAX),
        WalClient(beating.grpc_address, subscriber_id="quiet") as wal,
    ):
        async with WalSubscription(wal, ack="manual") as stream, aclosing(stream.batches()) as batches:
            first = (await anext(batches)).first_lsn
        stored = await wal.place()
        assert stored is None or stored < first
        assert feed.post({"changes": changes(2)}).status_code == 200
        head, _ = await wal.bounds()
        async with (
            WalSubscription(wal, head, only=nothing) as stream,
            aclosing(stream.batches()) as batches,
        ):
            reading = asyncio.ensure_future(anext(batches))

            async def is_at_head() -> bool:
                return await wal.place() == (await wal.bounds())[0]

            await async_wait_until(is_at_head, WAIT_S_MAX)
            assert feed.post({"changes": changes(3)}).status_code == 200
            await async_wait_until(is_at_head, WAIT_S_MAX)
            assert stream.acked is not None
            assert stream.ack_error is None
            reading.cancel()
            await asyncio.wait({reading})


@pytest.mark.parametrize("only", [EVERYTHING, StreamFilter(tenant="default")], ids=["all", "one tenant"])
async def test_a_start_by_time_gives_nothing_older_after_a_reconnect(
    beating: ServerProcess, only: StreamFilter
) -> None:
    feed = registered(beating)
    assert feed.post({"changes": changes(1)}).status_code == 200
    to_come = int(time.time() * 1000) + HOUR_MS
    beats = 0
    async with (
        asyncio.timeout(2 * WAIT_S_MAX),
        WalClient(beating.grpc_address, subscriber_id="later") as wal,
        WalSubscription(wal, start_time_ms=to_come, only=only, backoff=SOON) as stream,
        aclosing(stream.items()) as items,
    ):
        async for item in items:
            assert isinstance(item, Heartbeat), "what comes was committed before that time"
            assert item.lsn > ZERO
            beats += 1
            if beats == 2:
                await asyncio.to_thread(beating.restart)
                assert (await asyncio.to_thread(feed.post, {"changes": changes(2)})).status_code == 200
            if beats == 4:
                break
