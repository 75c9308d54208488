"""Appends over gRPC (``headrace.log.v1.LogAppend``): one by one, or pipelined over a stream. Never retries by itself.

The producer registers over HTTP first (:meth:`headrace.client.http.FeedClient.register_publisher`). Entries are given as
producer's halves (:func:`headrace.wire.entry.encode_half`), which are encoded once and stored as they are. Where all are
puts, :func:`headrace.wire.halves.join_puts` makes them in one go, several times as fast.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import grpc

from headrace import errors
from headrace.client.channel import Caller, error_of_refusal, error_of_status
from headrace.client.credential import Credential
from headrace.entries.lsn import Lsn
from headrace.wire import varint
from headrace.wire.generated import log_pb2
from headrace.wire.halves import Joined, join_halves

_SERVICE: Final = "/headrace.log.v1.LogAppend/"
_ENTRIES: Final = varint.tag(5, 2)


class Stored(NamedTuple):
    """Where an append stands. ``duplicate``: it had been stored before; these are its original places."""

    first_sequence_id: int
    last_sequence_id: int
    first_lsn: Lsn
    last_lsn: Lsn
    incarnation: str
    duplicate: bool


class Writes(NamedTuple):
    """Who appends to what. ``epoch`` None: judged as that of the producer's last registration."""

    feed: str
    producer_id: str
    epoch: int | None = None
    incarnation: str | None = None


class LogAppendClient:
    """A channel to one server's ``LogAppend``. Use as ``async with LogAppendClient(address) as client``."""

    def __init__(
        self,
        address: str,
        *,
        token: str | Credential | None = None,
        insecure: bool = False,
        ca_file: Path | None = None,
    ) -> None:
        """Speak to ``HOST:PORT``, with TLS to ``https://HOST:PORT``; nothing is sent yet.

        ``token``: see :class:`Caller`. ``ca_file``: the authorities to trust, else those of the environment.
        """
        self._caller = Caller(address, token=token, insecure=insecure, ca_file=ca_file)
        self._bind()

    def _bind(self) -> None:
        channel = self._caller.channel
        self._append = channel.unary_unary(f"{_SERVICE}Append")
        self._stream = channel.stream_stream(f"{_SERVICE}AppendStream")
        self._tail = channel.unary_unary(f"{_SERVICE}Tail")

    async def reconnect(self) -> None:
        """Use a new connection from now on. Calls under way end with ServerUnreachable: their outcome is unknown."""
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
        """Close the channel; calls that are under way end."""
        await self._caller.channel.close()

    async def append(
        self,
        writes: Writes,
        halves: Sequence[bytes] | Joined,
        *,
        expected_offset: int | None = None,
        source_position: bytes = b"",
    ) -> Stored:
        """Append atomically; returns only after it is durable. ``expected_offset``: the place of the first entry.

        Raises the refusal, or ServerUnreachable: the outcome is then unknown, and the same append may be sent again if it
        names its place.
        """
        request = encode_request(
            writes, halves, expected_offset=expected_offset, source_position=source_position
        )
        with self._caller.outliving():
            try:
                data = await self._append(request, metadata=self._caller.metadata())
            except grpc.aio.AioRpcError as error:
                raise error_of_status(error) from None
        return stored_of(log_pb2.AppendResponse.FromString(data))

    def append_stream(self, writes: Writes) -> AppendStream:
        """Return a stream of appends; use it as ``async with client.append_stream(writes) as stream``."""
        return AppendStream(self._stream(metadata=self._caller.metadata()), writes)

    async def tail(self, feed: str, producer_id: str = "") -> log_pb2.FeedEnd:
        """Return where ``feed`` ends, and the last append of ``producer_id``; FeedNotFound."""
        request = log_pb2.TailRequest(feed=feed, producer_id=producer_id).SerializeToString()
        with self._caller.outliving():
            try:
                data = await self._tail(request, metadata=self._caller.metadata())
            except grpc.aio.AioRpcError as error:
                raise error_of_status(error) from None
        answer = log_pb2.TailResponse.FromString(data)
        if answer.HasField("refusal"):
            raise error_of_refusal(answer.refusal)
        return answer.end


