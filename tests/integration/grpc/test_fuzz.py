"""Requests with flipped, lost and added bytes: each is answered, refused or INVALID_ARGUMENT; nothing false is stored."""

from __future__ import annotations

import random

import google_crc32c
import grpc
import pytest

from headrace.client.channel import open_channel
from headrace.client.log_append import LogAppendClient, encode_request
from headrace.client.wal_stream import WalClient
from headrace.entries.entry import Change, Op
from headrace.errors import TooLarge
from headrace.wire.entry import encode_half
from headrace.wire.generated import log_pb2, wal_pb2
from tests.integration.grpc.streams import entries_of, halves, read_until, writes
from tests.scale import SEED, scaled
from tests.servers import Feed, ServerProcess

STATUSES = {status.name for status in grpc.StatusCode}
FULL = Change(
    b'{"a":1}', key=b"k", op=Op.PATCH, source_tx=b"tx", tx_index=3, tx_last=True, source_time_ms=1_000, copy=True,
    changed=("a",), before=b'{"a":0}', table=("main", "t"),
)  # fmt: skip


def blown(data: bytes, source: random.Random) -> bytes:
    """A few blows to the bytes: flips, a piece lost, a piece twice, some garbage."""
    for _ in range(source.choice((1, 1, 2, 5))):
        at, size = source.randrange(len(data) + 1), source.choice((1, 2, 4, 20))
        match source.randrange(4):
            case 0 if at < len(data):
                data = data[:at] + bytes((data[at] ^ 1 << source.randrange(8),)) + data[at + 1 :]
            case 1:
                data = data[:at] + data[at + size :]
            case 2:
                data = data[:at] + data[at : at + size] + data[at:]
            case _:
                data = data[:at] + source.randbytes(size) + data[at:]
    return data


async def test_blown_appends_store_nothing_false(
    server: ServerProcess, feed: Feed, appender: LogAppendClient, wal: WalClient
) -> None:
    source = random.Random(SEED)
    requests = [
        encode_request(writes(feed), halves(1, 40)),
        encode_request(writes(feed), [encode_half(FULL)] * 3, source_position=b"position"),
    ]
    outcomes: set[str] = set()
    start = (await appender.append(writes(feed), halves(1, 1))).first_lsn
    async with open_channel(server.grpc_address) as channel:
        call = channel.unary_unary("/headrace.log.v1.LogAppend/Append")
        for number in range(scaled(400)):
            try:
                answer = log_pb2.AppendResponse.FromString(await call(blown(requests[number % 2], source)))
                outcomes.add(answer.refusal.code or "appended")
            except grpc.aio.AioRpcError as error:
                outcomes.add(error.code().name)
    assert outcomes >= {"appended", "invalid-request", "INVALID_ARGUMENT"}, f"seed {SEED}"
    assert not outcomes & (STATUSES - {"INVALID_ARGUMENT"}), f"seed {SEED}: {outcomes}"
    last = await appender.append(writes(feed), halves(1, 1))
    entries = entries_of(await read_until(wal, start, last.last_lsn), feed)
    assert [int(entry.lsn[-10:]) for entry in entries] == list(range(1, last.last_sequence_id + 1))
    for entry in entries:
        crc = google_crc32c.value(entry.key + entry.value)
        assert entry.checksum == int(crc).to_bytes(4, "big")
        assert entry.tenant_id == "default"
    assert len(feed.entries(limit=10_000)) == min(last.last_sequence_id, 10_000)


@pytest.mark.parametrize(
    "method", ["kdb.wal.v1.WalStream/Ack", "kdb.wal.v1.WalStream/GetLSN", "headrace.log.v1.LogAppend/Tail"]
)
async def test_blown_questions_are_answered_or_refused(
    server: ServerProcess, feed: Feed, method: str
) -> None:
    source = random.Random(SEED)
    outcomes = {"OK"}
    whole = {
        "kdb.wal.v1.WalStream/Ack": wal_pb2.AckRequest(ack_lsn="0688038e79940001.0000000001.0000100203"),
        "kdb.wal.v1.WalStream/GetLSN": wal_pb2.AckRequest(ack_lsn="x"),
        "headrace.log.v1.LogAppend/Tail": log_pb2.TailRequest(feed=feed.name, producer_id=feed.agent),
    }[method].SerializeToString()
    async with open_channel(server.grpc_address) as channel:
        call = channel.unary_unary(f"/{method}")
        for _ in range(scaled(100)):
            try:
                await call(blown(whole, source))
            except grpc.aio.AioRpcError as error:
                outcomes.add(error.code().name)
    assert outcomes <= {"OK", "INVALID_ARGUMENT"}, f"seed {SEED}: {outcomes}"


async def test_a_request_that_is_too_large_is_told_so(appender: LogAppendClient, feed: Feed) -> None:
    with pytest.raises(TooLarge):
        await appender.append(writes(feed), halves(1, 18, value=b" " * 1_000_000))
    assert (await appender.append(writes(feed), halves(1, 1))).first_sequence_id == 1
