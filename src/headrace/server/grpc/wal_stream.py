"""RFC-010's service ``kdb.wal.v1.WalStream``: its clients work unchanged."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from typing import Any, Final

import grpc

from headrace.access.expiry import until_expired
from headrace.access.grants import Grant
from headrace.entries.feed import check_agent_id
from headrace.entries.lsn import Lsn
from headrace.errors import (
    BackpressureTimeout,
    BeyondHead,
    HeadraceError,
    InvalidRequest,
    JournalCorrupt,
    LsnNotAvailable,
    MetadataCorrupt,
    SequenceLost,
)
from headrace.log.log import Log
from headrace.runtime.logs import get_logger
from headrace.server.grpc.calls import Calls, Door, begin, parse, write
from headrace.server.guard import May, StreamRights
from headrace.server.streams.selection import Selection
from headrace.server.streams.subscriptions import TOO_SLOW, Ask, Subscriber, Subscriptions
from headrace.server.streams.terms import StreamTerms
from headrace.server.traffic import Traffic
from headrace.wire.batch import (
    BATCH_ENTRIES_MAX,
    Batch,
    Heartbeat,
    encode_batch,
    encode_error,
    encode_heartbeat,
)
from headrace.wire.compression import NONE, choose
from headrace.wire.filters import parse_shard
from headrace.wire.generated import wal_pb2

logger = get_logger("server.grpc")

SERVICE: Final = "kdb.wal.v1.WalStream"
SUBSCRIBER_METADATA: Final = "subscriber-id"
"""Metadata by which a subscriber names itself; without it all subscribers of one subject are one."""
TIME_MS_MAX: Final = (1 << 46) - 1
"""The last millisecond that an LSN can name."""


class WalStream:
    """The service over one server's subscriptions."""

    def __init__(
        self,
        log: Log,
        subscriptions: Subscriptions,
        door: Door,
        traffic: Traffic,
        terms: StreamTerms | None = None,
    ) -> None:
        """``traffic`` counts calls, and the bytes that are sent."""
        self._log = log
        self._terms = terms or StreamTerms()
        self._door = door
        self._subscriptions = subscriptions
        self._traffic = traffic
        self.calls = Calls(traffic)

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the service for a gRPC server; requests and answers are bytes."""
        answering = self.calls.answering
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Subscribe": grpc.unary_stream_rpc_method_handler(answering("Subscribe", self._subscribe)),
                "Ack": grpc.unary_unary_rpc_method_handler(answering("Ack", self._ack)),
                "GetLSN": grpc.unary_unary_rpc_method_handler(answering("GetLSN", self._get_lsn)),
            },
        )

    async def _subscribe(self, request: bytes, context: Any) -> None:
        grant = await self._door.grant_of(context, May.REPLICATE)
        stalled = asyncio.timeout(None)
        try:
            async with until_expired(grant, self._door.clock), stalled:
                await self._stream(request, context, grant, stalled)
        except TimeoutError:
            if not stalled.expired():
                raise
            logger.warning("a stream is cut off in the middle of a message", reason=TOO_SLOW)
            raise BackpressureTimeout(TOO_SLOW) from None

    async def _stream(self, request: bytes, context: Any, grant: Grant, stalled: asyncio.Timeout) -> None:
        wanted = parse(wal_pb2.SubscribeRequest, request)
        loop, who = asyncio.get_running_loop(), _subscriber(context, grant)

        def on_stalled() -> None:
            """The message that is being sent is waited for, so that the last word comes behind it; but not for ever."""
            logger.warning("a subscriber lost its stream", reason=TOO_SLOW, who=who)
            stalled.reschedule(loop.time() + self._terms.backpressure_timeout_s)

        items = self._subscriptions.subscribe(who, self._asked(wanted, grant), on_stalled=on_stalled)
        has_begun = False
        named = _Named(self._log)
        try:
            async with aclosing(items):
                async for item in items:
                    if not has_begun:
                        await begin(context)
                        has_begun = True
                    if isinstance(item, Heartbeat):
                        data = encode_heartbeat(item)
                    else:
                        data = await self._encoded(item, named.new_in(item), wanted)
                    await write(context, data)
                    self._traffic.stream_bytes_sent += len(data)
        except (LsnNotAvailable, BackpressureTimeout) as error:
            await write(context, encode_error(error.detail))
        except (BeyondHead, JournalCorrupt, MetadataCorrupt, SequenceLost) as error:
            if isinstance(error, JournalCorrupt):
                await asyncio.to_thread(self._log.troubles.tell, JournalCorrupt, error.detail)
            await write(context, encode_error(error.detail))
            raise

    def _asked(self, wanted: wal_pb2.SubscribeRequest, grant: Grant) -> Ask:
        """What a request asks for, as far as the token allows it. InvalidRequest, Forbidden."""
        if wanted.start_lsn and wanted.start_time_ms:
            raise InvalidRequest("start_lsn and start_time_ms: only one of them can be given")
        if wanted.start_time_ms > TIME_MS_MAX:
            raise InvalidRequest(f"start_time_ms={wanted.start_time_ms} is no time", member="start_time_ms")
        if wanted.tenant_filter:
            grant = grant.narrowed(tenant=wanted.tenant_filter)
        sees_all = grant.may_administer() and not wanted.tenant_filter
        return Ask(
            start=Lsn.parse(wanted.start_lsn) if wanted.start_lsn else None,
            start_time_ms=wanted.start_time_ms or None,
            selection=Selection(
                None if sees_all else StreamRights(self._log.store, grant),
                key_prefix=wanted.key_prefix_filter,
                shard=parse_shard(wanted.shard or None),
            ),
            entries_max=wanted.batch_size_hint or BATCH_ENTRIES_MAX,
        )

    async def _encoded(
        self, batch: Batch, incarnations: dict[int, str], wanted: wal_pb2.SubscribeRequest
    ) -> bytes:
        """The batch as a message; compressed in a worker thread, which can take a while."""
        encode = partial(encode_batch, batch, incarnations=incarnations, want_lengths=wanted.want_lengths)
        kind = choose(wanted.accept_compression, batch.size, self._terms.compression)
        if kind == NONE:
            return encode()
        return await asyncio.to_thread(encode, compression=kind)

    async def _ack(self, request: bytes, context: Any) -> bytes:
        grant = await self._door.grant_of(context, May.REPLICATE)
        ask = parse(wal_pb2.AckRequest, request)
        watermark = await self._subscriptions.ack(_subscriber(context, grant), Lsn.parse(ask.ack_lsn))
        return wal_pb2.AckResponse(watermark_lsn=str(watermark)).SerializeToString()

    async def _get_lsn(self, request: bytes, context: Any) -> bytes:
        grant = await self._door.grant_of(context, May.REPLICATE)
        parse(wal_pb2.GetLSNRequest, request)
        bounds = await self._subscriptions.bounds()
        place = await self._subscriptions.place(_subscriber(context, grant))
        answer = wal_pb2.GetLSNResponse(
            head_lsn=str(bounds.head),
            oldest_lsn=str(bounds.oldest),
            place_lsn=str(place) if place is not None else "",
        )
        return answer.SerializeToString()


class _Named:
    """Of which feeds a stream has said the incarnation; said again should it change."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._feeds: dict[int, str] = {}
        self._said: dict[int, str] = {}

    def new_in(self, batch: Batch) -> dict[int, str]:
        """Return the incarnations, by region id, that the stream has to say with this batch."""
        if not batch.regions <= self._feeds.keys():
            self._feeds = {tail.region_id: tail.name for tail in self._log.feeds()}
        new: dict[int, str] = {}
        for region_id in batch.regions & self._feeds.keys():
            try:
                incarnation = self._log.tail(self._feeds[region_id]).incarnation
            except HeadraceError:  # the feed's state has been damaged meanwhile; its entries have not
                continue
            if self._said.get(region_id) != incarnation:
                new[region_id] = self._said[region_id] = incarnation
        return new


def _subscriber(context: Any, grant: Grant) -> Subscriber:
    given = [value for key, value in context.invocation_metadata() or () if key == SUBSCRIBER_METADATA]
    if len(given) > 1:
        raise InvalidRequest(
            f"{SUBSCRIBER_METADATA}: is given {len(given)} times", member=SUBSCRIBER_METADATA
        )
    name = check_agent_id(str(given[0]), SUBSCRIBER_METADATA) if given and given[0] else ""
    return Subscriber(grant.subject, name)
