"""Streams of appends: pipelined, answered in order, and nothing is applied behind an append that was refused."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from headrace.client.channel import open_channel
from headrace.client.log_append import LogAppendClient, Stored, Writes, encode_request
from headrace.errors import InvalidRequest, OffsetMismatch, ServerUnreachable, StreamFailed, Unavailable
from headrace.wire.generated import log_pb2
from tests.integration.grpc.conftest import registered
from tests.integration.grpc.streams import WAIT_S_MAX, halves, writes
from tests.scale import scaled
from tests.servers import Feed, ServerProcess

PRODUCERS = 16


async def test_many_appends_of_one_stream_stand_in_order(appender: LogAppendClient, feed: Feed) -> None:
    async with appender.append_stream(writes(feed)) as stream:
        sent = [
            await stream.send(halves(10 * number + 1, 10 * number + 10), expected_offset=10 * number + 1)
            for number in range(50)
        ]
        places = [(await future).first_sequence_id for future in sent]
    assert places == [10 * number + 1 for number in range(50)]
    assert [entry["changes"]["number"] for entry in feed.entries()] == list(range(1, 501))


@pytest.mark.parametrize("named", [True, False], ids=["places named", "no places named"])
async def test_behind_a_refused_append_nothing_is_applied(
    appender: LogAppendClient, feed: Feed, named: bool
) -> None:
    async with appender.append_stream(writes(feed)) as stream:
        sent = [
            await stream.send(halves(number, number), expected_offset=number if named else None)
            for number in range(1, 4)
        ]
        sent.append(await stream.send(halves(4, 4), expected_offset=77))
        sent += [await stream.send(halves(4, 4)) for _ in range(20)]
        await stream.finish()
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Stored] * 3 + [OffsetMismatch] + [StreamFailed] * 20
    failed = outcomes[-1]
    assert isinstance(failed, StreamFailed)
    assert failed.members["retryable"] is True
    assert len(feed.entries()) == 3
    async with appender.append_stream(writes(feed)) as stream:
        assert (await (await stream.send(halves(4, 4), expected_offset=4))).first_sequence_id == 4


async def test_behind_an_append_that_is_none_nothing_is_applied_but_all_before_it(
    appender: LogAppendClient, feed: Feed
) -> None:
    bad = halves(9, 9)[0][:-1] + b"\x00"
    async with appender.append_stream(writes(feed)) as stream:
        sent = [await stream.send(halves(number, number)) for number in range(1, 31)]
        sent += [await stream.send([bad]), await stream.send(halves(31, 31))]
        await stream.finish()
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Stored] * 30 + [InvalidRequest, StreamFailed]
    assert len(feed.entries()) == 30


async def test_the_failure_of_one_stream_is_no_other_ones(
    appender: LogAppendClient, server: ServerProcess
) -> None:
    first, second = registered(server), registered(server)
    async with appender.append_stream(writes(first)) as bad, appender.append_stream(writes(second)) as good:
        refused = await bad.send(halves(1, 1), expected_offset=9)
        taken = [await good.send(halves(number, number)) for number in range(1, 20)]
        with pytest.raises(OffsetMismatch):
            await refused
        assert [(await future).first_sequence_id for future in taken] == list(range(1, 20))


async def test_what_is_no_request_ends_the_stream_after_the_answers_before_it(
    server: ServerProcess, feed: Feed
) -> None:
    async with open_channel(server.grpc_address) as channel:
        call = channel.stream_stream("/headrace.log.v1.LogAppend/AppendStream")()
        await call.write(encode_request(writes(feed), halves(1, 1)))
        await call.write(b"\xff\xff\xff")
        async with asyncio.timeout(WAIT_S_MAX):
            answer = log_pb2.AppendResponse.FromString(await call.read())
            assert answer.appended.first_sequence_id == 1
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "headrace.log.v1.AppendRequest" in str(caught.value.details())


async def test_request_numbers_come_back_in_order(server: ServerProcess, feed: Feed) -> None:
    async with open_channel(server.grpc_address) as channel:
        call = channel.stream_stream("/headrace.log.v1.LogAppend/AppendStream")()
        for number in (7, 3, 99):
            request = log_pb2.AppendRequest.FromString(encode_request(writes(feed), halves(1, 1)))
            request.request = number
            await call.write(request.SerializeToString())
        await call.done_writing()
        async with asyncio.timeout(WAIT_S_MAX):
            answers = [log_pb2.AppendResponse.FromString(await call.read()).request for _ in range(3)]
            assert await call.read() is grpc.aio.EOF
        assert answers == [7, 3, 99]


async def test_many_producers_at_once_are_all_exact(appender: LogAppendClient, server: ServerProcess) -> None:
    feeds = [registered(server) for _ in range(PRODUCERS)]
    batches, size = scaled(20), 25

    async def produce(feed: Feed) -> None:
        async with appender.append_stream(writes(feed)) as stream:
            sent = [
                await stream.send(halves(at, at + size - 1), expected_offset=at)
                for at in range(1, batches * size + 1, size)
            ]
            for number, future in enumerate(sent):
                assert (await future).first_sequence_id == number * size + 1

    await asyncio.gather(*map(produce, feeds))
    for feed in feeds:
        numbers = [entry["changes"]["number"] for entry in feed.entries(limit=10_000)]
        assert numbers == list(range(1, batches * size + 1))


async def test_a_server_that_stops_answers_what_it_has_read_and_ends_the_streams(own: ServerProcess) -> None:
    feed = registered(own)
    async with LogAppendClient(own.grpc_address) as client:
        stream = client.append_stream(writes(feed))
        await (await stream.send(halves(1, 1)))
        assert await asyncio.to_thread(own.stop) == 0
        with pytest.raises(Unavailable):
            await (await stream.send(halves(2, 2)))
        with pytest.raises(ServerUnreachable):
            await client.append(Writes(feed.name, feed.agent), halves(2, 2))
    own.start()
    assert len(Feed(own, feed.name).entries()) == 1


async def test_a_client_that_goes_away_leaves_nothing_behind(own: ServerProcess) -> None:
    feed = registered(own)
    async with LogAppendClient(own.grpc_address) as client:
        stream = client.append_stream(writes(feed))
        sent = [await stream.send(halves(number, number), expected_offset=number) for number in range(1, 50)]
    assert len(sent) == 49
    assert own.stop() == 0
    own.start()
    entries = feed.entries()
    assert [entry["changes"]["number"] for entry in entries] == list(range(1, len(entries) + 1))
