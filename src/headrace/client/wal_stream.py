"""A subscriber of the stream over all feeds (RFC-010's ``WalStream``): batches as slices, acks, the log's bounds.

::

    async with WalClient("127.0.0.1:8471", subscriber_id="backup") as wal:
        async for item in wal.subscribe(start):
            if isinstance(item, ReceivedBatch): ...; await wal.ack(item.last_lsn)

One stream, as it is: who wants it to go on over lost connections takes
:class:`headrace.client.wal_subscription.WalSubscription`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import grpc

from headrace import errors
from headrace.client.channel import Caller, error_of_status
from headrace.client.credential import Credential
from headrace.client.wal_answers import StreamOrder, error_of_text
from headrace.client.wal_credential import AskedCredential
from headrace.entries.lsn import Lsn
from headrace.wire.batch import Heartbeat, ReceivedBatch, StreamError
from headrace.wire.generated import wal_pb2

_SERVICE: Final = "/kdb.wal.v1.WalStream/"
_LAST_STATUS_S: Final = 5.0
"""How long the status behind a stream's last word is waited for."""
COMPRESSIONS: Final = {"snappy": wal_pb2.SNAPPY, "zstd": wal_pb2.ZSTD}
"""What can be named in ``compression``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamFilter:
    """Which of the permitted entries a stream carries; all of them where nothing is named.

    ``key_prefix``: what ``key_prefix + key`` begins with. ``shard``: ``2/8`` is the second of eight parts of the keys.
    """

    tenant: str = ""
    key_prefix: str = ""
    shard: str = ""


EVERYTHING: Final = StreamFilter()


class WalClient:
    """A channel to one server's ``WalStream``; ``subscriber_id`` names whose place the acks move."""

    def __init__(
        self,
        address: str,
        *,
        subscriber_id: str = "",
        token: str | Credential | Callable[[], str] | None = None,
        insecure: bool = False,
        ca_file: Path | None = None,
    ) -> None:
        """Speak to ``HOST:PORT``, with TLS to ``https://HOST:PORT``; nothing is sent yet.

        ``token``: see :class:`Caller`; a function is asked before each call, and must not block. ``ca_file``: the
        authorities to trust, else those of the environment.
        """
        named = (("subscriber-id", subscriber_id),) if subscriber_id else ()
        if token is not None and not isinstance(token, str | Credential):
            token = AskedCredential(token)
        self.renews_token: Final = isinstance(token, Credential)
        """Whether the next call may have another token than the last one."""
        self._caller = Caller(address, token=token, insecure=insecure, metadata=named, ca_file=ca_file)
        self._bind()
        self._closed = False

    def _bind(self) -> None:
        channel = self._caller.channel
        self._subscribe = channel.unary_stream(f"{_SERVICE}Subscribe")
        self._ack = channel.unary_unary(f"{_SERVICE}Ack")
        self._get_lsn = channel.unary_unary(f"{_SERVICE}GetLSN")

    async def reconnect(self) -> None:
        """Use a new connection from now on. Calls and streams under way end with ServerUnreachable."""
        old = self._caller.renew()
        self._bind()
        await old.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the channel; calls that are under way, and later ones, end with Usage."""
        self._closed = True
        await self._caller.channel.close()

    async def subscribe(
        self,
        start: Lsn | None = None,
        *,
        start_time_ms: int | None = None,
        only: StreamFilter = EVERYTHING,
        batch_entries: int = 0,
        compression: Collection[str] = (),
        want_lengths: bool = True,
    ) -> AsyncGenerator[ReceivedBatch | Heartbeat, None]:
        """Yield the entries at ``start`` or later, or committed at ``start_time_ms`` or later, and heartbeats between.

        With neither, from the oldest retained entry on. ``batch_entries``: at most so many a batch, if given.
        ``compression``: names of :data:`COMPRESSIONS` that the server may use. Batches come in LSN order, none twice, each
        with the LSNs that it says; the entries themselves are not looked at (:func:`headrace.wire.batch_check.check_batch`).

        Raises LsnNotAvailable, BeyondHead, JournalCorrupt and SequenceLost (``resume-lsn`` says where one can go on),
        BackpressureTimeout, Unauthenticated at the token's end, Forbidden, InvalidRequest, ServerUnreachable, Usage once
        the client is closed, and JournalCorrupt for what no such server sends. Never resumes by itself. Close the
        generator: the server counts on it.
        """
        ask = wal_pb2.SubscribeRequest(
            start_lsn=str(start) if start is not None else "",
            tenant_filter=only.tenant,
            key_prefix_filter=only.key_prefix,
            batch_size_hint=batch_entries,
            accept_compression=_compressions(compression),
            want_lengths=want_lengths,
            start_time_ms=start_time_ms or 0,
            shard=only.shard,
        )
        order = StreamOrder(start)
        last_word = ""
        channel = self._caller.channel
        with self._if_closed():
            call = self._subscribe(ask.SerializeToString(), metadata=self._caller.metadata())
        try:
            while (data := await self._next(call, channel)) is not grpc.aio.EOF:
                item = order.checked(data)
                if isinstance(item, StreamError):
                    last_word = item.text
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LAST_STATUS_S):
                            await self._next(call, channel)  # the status says more, where there is one
                    break
                yield item
            raise error_of_text(last_word) if last_word else _ended()
        except grpc.aio.AioRpcError as error:
            found = error_of_status(error)
            raise error_of_text(last_word, type(found)) if last_word else found from None
        finally:
            call.cancel()

    async def ack(self, lsn: Lsn) -> Lsn:
        """Say that everything up to ``lsn`` is done; durable when it returns. Returns the least place of all subscribers.

        Raises InvalidRequest above what was sent, Unavailable, Unauthenticated, Forbidden, Usage once the client is closed.
        """
        ask = wal_pb2.AckRequest(ack_lsn=str(lsn)).SerializeToString()
        answer = await self._answer(self._ack, ask)
        return Lsn.parse(wal_pb2.AckResponse.FromString(answer).watermark_lsn)

    async def bounds(self) -> tuple[Lsn, Lsn]:
        """Return (head, oldest retained) LSN; both ZERO on an empty log."""
        found = await self._asked()
        return Lsn.parse(found.head_lsn), Lsn.parse(found.oldest_lsn)

    async def place(self) -> Lsn | None:
        """Return up to where this subscriber has acked, or just below where it first began; None if that is not known."""
        found = await self._asked()
        return Lsn.parse(found.place_lsn) if found.place_lsn else None

    async def _asked(self) -> wal_pb2.GetLSNResponse:
        return wal_pb2.GetLSNResponse.FromString(await self._answer(self._get_lsn, b""))

    async def _answer(self, method: Callable[..., Awaitable[bytes]], ask: bytes) -> bytes:
        with self._if_closed():
            try:
                return await method(ask, metadata=self._caller.metadata())
            except grpc.aio.AioRpcError as error:
                raise error_of_status(error) from None

    async def _next(self, call: Any, channel: grpc.aio.Channel) -> Any:
        with self._if_closed(channel):
            return await call.read()

    @contextmanager
    def _if_closed(self, channel: grpc.aio.Channel | None = None) -> Iterator[None]:
        """Raise Usage for what gRPC makes of a call whose channel was closed: UsageError, or a cancellation by nobody.

        ServerUnreachable if it was closed because there is a new one.
        """
        try:
            with self._caller.outliving(channel):
                yield
        except grpc.aio.UsageError:
            raise _closed() from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._closed or task is None or task.cancelling():
                raise
            raise _closed() from None


def _closed() -> errors.Usage:
    return errors.Usage(
        "the client is closed", hint="Open another WalClient, and close it after what uses it."
    )


def _ended() -> errors.ServerUnreachable:
    return errors.ServerUnreachable("the server has ended the stream")


def _compressions(names: Collection[str]) -> list[wal_pb2.Compression]:
    unknown = sorted(set(names) - COMPRESSIONS.keys())
    if unknown:
        raise errors.InvalidRequest(
            f"compression={unknown[0]!r} is none of {', '.join(COMPRESSIONS)}", member="compression"
        )
    return [COMPRESSIONS[name] for name in names]
