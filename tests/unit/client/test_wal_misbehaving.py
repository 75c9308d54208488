"""A subscriber and a server that does what none should: a clear error each time, never a gap that nobody sees."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from grpc import StatusCode

from headrace import errors
from headrace.client.wal_records import Record
from headrace.client.wal_stream import WalClient
from headrace.client.wal_subscription import Transfer, WalSubscription
from headrace.entries.entry import Change
from headrace.wire import varint
from headrace.wire.batch import ReceivedBatch, decode_response, encode_error
from headrace.wire.generated import wal_pb2
from tests.unit.client.wal_server import Stream, batch, fails, lsn, sends, take_all, wal_server
from tests.waiting import async_wait_until


async def stands(_: wal_pb2.SubscribeRequest, context: Any) -> None:
    """Send nothing more until the client cancels."""
    await asyncio.Event().wait()


def edited(message: bytes, **fields: Any) -> bytes:
    """The batch with some of its own fields set otherwise."""
    got = decode_response(message)
    assert isinstance(got, ReceivedBatch)
    head = wal_pb2.WalResponse.FromString(message).batch
    entries = b"" if head.compression else bytes(got.body)
    del head.entries[:]
    for name, value in fields.items():
        setattr(head, name, value)
    data = head.SerializeToString() + entries
    return b"\x0a" + varint.encode(len(data)) + data


async def read(*streams: Stream, **given: Any) -> None:
    """Read a subscription until it raises."""
    async with (
        asyncio.timeout(60),
        wal_server(*streams) as server,
        WalClient(server.address) as wal,
        WalSubscription(wal, **given) as stream,
    ):
        await take_all(stream.records(), [])


GOOD = batch(1, 3)
LENGTHS = wal_pb2.WalResponse.FromString(GOOD).batch.entry_lengths
PACKED = batch(1, 3, *[Change(b"x" * 4000, key=b"k")] * 3, compression=wal_pb2.ZSTD)
ZSTD = wal_pb2.WalResponse.FromString(PACKED).batch.compressed_entries
ODD: dict[str, tuple[bytes, str]] = {
    "no message": (b"\xff\xff", "no WalResponse"),
    "half a message": (GOOD[:-5], "size"),
    "no entries": (b"\x0a\x00", "no entries|LSN|lengths"),
    "lengths too short": (edited(GOOD, entry_lengths=LENGTHS[:-4]), "lengths"),
    "odd lengths": (edited(GOOD, entry_lengths=LENGTHS[:-1]), "lengths"),
    "lengths that add up and are wrong": (
        edited(GOOD, entry_lengths=bytes((LENGTHS[0] + 1, *LENGTHS[1:4], LENGTHS[4] - 1, *LENGTHS[5:]))),
        "end where its length says",
    ),
    "truncated zstd": (edited(PACKED, compressed_entries=ZSTD[:-9]), "can't be read"),
    "unknown compression": (edited(PACKED, compression=9), "nobody knows"),
    "compressed and plain": (edited(GOOD, compression=wal_pb2.ZSTD), "that are not"),
    "no lsn": (edited(GOOD, first_lsn="nonsense"), "an LSN that is none"),
    "another first lsn": (edited(GOOD, first_lsn=str(lsn(2))), "says lsn="),
    "another last lsn": (edited(GOOD, last_lsn=str(lsn(9))), "says lsn="),
    "turned round": (edited(GOOD, first_lsn=str(lsn(3)), last_lsn=str(lsn(1))), "out of order"),
    "a changed value": (GOOD.replace(b"\x3a\x012", b"\x3a\x017"), "does not fit its checksum"),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
async def test_what_no_server_sends_is_told(name: str) -> None:
    message, words = ODD[name]
    with pytest.raises(errors.JournalCorrupt, match=words):
        await read(sends(message, then=stands))


@pytest.mark.parametrize(
    "again", [batch(1, 3), batch(3, 4), batch(2, 2), batch(1, 1)], ids=["twice", "overlap", "inside", "back"]
)
async def test_a_stream_that_goes_back_is_told(again: bytes) -> None:
    with pytest.raises(errors.JournalCorrupt, match="out of order"):
        await read(sends(GOOD, again, then=stands))


async def test_a_stream_that_begins_below_its_start_is_told() -> None:
    with pytest.raises(errors.JournalCorrupt, match="out of order"):
        await read(sends(GOOD, then=stands), start=lsn(2))


async def test_checks_can_be_switched_off_but_not_those_of_a_batch_and_its_ends() -> None:
    changed = GOOD.replace(b"\x3a\x012", b"\x3a\x017")
    end = fails(StatusCode.INVALID_ARGUMENT)
    found: list[Record] = []
    async with (
        wal_server(sends(changed, then=end)) as server,
        WalClient(server.address) as wal,
        WalSubscription(wal, transfer=Transfer(verify=False)) as stream,
    ):
        with pytest.raises(errors.InvalidRequest):
            await take_all(stream.records(), found)
    assert [record.value for record in found] == [b"1", b"7", b"3"]
    with pytest.raises(errors.JournalCorrupt, match="out of order"):
        await read(sends(GOOD, GOOD, then=stands), transfer=Transfer(verify=False))


ENDS: dict[str, tuple[Stream, type[errors.HeadraceError], dict[str, str]]] = {
    "too old": (
        sends(encode_error("lsn_not_available: start_lsn=1.1.1 older than oldest_lsn=2.1.1; perform a base "
                           "snapshot and restart from head_lsn=3.1.1")),
        errors.LsnNotAvailable,
        {"start-lsn": "1.1.1", "oldest-lsn": "2.1.1", "head-lsn": "3.1.1"},
    ),
    "beyond": (
        sends(encode_error("beyond_head: start_lsn=1.1.1 is above head_lsn=0.1.1"), then=fails(StatusCode.INVALID_ARGUMENT)),
        errors.BeyondHead,
        {"start-lsn": "1.1.1", "head-lsn": "0.1.1"},
    ),
    "damaged": (
        sends(encode_error("data_loss: after lsn=1.1.1 the journal is damaged at 0x7; go on from start_lsn=2.1.1: x"),
              then=fails(StatusCode.DATA_LOSS)),
        errors.JournalCorrupt,
        {"resume-lsn": "2.1.1"},
    ),
    "lost": (
        sends(encode_error("data_loss: after lsn=1.1.1 …; go on from start_lsn=2.1.1: x"),
              then=fails(StatusCode.DATA_LOSS, headrace_code="sequence-lost")),
        errors.SequenceLost,
        {"resume-lsn": "2.1.1"},
    ),
    "slow": (sends(encode_error("backpressure_timeout: subscriber too slow")), errors.BackpressureTimeout, {}),
    "slow, and the stream stays": (
        sends(encode_error("backpressure_timeout: subscriber too slow"), GOOD), errors.BackpressureTimeout, {}
    ),
    "unknown": (sends(encode_error("the moon is full")), errors.HeadraceError, {}),
    "without a word": (sends(), errors.ServerUnreachable, {}),
    "refused": (fails(StatusCode.PERMISSION_DENIED), errors.Forbidden, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
async def test_how_a_stream_ends_is_told(name: str) -> None:
    stream, kind, members = ENDS[name]
    async with asyncio.timeout(60), wal_server(stream) as server, WalClient(server.address) as wal:
        with pytest.raises(errors.HeadraceError) as caught:
            async for _ in wal.subscribe():
                pass
    assert type(caught.value) is kind
    assert {key: value for key, value in caught.value.members.items() if key.endswith("lsn")} == members


async def test_a_name_that_is_no_compression_is_refused() -> None:
    async with WalClient("127.0.0.1:1") as wal:
        with pytest.raises(errors.InvalidRequest, match="gzip"):
            await anext(wal.subscribe(compression=("gzip",)))


async def test_cancelled_readers_leave_no_task_and_no_stream() -> None:
    async def take(stream: WalSubscription) -> list[ReceivedBatch]:
        return [found async for found in stream.batches()]

    async with wal_server(sends(GOOD, then=stands)) as server, WalClient(server.address) as wal:
        tasks: list[set[str]] = []
        for _ in range(20):
            async with WalSubscription(wal) as stream:
                reading = asyncio.create_task(take(stream))
                await async_wait_until(lambda: server.open_streams, 30)
                reading.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reading
            await async_wait_until(lambda: not server.open_streams, 30)
            tasks.append({task.get_coro().__qualname__ for task in asyncio.all_tasks()})  # type: ignore[union-attr]  # each has a coroutine
        count = len(asyncio.all_tasks())
        assert not {name for name in tasks[-1] if "Acker" in name or "take" in name}
        assert count <= 4, tasks[-1]
