"""The stream over all feeds: complete and in order from any start, live at once, bounded batches, heartbeats, clear ends."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import grpc
import pytest

from headrace.client.channel import open_channel
from headrace.client.log_append import LogAppendClient
from headrace.client.wal_stream import WalClient
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import BeyondHead, InvalidRequest, Unavailable
from headrace.wire.batch import Heartbeat
from headrace.wire.generated import wal_pb2
from tests.integration.grpc.conftest import registered
from tests.integration.grpc.streams import WAIT_S_MAX, entries_of, halves, next_batch, read_until, writes
from tests.servers import Feed, ServerProcess

BATCH_BYTES_MAX = 3 << 20


async def test_from_the_oldest_from_the_middle_and_from_the_head(
    appender: LogAppendClient, wal: WalClient, feed: Feed
) -> None:
    for number in range(1, 60, 3):
        await appender.append(writes(feed), halves(number, number + 2))
    stored = [entry["lsn"] for entry in feed.entries()]
    head, oldest = await wal.bounds()
    assert str(head) == stored[-1]
    everything = await read_until(wal, None, head)
    assert [entry.lsn for entry in entries_of(everything, feed)] == stored
    assert everything[0].first_lsn == oldest
    for at in (0, 1, 30, 58, 59):
        batches = await read_until(wal, Lsn.parse(stored[at]), head)
        assert [entry.lsn for entry in entries_of(batches, feed)] == stored[at:]
        assert str(batches[0].first_lsn) == stored[at]


async def test_batches_keep_within_their_bounds_and_positions_grow(
    appender: LogAppendClient, wal: WalClient, feed: Feed
) -> None:
    stored = await appender.append(writes(feed), halves(1, 2500))
    large = await appender.append(writes(feed), halves(2501, 2508, value=b" " * 1_000_000))
    batches = await read_until(wal, stored.first_lsn, large.last_lsn)
    assert [entry.key for entry in entries_of(batches, feed)] == [
        b"key-%d" % number for number in range(1, 2509)
    ]
    assert [len(batch.sizes) for batch in batches][:2] == [1000, 1000]
    for batch in batches:
        assert len(batch.sizes) <= 1000
        assert len(batch.body) <= BATCH_BYTES_MAX
    places = [
        place for batch in batches for place in dict.fromkeys((batch.first_position, batch.last_position))
    ]
    assert places == sorted(places)
    assert len(set(places)) == len(places)
    few = await read_until(wal, stored.first_lsn, stored.last_lsn, batch_entries=7)
    assert {len(batch.sizes) for batch in few[:-1]} == {7}


async def test_each_feeds_incarnation_is_said_where_the_stream_first_meets_it(
    appender: LogAppendClient, wal: WalClient, server: ServerProcess
) -> None:
    one, two = registered(server), registered(server)
    first = await appender.append(writes(one), halves(1, 1))
    ends = [await appender.append(writes(feed), halves(1, 1)) for feed in (two, one, two)]
    batches = await read_until(wal, first.first_lsn, ends[-1].last_lsn, batch_entries=1)
    said = [batch.incarnations for batch in batches[:4]]
    assert said == [
        {first.first_lsn.region_id: first.incarnation},
        {ends[0].first_lsn.region_id: ends[0].incarnation},
        {},
        {},
    ]


async def test_new_entries_come_at_once_and_registrations_between_are_no_entries(
    appender: LogAppendClient, wal: WalClient, feed: Feed
) -> None:
    start = await appender.append(writes(feed), halves(1, 1))
    async with aclosing(wal.subscribe(start.last_lsn)) as items:
        assert (await next_batch(items)).last_lsn == start.last_lsn
        for number in range(2, 12):
            feed.register(instance=f"instance-{number}")
            stored = await appender.append(writes(feed), halves(number, number))
            batch = await next_batch(items)
            assert (batch.first_lsn, batch.last_lsn, len(batch.sizes)) == (
                stored.first_lsn,
                stored.last_lsn,
                1,
            )


async def test_an_idle_stream_beats_with_what_it_has_sent(
    appender: LogAppendClient, wal: WalClient, feed: Feed
) -> None:
    stored = await appender.append(writes(feed), halves(1, 3))
    async with asyncio.timeout(WAIT_S_MAX), aclosing(wal.subscribe(stored.last_lsn)) as items:
        await next_batch(items)
        feed.register(instance="another")
        heartbeat = await anext(items)
        assert heartbeat == Heartbeat(stored.last_lsn)


async def test_an_empty_log_is_at_zero_and_its_first_entry_arrives(own: ServerProcess) -> None:
    feed = registered(own)
    async with WalClient(own.grpc_address) as wal, LogAppendClient(own.grpc_address) as appender:
        assert await wal.bounds() == (ZERO, ZERO)
        async with asyncio.timeout(WAIT_S_MAX), aclosing(wal.subscribe()) as items:
            waiting = asyncio.create_task(anext(items))
            assert await waiting == Heartbeat(ZERO)
            stored = await appender.append(writes(feed), halves(1, 1))
            assert (await next_batch(items)).first_lsn == stored.first_lsn
        assert await wal.bounds() == (stored.last_lsn, stored.first_lsn)


async def test_lengths_are_sent_to_who_asks_for_them_only(
    appender: LogAppendClient, server: ServerProcess, feed: Feed
) -> None:
    stored = await appender.append(writes(feed), halves(1, 3))
    async with open_channel(server.grpc_address) as channel:
        for wanted in (True, False):
            ask = wal_pb2.SubscribeRequest(start_lsn=str(stored.first_lsn), want_lengths=wanted)
            call = channel.unary_stream("/kdb.wal.v1.WalStream/Subscribe")(ask.SerializeToString())
            batch = wal_pb2.WalResponse.FromString(await call.read()).batch
            call.cancel()
            assert (len(batch.entry_lengths) == 4 * len(batch.entries)) is wanted
            assert batch.compression == wal_pb2.NONE


@pytest.mark.parametrize(
    "ask",
    [
        wal_pb2.SubscribeRequest(start_lsn="nonsense"),
        wal_pb2.SubscribeRequest(start_lsn="1.2.99999999999"),
        wal_pb2.SubscribeRequest(start_lsn="1.2.3", start_time_ms=1),
        wal_pb2.SubscribeRequest(start_time_ms=1 << 46),
        wal_pb2.SubscribeRequest(tenant_filter="a b"),
        wal_pb2.SubscribeRequest(key_prefix_filter="k" * 4097),
        wal_pb2.SubscribeRequest(shard="9/8"),
        None,
    ],
    ids=[
        "no lsn",
        "large part",
        "two starts",
        "no time",
        "no tenant",
        "long prefix",
        "no shard",
        "no message",
    ],
)
async def test_what_is_no_subscription_is_refused(
    server: ServerProcess, ask: wal_pb2.SubscribeRequest | None
) -> None:
    async with open_channel(server.grpc_address) as channel:
        data = ask.SerializeToString() if ask is not None else b"\xff\xff"
        call = channel.unary_stream("/kdb.wal.v1.WalStream/Subscribe")(data)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert dict(caught.value.trailing_metadata() or ())["headrace-code"] == "invalid-request"
        assert caught.value.details()


async def test_a_start_beyond_the_head_is_told(wal: WalClient, feed: Feed) -> None:
    feed.post({"changes": {}})
    with pytest.raises(BeyondHead, match="beyond_head"):
        await read_until(wal, Lsn(1 << 63, 1, 1), ZERO)


async def test_unpadded_lsns_are_taken(appender: LogAppendClient, server: ServerProcess, feed: Feed) -> None:
    lsn = (await appender.append(writes(feed), halves(1, 1))).first_lsn
    async with open_channel(server.grpc_address) as channel:
        ask = wal_pb2.SubscribeRequest(start_lsn=f"{lsn.global_ts:x}.{lsn.region_id}.{lsn.raft_index}")
        call = channel.unary_stream("/kdb.wal.v1.WalStream/Subscribe")(ask.SerializeToString())
        assert wal_pb2.WalResponse.FromString(await call.read()).batch.first_lsn == str(lsn)
        call.cancel()


async def test_a_server_that_stops_ends_its_streams(own: ServerProcess) -> None:
    feed = registered(own)
    feed.post({"changes": {}})
    async with WalClient(own.grpc_address) as wal:
        items = wal.subscribe()
        await next_batch(items)
        waiting = asyncio.create_task(anext(items))
        assert await asyncio.to_thread(own.stop) == 0
        with pytest.raises(Unavailable, match="stopping"):
            await waiting


async def test_a_subscriber_that_takes_nothing_does_not_hold_up_the_stop(own: ServerProcess) -> None:
    feed = registered(own)
    async with LogAppendClient(own.grpc_address) as appender, open_channel(own.grpc_address) as channel:
        for number in range(12):
            await appender.append(writes(feed), halves(number, number + 4, value=b" " * 900_000))
        call = channel.unary_stream("/kdb.wal.v1.WalStream/Subscribe")(b"")
        assert await call.read()
        assert await asyncio.to_thread(own.stop) == 0


async def test_a_name_that_is_none_is_refused(server: ServerProcess) -> None:
    async with WalClient(server.grpc_address, subscriber_id="a b") as wal:
        with pytest.raises(InvalidRequest, match="subscriber-id"):
            await wal.ack(ZERO)
