"""A subscription at a real server: over kills, ends of tokens and restarts of the consumer, filtered and compressed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from headrace.client.log_append import LogAppendClient
from headrace.client.wal_acks import AckEvery
from headrace.client.wal_columns import record_batch
from headrace.client.wal_stream import StreamFilter, WalClient
from headrace.client.wal_subscription import Transfer, WalSubscription
from headrace.entries.entry import Change, Op
from headrace.entries.lsn import Lsn
from headrace.errors import Unauthenticated
from headrace.runtime.backoff import Backoff
from headrace.wire.batch import ReceivedBatch
from headrace.wire.entry import encode_half
from headrace.wire.generated import wal_pb2
from tests.identity import Issuer
from tests.integration.grpc.conftest import registered
from tests.integration.grpc.streams import WAIT_S_MAX, halves, writes
from tests.integration.grpc.test_restarts import PRODUCERS, produce
from tests.scale import scaled, sized
from tests.secured import SecuredServer, secured
from tests.servers import Feed, ServerProcess, changes
from tests.waiting import async_wait_until

SOON = partial(Backoff, 0.01, 0.3)


@pytest_asyncio.fixture
async def stored(appender: LogAppendClient, feed: Feed) -> AsyncIterator[tuple[Lsn, Lsn]]:
    """A feed with 1,200 entries of some size, as (first LSN, last LSN)."""
    ends = [
        await appender.append(writes(feed), halves(at, at + 99, value=b"text " * 60))
        for at in range(1, 1200, 100)
    ]
    yield ends[0].first_lsn, ends[-1].last_lsn


async def batches_of(server: ServerProcess, last: Lsn, start: Lsn, **given: Any) -> list[ReceivedBatch]:
    """What a subscription gives up to ``last``."""
    found: list[ReceivedBatch] = []
    transfer = Transfer(**given)
    async with (
        asyncio.timeout(WAIT_S_MAX),
        WalClient(server.grpc_address, subscriber_id="reader") as wal,
        WalSubscription(wal, start, transfer=transfer) as stream,
        aclosing(stream.batches()) as items,
    ):
        async for item in items:
            found.append(item)
            if item.last_lsn >= last:
                return found
    raise AssertionError("the stream ended")


@pytest.mark.parametrize("compression", [("snappy",), ("zstd",), ("snappy", "zstd")])
@pytest.mark.parametrize("want_lengths", [True, False])
async def test_each_compression_carries_the_same(
    server: ServerProcess,
    feed: Feed,
    stored: tuple[Lsn, Lsn],
    compression: tuple[str, ...],
    want_lengths: bool,
) -> None:
    first, last = stored
    plain = await batches_of(server, last, first)
    packed = await batches_of(server, last, first, compression=compression, want_lengths=want_lengths)
    entries = [
        [bytes(entry) for batch in batches for entry in batch.entries()] for batches in (plain, packed)
    ]
    assert entries[0] == entries[1]
    rows = record_batch(packed)
    own = [row for row in rows.to_pylist() if row["key_prefix"].endswith(f":{feed.name}:")]
    assert [row["key"] for row in own] == [b"key-%d" % number for number in range(1, 1201)]
    assert rows.column("lsn")[-1].as_py() == str(last)


async def test_shards_of_a_prefix_add_up(server: ServerProcess, stored: tuple[Lsn, Lsn]) -> None:
    first, _ = stored
    read: list[set[bytes]] = []
    async with WalClient(server.grpc_address, subscriber_id="shards") as wal, asyncio.timeout(WAIT_S_MAX):
        async with aclosing(wal.subscribe(first)) as items:
            one = await anext(items)
            assert isinstance(one, ReceivedBatch)
            prefix = next(one.messages()).key_prefix
        for shard in ("1/2", "2/2"):
            only = StreamFilter(key_prefix=prefix, shard=shard)
            keys: set[bytes] = set()
            async with WalSubscription(wal, first, only=only) as stream, aclosing(stream.items()) as found:
                async for item in found:
                    if not isinstance(item, ReceivedBatch):
                        break
                    keys.update(message.key for message in item.messages())
            read.append(keys)
    assert not read[0] & read[1]
    assert read[0] | read[1] == {b"key-%d" % number for number in range(1, 1201)}
    assert min(map(len, read)) > 300


async def test_a_start_by_time(own: ServerProcess) -> None:
    feed = registered(own)
    feed.post({"changes": changes(1)})
    async with WalClient(own.grpc_address) as wal, asyncio.timeout(WAIT_S_MAX):
        begun_ms = int(time.time() * 1000) - 60_000
        async with (
            WalSubscription(wal, start_time_ms=begun_ms) as stream,
            aclosing(stream.records()) as records,
        ):
            assert (await anext(records)).entry.sequence_id == 1


async def test_batches_are_taken_apart_whole(
    appender: LogAppendClient, server: ServerProcess, feed: Feed
) -> None:
    mutations = [wal_pb2.Mutation(op=wal_pb2.OP_PUT, key=b"%d" % one, value=b"v") for one in range(5)]
    write = wal_pb2.BatchWrite(mutations=mutations).SerializeToString()
    group = encode_half(Change(write, key=b"group", op=Op.BATCH))
    done = await appender.append(writes(feed), [*halves(1, 1), group, *halves(2, 2)])
    async with (
        WalClient(server.grpc_address) as wal,
        asyncio.timeout(WAIT_S_MAX),
        WalSubscription(wal, done.first_lsn) as stream,
        aclosing(stream.records(flatten=True)) as records,
    ):
        found = [await anext(records) for _ in range(7)]
    assert [(one.key, one.index, one.count) for one in found] == [
        (b"key-1", 0, 1),
        *((b"%d" % index, index, 5) for index in range(5)),
        (b"key-2", 0, 1),
    ]
    assert len({one.lsn for one in found[1:6]}) == 1
    assert {one.feed for one in found} == {feed.name}


# -- acks and lives of a consumer ----------------------------------------------------------------------------------------


async def test_a_consumer_that_dies_gets_again_what_it_had_not_acked_and_no_more(
    appender: LogAppendClient, server: ServerProcess, feed: Feed
) -> None:
    done = [await appender.append(writes(feed), halves(number, number)) for number in range(1, 21)]
    own = [one.first_lsn for one in done]
    async with asyncio.timeout(WAIT_S_MAX):
        async with WalClient(server.grpc_address, subscriber_id="mortal") as wal:
            stream = WalSubscription(wal, own[0], ack=AckEvery(entries=4), transfer=Transfer(batch_entries=7))
            await stream.__aenter__()
            records = stream.records()
            for number in range(11):
                assert (await anext(records)).lsn == own[number]
            await async_wait_until(lambda: stream.acked is not None and stream.acked >= own[3], WAIT_S_MAX)
            acked = stream.acked
            assert acked is not None
            assert acked < own[10], "the one in hand is not finished"
            await stream.close(
                within_s=0.0
            )  # as if the process had died: what was finished since is not acked
            await records.aclose()
        async with (
            WalClient(server.grpc_address, subscriber_id="mortal") as wal,
            WalSubscription(wal, after=acked) as stream,
            aclosing(stream.records()) as again,
        ):
            left = own[own.index(acked) + 1 :]
            assert [(await anext(again)).lsn for _ in left] == left
        async with (
            WalClient(server.grpc_address, subscriber_id="mortal") as wal,
            WalSubscription(wal, ack="manual") as stream,
            aclosing(stream.records()) as again,
        ):
            place = await wal.place()
            assert place is not None
            assert place >= acked
            left = own[own.index(place) + 1 :]
            assert [(await anext(again)).lsn for _ in left] == left, "without a start: behind the last ack"


async def test_what_is_finished_is_acked_at_the_server(own: ServerProcess) -> None:
    feed = registered(own)
    async with LogAppendClient(own.grpc_address) as appender:
        done = [await appender.append(writes(feed), halves(number, number)) for number in (1, 2, 3)]
    async with WalClient(own.grpc_address, subscriber_id="only") as wal, asyncio.timeout(WAIT_S_MAX):
        async with (
            WalSubscription(wal, transfer=Transfer(batch_entries=1)) as stream,
            aclosing(stream.batches()) as batches,
        ):
            for _ in range(3):
                await anext(batches)
        assert stream.acked == done[1].last_lsn
        assert await wal.ack(done[0].last_lsn) == done[1].last_lsn, "the least place of all is its own"


# -- kills and tokens ---------------------------------------------------------------------------------------------------


async def test_nothing_is_missed_or_given_twice_over_kills(own: ServerProcess) -> None:
    feeds = [registered(own) for _ in range(PRODUCERS)]
    total, kills = scaled(sized(600, soak=1500)), 3
    wanted = PRODUCERS * total
    read: list[Lsn] = []

    async def subscribe() -> None:
        async with WalClient(own.grpc_address, subscriber_id="one") as wal:
            async with (
                WalSubscription(wal, ack=AckEvery(entries=100, seconds=0.2), backoff=SOON) as stream,
                aclosing(stream.records()) as records,
            ):
                async for record in records:
                    read.append(record.lsn)
                    if len(read) == wanted:
                        break
            assert stream.acked is not None
            assert stream.acked <= read[-1]

    async def kill() -> None:
        for number in range(1, kills + 1):
            due = wanted * number // (kills + 1)
            await async_wait_until(
                partial(lambda due: len(read) >= due, due), 2 * WAIT_S_MAX, what="progress"
            )
            await asyncio.to_thread(own.restart)

    async with asyncio.timeout(2 * WAIT_S_MAX):
        await asyncio.gather(*(produce(own, feed, total) for feed in feeds), subscribe(), kill())
    assert all(one < two for one, two in pairwise(read)), "in order, and none twice"
    stored = {
        Lsn.parse(entry["lsn"])
        for feed in feeds
        for first in range(1, total, 1000)
        for entry in feed.entries(first, first + 999)
    }
    assert stored == set(read)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[SecuredServer]:
    """A server that asks for tokens, with a feed."""
    with secured(tmp_path, Issuer()) as running:
        assert Feed(running, "vmapi::vm").register().status_code == 200
        yield running


async def test_a_stream_goes_on_with_the_next_token(guarded: SecuredServer) -> None:
    feed, given = Feed(guarded, "vmapi::vm"), []

    def token() -> str:
        given.append(guarded.issuer.token(sub="reader", exp=int(time.time()) + 2))
        return given[-1]

    posted = read = 0
    async with (
        WalClient(guarded.grpc_url, subscriber_id="reader", token=token) as wal,
        asyncio.timeout(WAIT_S_MAX),
        WalSubscription(wal, ack="manual", backoff=SOON) as stream,
        aclosing(stream.records()) as records,
    ):
        while len(given) < 3:
            posted += 1
            answer = await asyncio.to_thread(feed.post, {"changes": changes(posted)})
            assert answer.status_code == 200
            read = (await anext(records)).entry.sequence_id
            assert read == posted, "none is missed, none comes twice"


async def test_a_token_that_can_not_be_renewed_ends_the_stream(guarded: SecuredServer) -> None:
    token = guarded.issuer.token(sub="reader", exp=int(time.time()) + 1)
    async with (
        WalClient(guarded.grpc_url, token=token) as wal,
        asyncio.timeout(WAIT_S_MAX),
        WalSubscription(wal, backoff=SOON) as stream,
    ):
        with pytest.raises(Unauthenticated):
            async for _ in stream.items():
                pass