class AppendStream:
    """Appends sent one behind the other without waiting, answered in order. Made by :meth:`LogAppendClient.append_stream`.

    Once one is refused, the server refuses those after it (StreamFailed): open a new stream to go on.
    """

    def __init__(self, call: Any, writes: Writes) -> None:
        """Send ``writes``' appends over the call."""
        self._call = call
        self._writes = writes
        self._waiting: deque[asyncio.Future[Stored]] = deque()
        self._end: errors.HeadraceError | None = None
        self._reader = asyncio.create_task(self._read())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.finish()
        self._call.cancel()
        await asyncio.wait({self._reader})

    async def send(
        self,
        halves: Sequence[bytes] | Joined,
        *,
        expected_offset: int | None = None,
        source_position: bytes = b"",
    ) -> asyncio.Future[Stored]:
        """Send an append, and return the future that gets its place or its refusal; waits only while the network is full.

        The future raises ServerUnreachable where the stream ended before the answer: the outcome is then unknown.
        """
        if self._end is not None:
            raise self._end
        request = encode_request(
            self._writes, halves, expected_offset=expected_offset, source_position=source_position
        )
        future: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await self._call.write(request)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await asyncio.wait({self._reader})  # which says how the stream ended
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling() or not self._call.cancelled():
                raise
            await asyncio.wait({self._reader})  # the channel was given up, not this task
        return future

    async def finish(self) -> None:
        """Say that nothing follows, and wait until everything is answered; the futures hold the outcomes."""
        if self._end is None:
            await self._call.done_writing()
        await asyncio.wait({self._reader})

    async def _read(self) -> None:
        end: errors.HeadraceError = errors.ServerUnreachable("the stream of appends has ended")
        try:
            while (data := await self._call.read()) is not grpc.aio.EOF:
                self._settle(log_pb2.AppendResponse.FromString(data))
            if await self._call.code() is not grpc.StatusCode.OK:
                end = errors.ServerUnreachable(
                    f"the stream of appends has ended: {await self._call.details()}"
                )
        except grpc.aio.AioRpcError as error:
            end = error_of_status(error)
        except asyncio.CancelledError:
            if not self._call.cancelled():
                raise
        finally:
            self._end = end
            for future in self._waiting:
                if not future.done():
                    _fail(future, end)
            self._waiting.clear()

    def _settle(self, response: log_pb2.AppendResponse) -> None:
        future = self._waiting.popleft()
        if future.done():
            return
        try:
            future.set_result(stored_of(response))
        except errors.HeadraceError as refusal:
            _fail(future, refusal)


def encode_request(
    writes: Writes,
    halves: Sequence[bytes] | Joined,
    *,
    expected_offset: int | None = None,
    source_position: bytes = b"",
) -> bytes:
    """Return a serialised ``AppendRequest``; the halves are joined once, no message is made of an entry."""
    entries, lengths = halves if isinstance(halves, Joined) else join_halves(halves)
    own = log_pb2.AppendRequest(
        expected_offsets=() if expected_offset is None else (expected_offset,),
        entry_lengths=lengths,
        source_position=source_position,
    )
    size = varint.encode(len(entries))
    return b"".join((_head_of(writes), own.SerializeToString(), _ENTRIES, size, entries))


@lru_cache(maxsize=1024)
def _head_of(writes: Writes) -> bytes:
    """The fields that all appends of a producer to a feed have in common; messages one behind the other are merged."""
    return log_pb2.AppendRequest(
        feed=writes.feed,
        producer_id=writes.producer_id,
        epoch=writes.epoch or 0,
        incarnation=uuid.UUID(writes.incarnation).bytes if writes.incarnation else b"",
    ).SerializeToString()


def stored_of(response: log_pb2.AppendResponse) -> Stored:
    """Return where an append stands, or raise its refusal."""
    if response.HasField("refusal"):
        raise error_of_refusal(response.refusal)
    done = response.appended
    first_lsn = Lsn.parse(done.first_lsn)
    return Stored(
        done.first_sequence_id,
        done.last_sequence_id,
        first_lsn,
        first_lsn if done.last_lsn == done.first_lsn else Lsn.parse(done.last_lsn),
        _uuid_text(done.incarnation),
        done.duplicate,
    )


@lru_cache(maxsize=1024)
def _uuid_text(given: bytes) -> str:
    return str(uuid.UUID(bytes=given))


def _fail(future: asyncio.Future[Stored], error: errors.HeadraceError) -> None:
    """Fail a future that nobody may await any more: it must not be complained of, the stream's end says the same."""
    future.set_exception(error)
    future.exception()
