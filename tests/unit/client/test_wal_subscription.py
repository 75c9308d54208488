"""A subscription over connections that end: nothing twice, nothing left out, acks of what is finished and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from itertools import count
from typing import Any

import pytest
from grpc import StatusCode

from headrace import errors
from headrace.client.wal_acks import AckEvery
from headrace.client.wal_records import Record
from headrace.client.wal_stream import StreamFilter, WalClient
from headrace.client.wal_subscription import Transfer, WalSubscription
from headrace.entries.entry import Change, Op
from headrace.entries.lsn import ZERO, Lsn
from headrace.runtime.backoff import Backoff
from headrace.wire.batch import Heartbeat, ReceivedBatch, encode_error, encode_heartbeat
from headrace.wire.generated import wal_pb2
from tests.unit.client.wal_server import (
    REGION,
    Stream,
    WalServer,
    batch,
    fails,
    lsn,
    sends,
    take_all,
    wal_server,
)
from tests.waiting import async_wait_until

END = fails(StatusCode.PERMISSION_DENIED, "the end")
SOON = partial(Backoff, 0.001, 0.002)


async def stands(_: wal_pb2.SubscribeRequest, context: Any) -> None:
    """Send nothing more until the client cancels."""
    await asyncio.Event().wait()


@asynccontextmanager
async def subscribed(server: WalServer, **given: Any) -> AsyncIterator[WalSubscription]:
    token = given.pop("token", None)
    async with (
        asyncio.timeout(60),
        WalClient(server.address, token=token) as wal,
        WalSubscription(wal, **({"backoff": SOON} | given)) as stream,
    ):
        yield stream


async def values(*streams: Stream, flatten: bool = False, **given: Any) -> tuple[list[bytes], WalServer]:
    """What is read until the server says that it is the end, and what the server was asked."""
    found: list[Record] = []
    async with wal_server(*streams) as server, subscribed(server, **given) as stream:
        with pytest.raises(errors.Forbidden, match="the end"):
            await take_all(stream.records(flatten=flatten), found)
    return [record.value for record in found], server


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


async def test_it_goes_on_where_it_was_and_gives_nothing_twice() -> None:
    too_slow = encode_error("backpressure_timeout: subscriber too slow")
    found, server = await values(
        fails(StatusCode.UNAVAILABLE),
        sends(batch(1, 3), batch(4, 4)),
        sends(batch(4, 4), batch(5, 6)),
        fails(StatusCode.UNAVAILABLE),
        sends(batch(6, 9), too_slow),
        sends(batch(9, 9), then=END),
    )
    assert found == numbers(1, 9)
    starts = [asked.start_lsn for asked in server.asked]
    assert starts == ["", "", *(str(lsn(number)) for number in (4, 6, 6, 9))]
    assert server.acks[-1] == lsn(9)


async def test_a_start_that_the_user_names_is_inclusive_also_at_the_second_try() -> None:
    found, server = await values(sends(), sends(batch(3, 4), then=END), start=lsn(3))
    assert found == numbers(3, 4)
    assert [asked.start_lsn for asked in server.asked] == [str(lsn(3))] * 2


async def test_what_an_earlier_life_has_finished_does_not_come_again() -> None:
    found, server = await values(sends(batch(3, 3)), sends(batch(3, 5), then=END), after=lsn(3))
    assert found == numbers(4, 5)
    assert [asked.start_lsn for asked in server.asked] == [str(lsn(3))] * 2
    found, _ = await values(sends(batch(4, 5), then=END), after=lsn(3))
    assert found == numbers(4, 5), "also where the filter leaves out the entry itself"
    async with WalClient("127.0.0.1:1") as wal:
        with pytest.raises(errors.InvalidRequest, match="only one"):
            WalSubscription(wal, lsn(1), after=lsn(1))


async def test_a_quiet_stream_goes_on_from_what_was_walked() -> None:
    beats = encode_heartbeat(Heartbeat(lsn(70), rotate=True))
    async with (
        wal_server(sends(batch(1, 1), beats), sends(batch(80, 80), then=END)) as server,
        subscribed(server, only=StreamFilter(key_prefix="main:")) as stream,
    ):
        found: list[ReceivedBatch | Heartbeat] = []
        with pytest.raises(errors.Forbidden):
            await take_all(stream.items(), found)
    assert [type(item) for item in found] == [ReceivedBatch, Heartbeat, ReceivedBatch]
    assert found[1] == Heartbeat(lsn(70), rotate=True)
    assert server.asked[1].start_lsn == str(lsn(70))


async def test_what_is_asked_for_is_asked_for_again() -> None:
    _, server = await values(
        sends(),
        sends(encode_heartbeat(Heartbeat(lsn(5)))),
        END,
        start_time_ms=77,
        only=StreamFilter(tenant="east", key_prefix="main:", shard="2/8"),
        transfer=Transfer(batch_entries=9, compression=("zstd", "snappy"), want_lengths=False),
    )
    wanted = wal_pb2.SubscribeRequest(
        start_time_ms=77,
        tenant_filter="east",
        key_prefix_filter="main:",
        shard="2/8",
        batch_size_hint=9,
        accept_compression=[wal_pb2.ZSTD, wal_pb2.SNAPPY],
    )
    assert server.asked[:2] == [wanted, wanted]
    wanted.start_time_ms, wanted.start_lsn = 0, str(lsn(5))
    assert server.asked[2] == wanted


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (sends(encode_error("lsn_not_available: start_lsn=1.1.1 older")), errors.LsnNotAvailable),
        (sends(encode_error("beyond_head: start_lsn=1.1.1 is above")), errors.BeyondHead),
        (sends(encode_error("data_loss: after lsn=1.1.1")), errors.JournalCorrupt),
        (fails(StatusCode.UNAUTHENTICATED), errors.Unauthenticated),
        (fails(StatusCode.INVALID_ARGUMENT), errors.InvalidRequest),
    ],
)
async def test_what_no_retry_mends_is_raised_at_once(end: Stream, kind: type[Exception]) -> None:
    async with wal_server(sends(batch(1, 2)), end, stands) as server, subscribed(server) as stream:
        with pytest.raises(kind):
            async for _ in stream.batches():
                pass
        assert len(server.asked) == 2


async def test_what_nobody_explains_is_tried_again_but_not_for_ever() -> None:
    odd = fails(StatusCode.INTERNAL, "RST_STREAM")
    found, _ = await values(odd, odd, sends(batch(1, 1)), odd, END)
    assert found == numbers(1, 1)
    async with wal_server(odd) as server, subscribed(server) as stream:
        with pytest.raises(errors.HeadraceError, match="RST_STREAM"):
            await anext(stream.items())
        assert len(server.asked) == 9


async def test_a_token_is_asked_for_again_when_it_has_expired() -> None:
    expired = fails(StatusCode.UNAUTHENTICATED, "expired")
    numbered = count(1)
    found, server = await values(
        sends(batch(1, 2), then=expired),
        expired,
        sends(batch(2, 3), then=END),
        token=lambda: f"token-{next(numbered)}",
        ack="manual",
    )
    assert found == numbers(1, 3)
    assert server.tokens == ["Bearer token-2", "Bearer token-3", "Bearer token-4"], (
        "the first asks for the place"
    )


@pytest.mark.parametrize("token", ["", "two words", "x" * 9000, "line\nbreak"])
async def test_what_is_no_token_is_refused(token: str) -> None:
    async with wal_server(stands) as server, subscribed(server, token=lambda: token) as stream:
        with pytest.raises(errors.ConfigInvalid):
            await anext(stream.items())


async def test_a_feed_that_was_made_anew_is_told_before_its_entries() -> None:
    streams = (
        sends(batch(1, 2, incarnation="one")),
        sends(batch(2, 2, incarnation="one"), batch(3, 3, incarnation="two")),
    )
    async with wal_server(*streams) as server, subscribed(server) as stream:
        found: list[Record] = []
        with pytest.raises(errors.FeedRecreated) as caught:
            await take_all(stream.records(), found)
        assert [record.value for record in found] == numbers(1, 2)
        assert caught.value.members == {"region-id": REGION, "incarnation": "two", "resume-lsn": str(lsn(3))}
        assert stream.incarnations == {REGION: "one"}
    async with (
        wal_server(sends(batch(1, 2, incarnation="one"))) as server,
        subscribed(server, incarnations={REGION: "zero"}) as stream,
    ):
        with pytest.raises(errors.FeedRecreated):
            await anext(stream.batches())


async def test_a_subscription_is_read_once() -> None:
    async with wal_server(sends(batch(1, 1), then=stands)) as server, subscribed(server) as stream:
        async with aclosing(stream.batches()) as batches:
            await anext(batches)
        with pytest.raises(RuntimeError):
            await anext(stream.batches())


# -- acks -------------------------------------------------------------------------------------------------------------


async def test_a_batch_is_acked_when_the_next_one_is_asked_for() -> None:
    async with wal_server(sends(batch(1, 3), batch(4, 5), batch(6, 6), then=stands)) as server:
        async with subscribed(server) as stream, aclosing(stream.batches()) as batches:
            await anext(batches)
            await anext(batches)
            await async_wait_until(lambda: stream.acked == lsn(3), 30, what="the server's answer to the ack")
            assert server.acks == [lsn(3)]
        assert server.acks == [lsn(3)], "what the consumer still held is not acked"


@pytest.mark.parametrize("taken", [1, 3, 4, 7, 8])
async def test_acks_by_entries_are_in_the_middle_of_a_batch(taken: int) -> None:
    async with (
        wal_server(sends(batch(1, 8), then=stands)) as server,
        subscribed(server, ack=AckEvery(entries=3)) as stream,
        aclosing(stream.records()) as records,
    ):
        for _ in range(taken):
            await anext(records)
        due = (taken - 1) // 3
        await async_wait_until(lambda: due == 0 or server.acks != [], 30)
        assert all(lsn(3) <= acked < lsn(taken) for acked in server.acks)
    assert server.acks[-1:] == ([lsn(taken - 1)] if taken > 1 else []), "the rest at the end"


async def test_acks_by_time_come_by_themselves() -> None:
    async with (
        wal_server(sends(batch(1, 3), batch(4, 4), then=stands)) as server,
        subscribed(server, ack=AckEvery(seconds=0.01)) as stream,
        aclosing(stream.batches()) as batches,
    ):
        await anext(batches)
        await anext(batches)
        await async_wait_until(lambda: server.acks == [lsn(3)], 30)


async def test_a_late_ack_is_sent_at_the_end() -> None:
    _, server = await values(sends(batch(1, 3), then=END), ack=AckEvery(entries=1000, seconds=1000))
    assert server.acks == [lsn(3)]


async def test_manual_acks_are_the_consumers_own() -> None:
    async with (
        wal_server(sends(batch(1, 3), batch(4, 4), then=stands)) as server,
        subscribed(server, ack="manual") as stream,
        aclosing(stream.batches()) as batches,
    ):
        await anext(batches)
        await anext(batches)
        assert await stream.ack(lsn(2)) == lsn(2)
        assert stream.acked == lsn(2)
    assert server.acks == [lsn(2)]


async def test_refused_acks_are_tried_again_and_the_stream_goes_on() -> None:
    refusals = [(StatusCode.UNAVAILABLE, "busy"), (StatusCode.INVALID_ARGUMENT, "above what was sent")] * 2

    def refuse(_: Lsn) -> tuple[StatusCode, str] | None:
        return refusals.pop() if refusals else None

    async with (
        wal_server(sends(batch(1, 3), batch(4, 4), batch(5, 5), then=stands), refuse_ack=refuse) as server,
        subscribed(server) as stream,
        aclosing(stream.batches()) as batches,
    ):
        for _ in range(3):
            await anext(batches)
        await async_wait_until(lambda: server.acks == [lsn(4)], 30)
        assert not refusals
        assert stream.ack_error is None


async def test_an_ack_that_is_never_taken_does_not_hold_up_the_end() -> None:
    def refuse(_: Lsn) -> tuple[StatusCode, str]:
        return StatusCode.UNAVAILABLE, "never"

    async with (
        wal_server(sends(batch(1, 1), then=END), refuse_ack=refuse) as server,
        WalClient(server.address) as wal,
    ):
        stream = WalSubscription(wal, backoff=SOON)
        await stream.__aenter__()
        with pytest.raises(errors.Forbidden):
            async for _ in stream.batches():
                pass
        await async_wait_until(lambda: stream.ack_error is not None, 30)
        await stream.close(within_s=0.05)
        assert stream.acked is None
        assert isinstance(stream.ack_error, errors.Unavailable)


@pytest.mark.parametrize("bounds", [{}, {"entries": 0}, {"seconds": -1.0}])
def test_a_policy_that_is_never_due_is_refused(bounds: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="never due"):
        AckEvery(**bounds)


# -- OP_BATCH ---------------------------------------------------------------------------------------------------------

WRITE = wal_pb2.BatchWrite(
    mutations=[
        wal_pb2.Mutation(op=wal_pb2.OP_PUT, key=b"a", value=b"1"),
        wal_pb2.Mutation(op=wal_pb2.OP_DELETE, key=b"b"),
        wal_pb2.Mutation(op=wal_pb2.OP_PUT, key=b"a", value=b"2"),
    ]
).SerializeToString()


def op_batch(value: bytes) -> Change:
    return Change(value, key=b"batch", op=Op.BATCH)


async def test_a_batch_is_taken_apart_on_demand() -> None:
    message = batch(
        1, 4, Change(b"one", key=b"k"), op_batch(WRITE), op_batch(b""), Change(b"", key=b"k", op=Op.DELETE)
    )
    for flatten in (False, True):
        async with wal_server(sends(message, then=END)) as server, subscribed(server) as stream:
            found: list[Record] = []
            with pytest.raises(errors.Forbidden):
                await take_all(stream.records(flatten=flatten), found)
        plain = [(one.lsn, one.index, one.count, one.op, one.key, one.value) for one in found]
        first, last = (lsn(1), 0, 1, Op.PUT, b"k", b"one"), (lsn(4), 0, 1, Op.DELETE, b"k", b"")
        if not flatten:
            assert plain == [
                first,
                (lsn(2), 0, 1, Op.BATCH, b"batch", WRITE),
                (lsn(3), 0, 1, Op.BATCH, b"batch", b""),
                last,
            ]
            continue
        assert plain == [
            first,
            (lsn(2), 0, 3, Op.PUT, b"a", b"1"),
            (lsn(2), 1, 3, Op.DELETE, b"b", b""),
            (lsn(2), 2, 3, Op.PUT, b"a", b"2"),
            last,
        ]
        assert [one.is_last for one in found] == [True, False, False, True, True]
        assert {(one.feed, one.entry.tenant_id) for one in found} == {("feed", "t")}
        assert [one.entry.sequence_id for one in found] == [1, 2, 2, 2, 4]


async def test_half_a_batch_is_never_acked_and_comes_again_whole() -> None:
    message = batch(1, 2, Change(b"one", key=b"k"), op_batch(WRITE))
    async with (
        wal_server(sends(message, then=stands)) as server,
        subscribed(server, ack=AckEvery(entries=1)) as stream,
        aclosing(stream.records(flatten=True)) as records,
    ):
        read = [await anext(records) for _ in range(4)]
        assert (read[-1].lsn, read[-1].index) == (lsn(2), 2)
        await async_wait_until(lambda: server.acks == [lsn(1)], 30)
    assert server.acks == [lsn(1)]


@pytest.mark.parametrize(
    "value",
    [
        WRITE[:-1],
        b"\xff",
        wal_pb2.BatchWrite(mutations=[wal_pb2.Mutation(op=wal_pb2.OP_BATCH)]).SerializeToString(),
        b"\x0a\x02\x08\x63",
    ],
    ids=["cut", "no message", "a batch in a batch", "no op"],
)
async def test_a_batch_that_can_not_be_read_gives_nothing_of_it(value: bytes) -> None:
    message = batch(1, 2, Change(b"one", key=b"k"), op_batch(value))
    found: list[Record] = []
    async with (
        wal_server(sends(message, then=END)) as server,
        subscribed(server, ack=AckEvery(entries=1)) as stream,
    ):
        with pytest.raises(errors.JournalCorrupt, match="OP_BATCH") as caught:
            await take_all(stream.records(flatten=True), found)
        assert [record.value for record in found] == [b"one"]
        assert caught.value.members["lsn"] == str(lsn(2))
    assert all(acked < lsn(2) for acked in server.acks)
    assert ZERO not in server.acks
