"""Tokens and TLS over gRPC at a real server: whose entries a stream carries, and how it ends with its token."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import pytest

from headrace.client.channel import open_channel
from headrace.client.credential import Credential
from headrace.client.http import FeedClient
from headrace.client.log_append import AppendStream, LogAppendClient, Writes, encode_request, stored_of
from headrace.client.wal_stream import WalClient
from headrace.entries.lsn import Lsn
from headrace.errors import Forbidden, InvalidRequest, ServerUnreachable, TokenExposed, Unauthenticated
from headrace.wire.batch import Heartbeat, ReceivedBatch
from headrace.wire.generated import log_pb2
from tests.identity import Issuer
from tests.integration.grpc.conftest import BEATS
from tests.integration.grpc.streams import halves
from tests.secured import SecuredServer, secured
from tests.servers import Feed, changes

FEEDS = {"vmapi::vm": "east", "cnapi::server": "east", "vmapi::image": "west"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    """A server with feeds of two tenants, three entries in each."""
    with secured(tmp_path_factory.mktemp("secured"), Issuer(), args=BEATS) as running:
        for name, tenant in FEEDS.items():
            assert Feed(running, name).register(tenant_id=tenant).status_code == 200
        for number in range(3):
            for name in FEEDS:
                assert Feed(running, name).post({"changes": changes(number)}).status_code == 200
        yield running


async def carried(server: SecuredServer, **claims: object) -> set[str]:
    """The feeds whose entries a stream with these claims carries, all three of each, until it has everything."""
    head = max(feed["newest-lsn"] for feed in server.http.get("/feeds").json()["feeds"])
    found: Counter[str] = Counter()
    async with (
        WalClient(server.grpc_url, token=server.issuer.token(sub=str(claims), **claims)) as wal,
        aclosing(wal.subscribe()) as items,
        asyncio.timeout(60),
    ):
        async for item in items:
            if isinstance(item, Heartbeat):
                assert item.lsn >= Lsn.parse(head), "it says that everything was looked at"
                break
            found.update(entry.key_prefix.split(":", 2)[2].rstrip(":") for entry in item.messages())
    assert set(found.values()) <= {3}
    return set(found)


async def test_stream_carries_what_the_token_is_good_for(server: SecuredServer) -> None:
    wanted: list[tuple[dict[str, Any], set[str]]] = [
        ({}, set(FEEDS)),
        ({"role": "replication", "roles": [], "tenant": "east"}, {"vmapi::vm", "cnapi::server"}),
        ({"role": "replication", "roles": [], "tenant": "west"}, {"vmapi::image"}),
        ({"roles": ["replication"], "tenant": "east", "feeds": ["vmapi::*"]}, {"vmapi::vm"}),
        ({"roles": ["replication"], "tenant": "north"}, set()),
    ]
    found = await asyncio.gather(*(carried(server, **claims) for claims, _ in wanted))
    assert found == [feeds for _, feeds in wanted]


async def test_who_is_sent_nothing_holds_nothing(server: SecuredServer) -> None:
    """A subscriber of a quiet tenant that has acked all it got moves with what the stream has walked."""
    token = server.issuer.token(sub="quiet", roles=["replication"], tenant="west")
    feed = Feed(server, "vmapi::vm")

    def place() -> Lsn:
        (own,) = [
            one for one in server.http.get(feed.path).json()["subscribers"] if one["subject"] == "quiet"
        ]
        return Lsn.parse(own["lsn"])

    async with (
        WalClient(server.grpc_url, token=token) as wal,
        aclosing(wal.subscribe()) as items,
        asyncio.timeout(60),
    ):
        batch = await anext(items)
        assert isinstance(batch, ReceivedBatch)
        newest = Lsn.parse(feed.post({"changes": changes(9)}).json()["last-lsn"])
        assert isinstance(await anext(items), Heartbeat)
        assert place() < batch.last_lsn, "it has acked nothing"
        await wal.ack(batch.last_lsn)
        while place() < newest:
            assert isinstance(await anext(items), Heartbeat)
        with pytest.raises(InvalidRequest):
            await wal.ack(Lsn(newest.global_ts + 1, newest.region_id, newest.raft_index + 1))


async def sent(appends: LogAppendClient, stream: AppendStream) -> None:
    """Send on a stream that has ended; a write that meets the end does not know why, and a new stream does."""
    try:
        await (await stream.send(halves(3, 3)))
    except ServerUnreachable:
        again = appends.append_stream(Writes("vmapi::image", "agent-1"))
        await (await again.send(halves(3, 3)))


async def test_streams_end_with_their_token(server: SecuredServer) -> None:
    """What was read by then is answered."""
    ends = int(time.time()) + 6
    reader = server.issuer.token(sub="ends", roles=["replication"], tenant="east", exp=ends)
    writer = server.issuer.token(roles=["publisher"], feeds=["vmapi::*"], exp=ends)
    async with (
        WalClient(server.grpc_url, token=reader) as wal,
        LogAppendClient(server.grpc_url, token=writer) as appends,
        asyncio.timeout(60),
    ):
        stream = appends.append_stream(Writes("vmapi::image", "agent-1"))
        stored = await (await stream.send(halves(1, 2)))
        assert stored.last_sequence_id == stored.first_sequence_id + 1
        with pytest.raises(Unauthenticated, match="expired"):
            async for _ in wal.subscribe():
                pass
        with pytest.raises(Unauthenticated):
            await sent(appends, stream)
        with pytest.raises(Unauthenticated):
            await appends.tail("vmapi::vm")


async def test_stream_of_appends_checks_each_feed_and_answers_those_before(server: SecuredServer) -> None:
    token = server.issuer.token(roles=["publisher"], feeds=["cnapi::*"])
    good = encode_request(Writes("cnapi::server", "agent-1"), halves(1, 1))
    bad = encode_request(Writes("vmapi::vm", "agent-1"), halves(1, 1))
    async with open_channel(server.grpc_url) as channel, asyncio.timeout(60):
        metadata = Credential(token).metadata()
        call = channel.stream_stream("/headrace.log.v1.LogAppend/AppendStream")(metadata=metadata)
        for request in (good, good, bad):
            await call.write(request)
        assert [stored_of(log_pb2.AppendResponse.FromString(await call.read())).duplicate for _ in "ab"] == [
            False
        ] * 2
        assert await call.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_our_clients_speak_tls_and_bear_their_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with secured(tmp_path, Issuer(), tls=True) as server:
        assert server.authority is not None
        token = tmp_path / "token"
        token.write_text(server.issuer.token())
        async with WalClient(server.grpc_url, token="x") as stranger:
            with pytest.raises(ServerUnreachable):
                await stranger.bounds()
        monkeypatch.setenv("HEADRACE_TLS_CA", str(server.authority.file))
        credential = Credential.of_file(token)
        async with (
            FeedClient(server.url, token=credential) as http,
            LogAppendClient(server.grpc_url, token=credential) as appends,
            WalClient(server.grpc_url, token=credential) as wal,
        ):
            await http.register_publisher("agent-1", "tls::feed")
            stored = await appends.append(Writes("tls::feed", "agent-1"), halves(1, 3))
            assert await wal.bounds() == (stored.last_lsn, stored.first_lsn)
            token.write_text(server.issuer.token(roles=["listener"], feeds=["*"]))
            with pytest.raises(Forbidden):
                await wal.bounds()
        async with WalClient(server.grpc_address, token=credential) as plain:
            with pytest.raises(ServerUnreachable):
                await plain.bounds()


def test_token_is_not_sent_in_clear_to_another_machine() -> None:
    for kind in (WalClient, LogAppendClient):
        with pytest.raises(TokenExposed):
            kind("db.example:8471", token="secret")
