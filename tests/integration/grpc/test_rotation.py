"""``Heartbeat.rotate``: who writes files begins a new one, acks the old one, and lets go of what retention is to drop."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

from headrace.client.log_append import LogAppendClient
from headrace.client.wal_stream import WalClient
from headrace.entries.lsn import Lsn
from headrace.wire.batch import Heartbeat, ReceivedBatch
from tests import forks
from tests.integration.grpc.conftest import registered
from tests.integration.grpc.streams import WAIT_S_MAX, halves, next_batch, writes
from tests.postgres import Cluster
from tests.servers import ServerProcess, serving
from tests.stores import database_of
from tests.waiting import async_wait_until

ARGS = ("--retention", "1s", "--retention-every", "100ms", "--stream-heartbeat", "1h")


async def test_a_subscriber_that_holds_is_told_to_rotate_acks_and_the_segment_goes(tmp_path: Path) -> None:
    """It acks whole files only, so without a word from the server what it has read would stay for as long as it is quiet."""
    with serving(tmp_path / "server", args=ARGS, grpc=True) as server:
        feed = registered(server)
        async with (
            LogAppendClient(server.grpc_address) as appender,
            WalClient(server.grpc_address, subscriber_id="backup") as wal,
            asyncio.timeout(WAIT_S_MAX),
        ):
            stored = await appender.append(writes(feed), halves(1, 10))
            async with aclosing(wal.subscribe(None)) as items:
                held = Lsn(0, 0, 0)
                async for item in items:
                    if isinstance(item, ReceivedBatch):
                        held = item.last_lsn
                    elif item.rotate:
                        break
                assert held == stored.last_lsn
                view = (await asyncio.to_thread(server.http.get, feed.path)).json()
                assert view["oldest-sequence-id"] == 1, "it holds what it has read and not acked"
                await wal.ack(held)

                async def is_gone() -> bool:
                    found = (await asyncio.to_thread(server.http.get, feed.path)).json()
                    return bool(found["oldest-sequence-id"] == 11)

                await async_wait_until(is_gone, WAIT_S_MAX, what="the segment to be dropped")
        assert "Traceback" not in server.errors()


def rotate(server: ServerProcess, *words: str) -> str:
    """What ``headrace wal rotate`` prints."""
    command = [*forks.HEADRACE, "wal", "rotate", "--server", server.url, *words]
    return forks.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


async def test_an_operator_asks_every_open_stream_of_a_server(tmp_path: Path) -> None:
    with serving(tmp_path / "server", args=["--stream-heartbeat", "1h"], grpc=True) as server:
        assert await asyncio.to_thread(rotate, server) == "no stream is open\n"
        feed = registered(server)
        async with (
            LogAppendClient(server.grpc_address) as appender,
            WalClient(server.grpc_address, subscriber_id="one") as one,
            WalClient(server.grpc_address, subscriber_id="two") as two,
            asyncio.timeout(WAIT_S_MAX),
        ):
            stored = await appender.append(writes(feed), halves(1, 1))
            async with aclosing(one.subscribe(None)) as first, aclosing(two.subscribe(None)) as second:
                for items in (first, second):
                    await next_batch(items)
                assert json.loads(await asyncio.to_thread(rotate, server, "--json")) == {"streams": 2}
                for items in (first, second):
                    assert await anext(items) == Heartbeat(stored.last_lsn, rotate=True)
                said = await asyncio.to_thread(rotate, server)
                assert said == "the subscribers of 2 streams were asked to begin a new file\n"
        assert "Traceback" not in server.errors()


def test_without_grpc_there_are_no_streams(tmp_path: Path) -> None:
    with serving(tmp_path / "server") as server:
        assert server.http.post("/streams/rotate").json() == {"streams": 0}


async def test_streams_of_another_server_on_the_store_are_not_reached(
    cluster: Cluster, tmp_path: Path
) -> None:
    store = ["--store", database_of(cluster, tmp_path)]
    with (
        serving(tmp_path / "near", args=store, grpc=True) as near,
        serving(tmp_path / "far", args=store, grpc=True) as far,
    ):
        feed = registered(far)
        assert feed.post({"changes": {}}).status_code == 200
        async with (
            WalClient(far.grpc_address) as wal,
            aclosing(wal.subscribe(None)) as items,
        ):
            await next_batch(items)
            asked = [server.http.post("/streams/rotate").json()["streams"] for server in (near, far)]
        assert asked == [0, 1]
