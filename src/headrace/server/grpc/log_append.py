"""Our service ``headrace.log.v1.LogAppend``: conditional appends one by one or as a stream, and a feed's tail.

An append is answered by ``appended`` or ``refusal``. A status ends a call only where no answer can be given: the request is
no request (INVALID_ARGUMENT), nothing can be stored just now (UNAVAILABLE), what to compare with is damaged (DATA_LOSS).
"""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from typing import Any, Final

import grpc

from headrace.entries.feed import check_agent_id, check_feed_id
from headrace.errors import HeadraceError, Refused, StreamFailed, Unavailable
from headrace.log.requests import Append, Appended, Chain
from headrace.runtime.clock import Clock
from headrace.server.grpc.append_requests import (
    append_of,
    appended_response,
    refusal_message,
    refused_response,
    uuid_bytes,
)
from headrace.server.grpc.calls import Calls, parse, write
from headrace.server.service import Service
from headrace.wire import documents as doc
from headrace.wire.generated import log_pb2

SERVICE: Final = "headrace.log.v1.LogAppend"
WAITING_MAX: Final = 256
"""Appends of one stream that wait for their answers; the next one is read when there is room."""
WAITING_BYTES_MAX: Final = 32 << 20
"""Their bytes, save that it is always one."""


class LogAppend:
    """The service over one server's use cases."""

    def __init__(self, service: Service, clock: Clock) -> None:
        self._service = service
        self._clock = clock
        self._streams: set[_Stream] = set()
        self._stopping = False
        self.calls = Calls()

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the service for a gRPC server; requests and answers are bytes."""
        answering = self.calls.answering
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Append": grpc.unary_unary_rpc_method_handler(answering(self._append)),
                "AppendStream": grpc.stream_stream_rpc_method_handler(answering(self._append_stream)),
                "Tail": grpc.unary_unary_rpc_method_handler(answering(self._tail)),
            },
        )

    def stop(self) -> None:
        """Read no further request of any stream; what was read is answered, then the streams end with UNAVAILABLE."""
        self._stopping = True
        for stream in self._streams:
            stream.stop()

    async def _append(self, data: bytes, _: Any) -> bytes:
        request = parse(log_pb2.AppendRequest, data)
        try:
            appended = await self.append_soon(await self.decode(request, len(data), None))
            return appended_response(request.request, appended)
        except Refused as refusal:
            return refused_response(request.request, refusal)

    async def _append_stream(self, _: Any, context: Any) -> None:
        stream = _Stream(self, context)
        self._streams.add(stream)
        try:
            if self._stopping:
                stream.stop()
            await stream.run()
        finally:
            self._streams.discard(stream)

    async def _tail(self, data: bytes, _: Any) -> bytes:
        request = parse(log_pb2.TailRequest, data)
        try:
            feed = check_feed_id(request.feed)
            producer = check_agent_id(request.producer_id, "producer_id") if request.producer_id else None
            tail = await self._service.tail(feed, producer)
        except Refused as refusal:
            return log_pb2.TailResponse(refusal=refusal_message(refusal)).SerializeToString()
        return log_pb2.TailResponse(end=_end(tail)).SerializeToString()

    async def decode(self, request: log_pb2.AppendRequest, request_bytes: int, chain: Chain | None) -> Append:
        """Return the append that a request stands for; raises InvalidRequest and TooLarge."""
        return await append_of(request, request_bytes, now_ms=self._clock.wall_ms(), chain=chain)

    def append_soon(self, append: Append) -> asyncio.Future[Appended]:
        """Queue an append; the future gets its places or its refusal."""
        return self._service.append_soon(append)


class _Stream:
    """One ``AppendStream``: a task reads and submits, the call's own answers in order."""

    def __init__(self, face: LogAppend, context: Any) -> None:
        self._face = face
        self._context = context
        self._chain = Chain()
        self._broken = False
        self._answers: deque[tuple[asyncio.Future[Appended], int, int]] = deque()
        self._waiting_bytes = 0
        self._is_full = False
        self._moved = asyncio.Event()
        self._settled = asyncio.Event()
        self._reader = asyncio.create_task(self._read())
        self._reader.add_done_callback(lambda _: self._settled.set())

    def stop(self) -> None:
        """Read no further."""
        self._reader.cancel()

    async def run(self) -> None:
        """Answer until the client has ended its side and everything is answered."""
        try:
            while await self._has_answer():
                future, request, size = self._answers.popleft()
                try:
                    answer = appended_response(request, future.result())
                except Refused as refusal:
                    answer = refused_response(request, refusal)
                self._waiting_bytes -= size
                if self._is_full:
                    self._moved.set()
                await write(self._context, answer)
            if self._reader.cancelled():
                raise Unavailable("the server is stopping", hint="Ask for the tail, then open a new stream.")
            self._reader.result()
        finally:
            self._reader.cancel()
            left = [future for future, _, _ in self._answers]
            for future in left:
                future.cancel()
            await asyncio.gather(self._reader, *left, return_exceptions=True)

    async def _has_answer(self) -> bool:
        """Wait for the outcome of the first append that waits; False once there is none and none can follow."""
        while not (self._answers and self._answers[0][0].done()):
            if not self._answers and self._reader.done():
                return False
            self._settled.clear()
            await self._settled.wait()
        return True

    def _note_settled(self, future: asyncio.Future[Appended]) -> None:
        """Wake who answers, if it is the first that waits; the later ones are answered when their turn comes."""
        if self._answers and self._answers[0][0] is future:
            self._settled.set()

    async def _read(self) -> None:
        while (data := await self._context.read()) is not grpc.aio.EOF:
            while self._answers and not self._has_room(len(data)):
                self._is_full = True
                self._moved.clear()
                await self._moved.wait()
            self._is_full = False
            request = parse(log_pb2.AppendRequest, data)
            future = await self._begin(request, len(data))
            self._answers.append((future, request.request, len(data)))
            self._waiting_bytes += len(data)
            future.add_done_callback(self._note_settled)

    def _has_room(self, size: int) -> bool:
        return len(self._answers) < WAITING_MAX and self._waiting_bytes + size <= WAITING_BYTES_MAX

    async def _begin(self, request: log_pb2.AppendRequest, size: int) -> asyncio.Future[Appended]:
        """Submit the request, and return what its answer will be.

        One that can't be read is refused here, and those after it too; those before it, which the writer may still be
        judging, are not touched.
        """
        try:
            if self._broken or self._chain.failed:
                raise StreamFailed(side_effects="possible")
            append = await self._face.decode(request, size, self._chain)
        except HeadraceError as refusal:
            self._broken = True
            future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
            future.set_exception(refusal)
            return future
        return self._face.append_soon(append)


def _end(tail: doc.Tail) -> log_pb2.FeedEnd:
    last = tail.last_frame
    return log_pb2.FeedEnd(
        next_sequence_id=tail.next_sequence_id,
        newest_lsn=tail.newest_lsn,
        incarnation=uuid_bytes(tail.incarnation),
        region_id=tail.region_id,
        owner=tail.owner,
        epoch=tail.epoch,
        last_frame=log_pb2.LastFrame(
            first_sequence_id=last.first_sequence_id,
            count=last.count,
            source_position=base64.b64decode(last.source_position),
        )
        if last is not None
        else None,
    )
