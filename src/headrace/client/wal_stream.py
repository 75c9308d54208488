"""A subscriber of the stream over all feeds (RFC-010's ``WalStream``): batches as slices, acks, the log's bounds.

::

    async with WalClient("127.0.0.1:8471", subscriber_id="backup") as wal:
        async for item in wal.subscribe(start):
            if isinstance(item, ReceivedBatch): ...; await wal.ack(item.last_lsn)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Final, Self

import grpc

from headrace import errors
from headrace.client.channel import Caller, error_of_status
from headrace.client.credential import Credential
from headrace.entries.lsn import Lsn
from headrace.wire.batch import Heartbeat, ReceivedBatch, StreamError, decode_response
from headrace.wire.generated import wal_pb2

_SERVICE: Final = "/kdb.wal.v1.WalStream/"


class WalClient:
    """A channel to one server's ``WalStream``; ``subscriber_id`` names whose place the acks move."""

    def __init__(
        self,
        address: str,
        *,
        subscriber_id: str = "",
        token: str | Credential | None = None,
        insecure: bool = False,
    ) -> None:
        """Speak to ``HOST:PORT``, with TLS to ``https://HOST:PORT``; nothing is sent yet. ``token``: see :class:`Caller`."""
        named = (("subscriber-id", subscriber_id),) if subscriber_id else ()
        self._caller = Caller(address, token=token, insecure=insecure, metadata=named)
        self._channel = self._caller.channel
        self._subscribe = self._channel.unary_stream(f"{_SERVICE}Subscribe")
        self._ack = self._channel.unary_unary(f"{_SERVICE}Ack")
        self._get_lsn = self._channel.unary_unary(f"{_SERVICE}GetLSN")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the channel; calls that are under way end."""
        await self._channel.close()

    async def subscribe(
        self, start: Lsn | None = None, *, batch_entries: int = 0
    ) -> AsyncGenerator[ReceivedBatch | Heartbeat, None]:
        """Yield every entry at ``start`` or later (None: from the oldest retained on) in batches, and heartbeats between.

        ``batch_entries``: at most so many a batch, if given. Raises LsnNotAvailable, BeyondHead, JournalCorrupt (its text
        names the LSN to go on from), ServerUnreachable. Never resumes by itself: the last LSN that was acked is where to.
        """
        ask = wal_pb2.SubscribeRequest(
            start_lsn=str(start) if start is not None else "",
            batch_size_hint=batch_entries,
            want_lengths=True,
        )
        call = self._subscribe(ask.SerializeToString(), metadata=self._caller.metadata())
        try:
            while (data := await call.read()) is not grpc.aio.EOF:
                item = decode_response(data)
                if not isinstance(item, StreamError):
                    yield item
                elif item.text.startswith("lsn_not_available"):
                    raise errors.LsnNotAvailable(item.text)
            raise errors.ServerUnreachable("the server has ended the stream")
        except grpc.aio.AioRpcError as error:
            raise error_of_status(error) from None
        finally:
            call.cancel()

    async def ack(self, lsn: Lsn) -> Lsn:
        """Say that everything up to ``lsn`` is done; durable when it returns. Returns the least place of all subscribers."""
        ask = wal_pb2.AckRequest(ack_lsn=str(lsn)).SerializeToString()
        try:
            answer = await self._ack(ask, metadata=self._caller.metadata())
        except grpc.aio.AioRpcError as error:
            raise error_of_status(error) from None
        return Lsn.parse(wal_pb2.AckResponse.FromString(answer).watermark_lsn)

    async def bounds(self) -> tuple[Lsn, Lsn]:
        """Return (head, oldest retained) LSN; both ZERO on an empty log."""
        try:
            answer = await self._get_lsn(b"", metadata=self._caller.metadata())
        except grpc.aio.AioRpcError as error:
            raise error_of_status(error) from None
        found = wal_pb2.GetLSNResponse.FromString(answer)
        return Lsn.parse(found.head_lsn), Lsn.parse(found.oldest_lsn)
