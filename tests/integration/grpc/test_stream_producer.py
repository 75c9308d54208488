"""The producer that pipelines over gRPC and retries until it is answered: nothing twice, nothing lost, all in order."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from headrace.client.http import FeedClient
from headrace.client.log_append import LogAppendClient, Stored
from headrace.client.stream_producer import StreamProducer
from headrace.entries.entry import Change
from headrace.errors import (
    FeedRecreated,
    Fenced,
    InvalidRequest,
    OffsetMismatch,
    StreamFailed,
    Unavailable,
)
from headrace.wire.entry import encode_half
from tests.integration.grpc.streams import WAIT_S_MAX
from tests.proxy import Proxy
from tests.scale import scaled
from tests.servers import Feed, ServerProcess
from tests.waiting import async_wait_until

FEED = "stream::feed"


def put(number: int) -> bytes:
    """The producer's half of entry ``number``; its text can be found in what passes the proxy."""
    return encode_half(Change(b'{"number":%d}' % number, key=b"k%07d" % number))


@asynccontextmanager
async def producing(
    server: ServerProcess, *, feed: str = FEED, port: int | None = None, agent: str = "agent-1", **given: Any
) -> AsyncIterator[StreamProducer]:
    """A producer whose appends go by ``port``, if given; it is closed at the end, without a flush."""
    address = f"127.0.0.1:{port}" if port is not None else server.grpc_address
    async with FeedClient(server.url) as http, LogAppendClient(address) as appends:
        producer = await StreamProducer.register(http, appends, feed, agent, **given)
        try:
            yield producer
        finally:
            await producer.close()


def stands_at(producer: StreamProducer, place: int) -> bool:
    return producer.next_sequence_id == place


def port_of(server: ServerProcess) -> int:
    return int(server.grpc_address.rpartition(":")[2])


def numbers(server: ServerProcess, feed: str = FEED) -> list[int]:
    """What stands in the feed, checked to be dense."""
    found: list[int] = []
    while entries := Feed(server, feed).entries(len(found) + 1, limit=10_000):
        first = len(found) + 1
        assert [entry["sequence-id"] for entry in entries] == list(range(first, first + len(entries)))
        found += [entry["changes"]["number"] for entry in entries]
    return found


async def send_all(
    producer: StreamProducer, total: int, source: random.Random, *, first: int = 1
) -> list[Stored]:
    """Send ``first`` … ``total`` in appends of different sizes, then wait for all of them."""
    futures = []
    at = first
    while at <= total:
        last = min(total, at + source.choice((0, 0, 3, 20)))
        futures.append(
            await producer.send([put(number) for number in range(at, last + 1)], source_position=b"%d" % last)
        )
        at = last + 1
    await producer.flush()
    return [await future for future in futures]


def check(server: ServerProcess, stored: list[Stored], total: int) -> None:
    assert numbers(server) == list(range(1, total + 1))
    ends = [0, *(one.last_sequence_id for one in stored)]
    assert [one.first_sequence_id for one in stored] == [end + 1 for end in ends[:-1]]
    lsns = [lsn for one in stored for lsn in (one.first_lsn, one.last_lsn)]
    assert lsns == sorted(lsns)


