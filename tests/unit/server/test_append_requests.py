"""The same entries over gRPC and over HTTP are the same append of the log: halves, digest, places, what is kept."""

from __future__ import annotations

import msgspec
import pytest

from headrace.client.log_append import Writes, encode_request
from headrace.entries.entry import Change
from headrace.errors import InvalidRequest
from headrace.log.requests import Append, Chain
from headrace.log.tail import FeedSettings
from headrace.server import encoding
from headrace.server.grpc.append_requests import append_of
from headrace.wire.documents import EntryIn
from headrace.wire.entry import encode_half
from headrace.wire.frame import Area
from headrace.wire.generated import log_pb2

FEED = "vmapi::vm"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
INCARNATION = "0b8e9d3c-5d0f-4a55-8a6e-0f2f6f6f0001"


def over_http(first: int | None) -> Append:
    entries = [
        EntryIn(
            changes=msgspec.Raw(b'{"number":%d}' % number),
            key=f"key-{number}",
            agent_id="agent-1",
            expected_offset=first + number if first is not None else msgspec.UNSET,
            tx="t",
            tx_last=number == 1,
        )
        for number in range(3)
    ]
    terms = encoding.PostTerms(
        epoch=4,
        incarnation=INCARNATION,
        source_position=b"p",
        marked_at_ms=5,
        posted_at_ms=6,
        traceparent=TRACE,
    )
    return encoding.append_of(FEED, FeedSettings(), entries, terms)


def request(first: int | None) -> log_pb2.AppendRequest:
    halves = [
        encode_half(
            Change(b'{"number":%d}' % number, key=b"key-%d" % number, source_tx=b"t", tx_last=number == 1)
        )
        for number in range(3)
    ]
    writes = Writes(FEED, "agent-1", 4, INCARNATION)
    data = encode_request(writes, halves, expected_offset=first, source_position=b"p")
    made = log_pb2.AppendRequest.FromString(data)
    made.marked_at_ms, made.traceparent = 5, TRACE
    return made


async def over_grpc(made: log_pb2.AppendRequest, chain: Chain | None = None) -> Append:
    return await append_of(made, made.ByteSize(), now_ms=6, chain=chain)


@pytest.mark.parametrize("first", [None, 7])
async def test_both_faces_make_the_same_append(first: int | None) -> None:
    chain = Chain()
    there, here = over_http(first), await over_grpc(request(first), chain)
    for member in (
        "feed",
        "producer",
        "halves",
        "digest",
        "epoch",
        "incarnation",
        "transaction_ends",
        "area",
    ):
        assert getattr(here, member) == getattr(there, member), member
    assert list(here.expected_offsets) == list(there.expected_offsets)
    assert here.chain is chain


async def test_places_are_none_one_or_one_for_each() -> None:
    made = request(None)
    for offsets, places in (([], []), ([-1], []), ([7], [7, 8, 9]), ([-1, 8, -1], [-1, 8, -1])):
        del made.expected_offsets[:]
        made.expected_offsets.extend(offsets)
        assert list((await over_grpc(made)).expected_offsets) == places
    made.expected_offsets.append(9)
    with pytest.raises(InvalidRequest, match="4 places for 3 entries"):
        await over_grpc(made)


async def test_what_is_left_out_is_filled_in_by_the_server() -> None:
    made = request(None)
    made.epoch, made.incarnation, made.traceparent = 0, b"", "nonsense"
    append = await over_grpc(made)
    assert (append.epoch, append.incarnation) == (None, None)
    assert Area.TRACEPARENT not in append.area
    assert append.area[Area.POSTED_AT_MS] == encoding.MS.pack(6)
    made.posted_at_ms = 9
    assert (await over_grpc(made)).area[Area.POSTED_AT_MS] == encoding.MS.pack(9)


async def test_an_incarnation_is_a_uuid() -> None:
    made = request(None)
    made.incarnation = b"short"
    with pytest.raises(InvalidRequest, match="incarnation"):
        await over_grpc(made)
