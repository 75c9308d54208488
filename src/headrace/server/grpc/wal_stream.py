"""RFC-010's service ``kdb.wal.v1.WalStream``: its clients work unchanged. Filters are not offered yet."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, Final

import grpc

from headrace.access.expiry import until_expired
from headrace.access.grants import Grant
from headrace.entries.feed import check_agent_id
from headrace.entries.lsn import Lsn
from headrace.errors import (
    BeyondHead,
    InvalidRequest,
    JournalCorrupt,
    LsnNotAvailable,
    MetadataCorrupt,
    SequenceLost,
)
from headrace.log.log import Log
from headrace.server.grpc.calls import Calls, Door, parse, write
from headrace.server.guard import May, StreamRights
from headrace.server.subscriptions import Subscriber, Subscriptions
from headrace.wire.batch import (
    BATCH_ENTRIES_MAX,
    Batch,
    Heartbeat,
    encode_batch,
    encode_error,
    encode_heartbeat,
)
from headrace.wire.generated import wal_pb2

SERVICE: Final = "kdb.wal.v1.WalStream"
SUBSCRIBER_METADATA: Final = "subscriber-id"
"""Metadata by which a subscriber names itself; without it all subscribers of one subject are one."""


class WalStream:
    """The service over one server's subscriptions."""

    def __init__(self, log: Log, subscriptions: Subscriptions, door: Door) -> None:
        self._log = log
        self._door = door
        self._subscriptions = subscriptions
        self.calls = Calls()

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the service for a gRPC server; requests and answers are bytes."""
        answering = self.calls.answering
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Subscribe": grpc.unary_stream_rpc_method_handler(answering(self._subscribe)),
                "Ack": grpc.unary_unary_rpc_method_handler(answering(self._ack)),
                "GetLSN": grpc.unary_unary_rpc_method_handler(answering(self._get_lsn)),
            },
        )

    async def _subscribe(self, request: bytes, context: Any) -> None:
        grant = await self._door.grant_of(context, May.REPLICATE)
        async with until_expired(grant, self._door.clock):
            await self._stream(request, context, grant)

    async def _stream(self, request: bytes, context: Any, grant: Grant) -> None:
        ask = parse(wal_pb2.SubscribeRequest, request)
        for member in ("tenant_filter", "key_prefix_filter"):
            if getattr(ask, member):
                raise InvalidRequest(f"{member}: this version of the server does not offer it", member=member)
        start = Lsn.parse(ask.start_lsn) if ask.start_lsn else None
        items = self._subscriptions.subscribe(
            _subscriber(context, grant),
            start,
            entries_max=ask.batch_size_hint or BATCH_ENTRIES_MAX,
            rights=None if grant.may_administer() else StreamRights(self._log.store, grant),
        )
        named = _Named(self._log)
        try:
            async with aclosing(items):
                async for item in items:
                    if isinstance(item, Heartbeat):
                        await write(context, encode_heartbeat(item))
                    else:
                        incarnations = named.new_in(item)
                        await write(
                            context,
                            encode_batch(item, incarnations=incarnations, want_lengths=ask.want_lengths),
                        )
        except LsnNotAvailable as error:
            await write(context, encode_error(error.detail))
        except (BeyondHead, JournalCorrupt, MetadataCorrupt, SequenceLost) as error:
            if isinstance(error, JournalCorrupt):
                await asyncio.to_thread(self._log.troubles.tell, JournalCorrupt, error.detail)
            await write(context, encode_error(error.detail))
            raise

    async def _ack(self, request: bytes, context: Any) -> bytes:
        grant = await self._door.grant_of(context, May.REPLICATE)
        ask = parse(wal_pb2.AckRequest, request)
        watermark = await self._subscriptions.ack(_subscriber(context, grant), Lsn.parse(ask.ack_lsn))
        return wal_pb2.AckResponse(watermark_lsn=str(watermark)).SerializeToString()

    async def _get_lsn(self, request: bytes, context: Any) -> bytes:
        await self._door.grant_of(context, May.REPLICATE)
        parse(wal_pb2.GetLSNRequest, request)
        bounds = await self._subscriptions.bounds()
        answer = wal_pb2.GetLSNResponse(head_lsn=str(bounds.head), oldest_lsn=str(bounds.oldest))
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
            incarnation = self._log.tail(self._feeds[region_id]).incarnation
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
