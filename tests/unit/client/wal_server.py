"""A real gRPC server that speaks ``WalStream`` as a test tells it, or does what no server should."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc

from headrace.entries.entry import Change
from headrace.entries.lsn import Lsn, lsn_of
from headrace.wire import entry as wal_entry
from headrace.wire.batch import Batch, encode_batch
from headrace.wire.generated import wal_pb2

T = TypeVar("T")
TS = 1_800_000_000_000 << 18
REGION = 7
Stream = Callable[[wal_pb2.SubscribeRequest, Any], Awaitable[None]]


def lsn(number: int) -> Lsn:
    """The LSN of entry ``number``."""
    return lsn_of(TS + number, REGION, number, 0)


def batch(first: int, last: int, *changes: Change, incarnation: str = "", compression: int = 0) -> bytes:
    """Entries ``first`` … ``last`` as one message, each an append of its own, with its number as value unless given."""
    given = changes or [Change(b"%d" % number, key=b"k") for number in range(first, last + 1)]
    bodies, lengths = b"", array("I")
    for number, change in zip(range(first, last + 1), given, strict=True):
        body, _ = wal_entry.stamp(
            [wal_entry.encode_half(change)],
            global_ts=TS + number,
            region_id=REGION,
            first_sequence_id=number,
            tenant="t",
            key_prefix="main:t:feed:",
        )
        bodies += body
        lengths.append(len(body))
    made = Batch(
        [memoryview(bodies)],
        [memoryview(wal_entry.lengths_bytes(lengths))],
        len(bodies),
        len(lengths),
        lsn(first),
        lsn(last),
        0,
        0,
        frozenset({REGION}),
    )
    named = {REGION: incarnation} if incarnation else {}
    return encode_batch(made, incarnations=named, want_lengths=True, compression=compression)


@dataclass
class WalServer:
    """``streams``: what each Subscribe does in turn, the last one again and again. ``refuse_ack``: None to take it."""

    streams: list[Stream]
    refuse_ack: Callable[[Lsn], tuple[grpc.StatusCode, str] | None] = lambda _: None
    asked: list[wal_pb2.SubscribeRequest] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    acks: list[Lsn] = field(default_factory=list)
    open_streams: int = 0
    place: Lsn | None = None
    address: str = ""

    async def subscribe(self, request: bytes, context: Any) -> None:
        """Do what is next."""
        self.asked.append(wal_pb2.SubscribeRequest.FromString(request))
        self.tokens.append(str(dict(context.invocation_metadata()).get("authorization", "")))
        stream = self.streams[min(len(self.asked), len(self.streams)) - 1]
        self.open_streams += 1
        try:
            await stream(self.asked[-1], context)
        finally:
            self.open_streams -= 1

    async def get_lsn(self, _: bytes, __: Any) -> bytes:
        """Say the place of the subscriber, as told."""
        return wal_pb2.GetLSNResponse(place_lsn=str(self.place) if self.place else "").SerializeToString()

    async def ack(self, request: bytes, context: Any) -> bytes:
        """Take an ack, or refuse it."""
        asked = Lsn.parse(wal_pb2.AckRequest.FromString(request).ack_lsn)
        refusal = self.refuse_ack(asked)
        if refusal is not None:
            await context.abort(*refusal)
        self.acks.append(asked)
        return wal_pb2.AckResponse(watermark_lsn=str(asked)).SerializeToString()


@asynccontextmanager
async def wal_server(*streams: Stream, **given: Any) -> AsyncIterator[WalServer]:
    """Serve it for the length of a ``with``."""
    told = WalServer(list(streams), **given)
    server = grpc.aio.server()
    handlers = {
        "Subscribe": grpc.unary_stream_rpc_method_handler(told.subscribe),
        "GetLSN": grpc.unary_unary_rpc_method_handler(told.get_lsn),
        "Ack": grpc.unary_unary_rpc_method_handler(told.ack),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("kdb.wal.v1.WalStream", handlers),))
    told.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield told
    finally:
        await server.stop(0)


def sends(*messages: bytes, then: Stream | None = None) -> Stream:
    """A stream that sends these, and then ends, or goes on as told."""

    async def stream(request: wal_pb2.SubscribeRequest, context: Any) -> None:
        for message in messages:
            await context.write(message)
        if then is not None:
            await then(request, context)

    return stream


async def take_all(items: AsyncIterator[T], found: list[T]) -> None:
    """Read until it ends or raises; what came before stays in ``found``."""
    async for item in items:
        found.append(item)  # noqa: PERF401  # extend would keep nothing of what came before an error


def fails(code: grpc.StatusCode, detail: str = "told to", **metadata: str) -> Stream:
    """A stream that ends with this status."""

    async def stream(_: wal_pb2.SubscribeRequest, context: Any) -> None:
        trailing = tuple((name.replace("_", "-"), value) for name, value in metadata.items())
        await context.abort(code, detail, trailing)

    return stream
