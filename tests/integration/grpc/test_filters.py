"""What a stream carries of what its token allows: by tenant, by the start of the name, by share, from a time on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import google_crc32c
import grpc
import pytest

from headrace.client.channel import Caller
from headrace.client.wal_stream import WalClient
from headrace.entries.lsn import Lsn
from headrace.wire.generated import wal_pb2
from tests.identity import Issuer
from tests.secured import SecuredServer, secured
from tests.servers import Feed, changes

FEEDS = {"vmapi::vm": "east", "cnapi::server": "east", "vmapi::image": "west"}
ROUNDS = 8
SUBSCRIBE = "/kdb.wal.v1.WalStream/Subscribe"
REPLICATION: dict[str, Any] = {"roles": ["replication"]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    """A server with feeds of two tenants, entries of which take turns; heartbeats come soon."""
    with secured(
        tmp_path_factory.mktemp("secured"), Issuer(), args=["--stream-heartbeat", "200ms"]
    ) as running:
        for name, tenant in FEEDS.items():
            assert Feed(running, name).register(tenant_id=tenant).status_code == 200
        for number in range(ROUNDS):
            for name in FEEDS:
                posted = [{"key": f"k{number}-{one}", "changes": changes(one)} for one in range(3)]
                assert Feed(running, name).post(*posted).status_code == 200
        yield running


@asynccontextmanager
async def stream(server: SecuredServer, claims: dict[str, Any], **asked: Any) -> AsyncIterator[Any]:
    caller = Caller(server.grpc_url, token=server.issuer.token(sub=str([claims, asked]), **claims))
    request = wal_pb2.SubscribeRequest(**asked).SerializeToString()
    try:
        yield caller.channel.unary_stream(SUBSCRIBE)(request, metadata=caller.metadata())
    finally:
        await caller.channel.close()


async def carried(server: SecuredServer, claims: dict[str, Any], **asked: Any) -> list[wal_pb2.WalEntry]:
    """The entries of a stream up to the heartbeat that says that everything was looked at."""
    head = max(feed["newest-lsn"] for feed in server.http.get("/feeds").json()["feeds"])
    found: list[wal_pb2.WalEntry] = []
    async with stream(server, claims, **asked) as call, asyncio.timeout(60):
        while True:
            answer = wal_pb2.WalResponse.FromString(await call.read())
            assert not answer.error
            if answer.HasField("heartbeat"):
                assert Lsn.parse(answer.heartbeat.current_lsn) >= Lsn.parse(head)
                break
            found += answer.batch.entries
    assert [entry.lsn for entry in found] == sorted({entry.lsn for entry in found})
    return found


def names(entries: list[wal_pb2.WalEntry]) -> list[tuple[str, bytes]]:
    return [(entry.key_prefix, entry.key) for entry in entries]


async def test_each_filter_takes_away_exactly_the_others(server: SecuredServer) -> None:
    everything = await carried(server, {})
    assert len(everything) == 3 * 3 * ROUNDS
    wanted: list[tuple[dict[str, Any], Callable[[wal_pb2.WalEntry], bool]]] = [
        ({"tenant_filter": "east"}, lambda one: one.tenant_id == "east"),
        ({"tenant_filter": "nobody"}, lambda one: False),
        ({"key_prefix_filter": "local:west:"}, lambda one: one.tenant_id == "west"),
        (
            {"key_prefix_filter": "local:east:vmapi::vm:k3"},
            lambda one: one.key_prefix == "local:east:vmapi::vm:" and one.key.startswith(b"k3"),
        ),
        ({"shard": "2/3"}, lambda one: google_crc32c.value(one.key) % 3 == 1),
        (
            {"tenant_filter": "east", "shard": "1/2", "key_prefix_filter": "local:east:c"},
            lambda one: (
                one.key_prefix == "local:east:cnapi::server:" and not google_crc32c.value(one.key) % 2
            ),
        ),
    ]
    for asked, passes in wanted:
        found = await carried(server, {}, **asked)
        assert names(found) == names([one for one in everything if passes(one)]), asked
        assert [one.SerializeToString() for one in found] == [
            one.SerializeToString() for one in everything if passes(one)
        ]


async def test_a_stream_from_a_time_on_has_what_was_committed_then_or_later(server: SecuredServer) -> None:
    everything = await carried(server, {})
    for time_ms in {
        everything[0].committed_at_ms,
        everything[30].committed_at_ms,
        everything[-1].committed_at_ms,
    }:
        found = await carried(server, {}, start_time_ms=time_ms)
        assert names(found) == names([one for one in everything if one.committed_at_ms >= time_ms])
    assert await carried(server, {}, start_time_ms=everything[-1].committed_at_ms + 1) == []


async def test_a_filter_never_widens_a_token(server: SecuredServer) -> None:
    east = {**REPLICATION, "tenant": "east"}
    own = names(await carried(server, east))
    assert {prefix for prefix, _ in own} == {"local:east:vmapi::vm:", "local:east:cnapi::server:"}
    assert names(await carried(server, east, tenant_filter="east")) == own
    assert await carried(server, east, key_prefix_filter="local:west:") == []
    async with stream(server, east, tenant_filter="west") as call:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED


async def test_a_quiet_filtered_subscriber_holds_nothing_back(server: SecuredServer) -> None:
    """Nothing passes its filter, so it has nothing to ack; its place follows what was looked at all the same."""
    feed = Feed(server, "vmapi::vm")
    claims = {**REPLICATION, "tenant": "east"}
    async with stream(server, claims, key_prefix_filter="local:east:none") as call, asyncio.timeout(60):
        subject = str([claims, {"key_prefix_filter": "local:east:none"}])
        while True:
            answer = wal_pb2.WalResponse.FromString(await call.read())
            posted = feed.post({"changes": changes(1)}).json()
            own = [
                one for one in server.http.get(feed.path).json()["subscribers"] if one["subject"] == subject
            ]
            if own and Lsn.parse(own[0]["lsn"]) >= Lsn.parse(answer.heartbeat.current_lsn) > Lsn(0, 0, 0):
                break
        assert posted


async def test_an_entry_reaches_an_idle_filtered_stream_at_once(server: SecuredServer) -> None:
    async with (
        WalClient(server.grpc_url, token=server.issuer.token(sub="idle")) as wal,
        stream(server, {}, start_lsn=str((await wal.bounds())[0]), key_prefix_filter="local:west:") as call,
        asyncio.timeout(60),
    ):
        reading = asyncio.create_task(_first_batch(call))
        feed = Feed(server, "vmapi::image")
        while not reading.done():
            assert feed.post({"key": "late", "changes": changes(1)}).status_code == 200
            await asyncio.wait({reading}, timeout=1)
        assert (await reading).entries[-1].tenant_id == "west"


async def _first_batch(call: Any) -> wal_pb2.WalBatch:
    while True:
        answer = wal_pb2.WalResponse.FromString(await call.read())
        if answer.HasField("batch"):
            return answer.batch