async def test_nothing_is_lost_or_doubled_over_kills(own: ServerProcess) -> None:
    total = scaled(6000)
    async with producing(own) as producer:
        sending = asyncio.create_task(send_all(producer, total, random.Random(1)))
        for part in (1, 2, 3):
            await async_wait_until(
                partial(lambda at: sending.done() or numbers(own)[-1:] > [at], total * part // 5), WAIT_S_MAX
            )
            await asyncio.to_thread(own.restart)
        stored = await sending
        assert producer.next_sequence_id == total + 1
        end = await producer.resume()
        assert (end.next_sequence_id, end.last_frame.source_position) == (total + 1, b"%d" % total)
    await asyncio.to_thread(check, own, stored, total)


async def test_nothing_is_lost_or_doubled_over_a_line_that_breaks(own: ServerProcess) -> None:
    """Cut before a message arrives, cut when its answer is on the way, reset at any time."""
    each, stored, source = 200, list[Stored](), random.Random(2)
    breaks = ["delivered", "cut", "reset"] * scaled(3)
    with Proxy("127.0.0.1", port_of(own)) as proxy:
        async with producing(own, port=proxy.port) as producer:
            for round_, how in enumerate(breaks):
                first = producer.next_sequence_id
                if how == "reset":
                    proxy.freeze()
                else:
                    at = first + source.randrange(each)
                    proxy.cut_at(b"k%07d" % at, delivered=how == "delivered")
                sending = asyncio.create_task(send_all(producer, first + each - 1, source, first=first))
                if how == "reset":
                    await async_wait_until(partial(stands_at, producer, first + each))
                    await asyncio.to_thread(proxy.reset)
                    proxy.thaw()
                else:
                    await async_wait_until(lambda: proxy.sprung, WAIT_S_MAX)
                    await asyncio.to_thread(proxy.resume)
                stored += await sending
                assert proxy.accepted > round_ + 1, "each break took a connection"
    await asyncio.to_thread(check, own, stored, each * len(breaks))
    assert any(one.duplicate for one in stored), "what was stored and not answered was found again"


async def test_memory_is_bounded_while_nothing_passes(own: ServerProcess) -> None:
    with Proxy("127.0.0.1", port_of(own)) as proxy:
        address = f"127.0.0.1:{proxy.port}"
        async with FeedClient(own.url) as http, LogAppendClient(address) as appends:
            registered = await http.register_publisher("agent-1", FEED)
            size = len(put(1)) + 2
            for limits, room in (
                ({"waiting_appends_max": 4}, 4),
                ({"waiting_bytes_max": 3 * size}, 3),
                ({"waiting_bytes_max": 1}, 1),
            ):
                producer = StreamProducer(appends, registered, "agent-1", **limits)
                await producer.resume()
                at = producer.next_sequence_id
                proxy.freeze()
                for number in range(room):
                    _ = await producer.send([put(at + number)])
                more = asyncio.create_task(producer.send([put(at + room)]))
                await asyncio.wait({more}, timeout=0.05)
                assert not more.done()
                assert producer.next_sequence_id == at + room
                proxy.thaw()
                assert (await (await more)).first_sequence_id == at + room
                await producer.flush()
                await producer.close()
    assert numbers(own) == list(range(1, len(numbers(own)) + 1))


async def test_place_that_another_producer_took_is_the_callers_to_judge(own: ServerProcess) -> None:
    async with (
        producing(own, shared=True) as first,
        producing(own, agent="agent-2", shared=True) as second,
    ):
        assert (await first.append([put(1)])).first_sequence_id == 1
        sent = [await second.send([put(number)]) for number in (11, 12, 13)]
        with pytest.raises(OffsetMismatch) as refusal:
            await second.flush()
        assert (refusal.value.members["actual-next"], refusal.value.members["side-effects"]) == (2, "none")
        assert [type(future.exception()) for future in sent] == [OffsetMismatch, StreamFailed, StreamFailed]
        with pytest.raises(OffsetMismatch):
            _ = await second.send([put(14)])
        assert second.next_sequence_id == 1
        assert (await second.resume()).next_sequence_id == 2
        _ = await second.send([put(2)])
        await second.flush()
    assert numbers(own) == [1, 2]


async def test_twin_is_fenced(own: ServerProcess) -> None:
    async with producing(own) as first:
        await first.append([put(1)])
        async with producing(own) as twin:
            with pytest.raises(Fenced):
                await first.append([put(2)])
            await twin.append([put(2)])
    assert numbers(own) == [1, 2]


async def test_time_out_leaves_the_place_and_the_same_can_be_sent_again(own: ServerProcess) -> None:
    async with producing(own, retry_s_max=0.2) as producer:
        await producer.append([put(1)])
        await asyncio.to_thread(own.kill)
        _ = await producer.send([put(2)])
        with pytest.raises(Unavailable):
            await producer.flush()
        assert producer.next_sequence_id == 2
        await asyncio.to_thread(own.start)
        for again in (False, True):  # the second stands for one whose answer was lost
            producer.next_sequence_id = 2
            stored = None
            while stored is None:
                producer.again()
                with contextlib.suppress(Unavailable):
                    stored = await producer.append([put(2)])
            assert stored.duplicate is again
    assert numbers(own) == [1, 2]


async def test_older_copy_of_the_server_is_noticed(own: ServerProcess) -> None:
    older = own.folder / "older"
    async with producing(own) as producer:
        await producer.append([put(1)])
        await asyncio.to_thread(own.stop)
        shutil.copytree(own.data_dir, older)
        await asyncio.to_thread(own.start)
        await producer.append([put(2)])
        await asyncio.to_thread(own.kill)
        sent = await producer.send([put(3)])
        shutil.rmtree(own.data_dir)
        shutil.copytree(older, own.data_dir)
        await asyncio.to_thread(own.start)
        with pytest.raises(FeedRecreated, match="an older copy"):
            await sent


async def test_feed_that_compares_nothing_is_refused(own: ServerProcess) -> None:
    async with producing(own) as producer, producing(own, agent="agent-1", instance="same") as twin:
        answer = own.http.put(f"/feeds/{FEED}/settings", json={"expected-offset": "ignored"})
        assert answer.status_code == 200
        await twin.append([put(1)])
        twin.next_sequence_id = 1
        with pytest.raises(OffsetMismatch, match="expected-offset"):
            await twin.append([put(2)])
        assert producer.next_sequence_id == 1


async def test_close_leaves_nothing_waiting_for_ever(own: ServerProcess) -> None:
    async with producing(own) as producer:
        await asyncio.to_thread(own.kill)
        sent = await producer.send([put(1)])
        with pytest.raises(InvalidRequest):
            await producer.resume()
        with pytest.raises(InvalidRequest):
            _ = await producer.send([])
        await producer.close()
        with pytest.raises(Unavailable):
            await sent
        with pytest.raises(Unavailable):
            _ = await producer.send([put(2)])
