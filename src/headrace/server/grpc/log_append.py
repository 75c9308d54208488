"""Our service ``headrace.log.v1.LogAppend``: conditional appends one by one or as a stream, and a feed's tail.

An append is answered by ``appended`` or ``refusal``. A status ends a call only where no answer can be given: the request is
no request (INVALID_ARGUMENT), nothing can be stored just now (UNAVAILABLE), what to compare with is damaged (DATA_LOSS).
"""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import grpc

from headrace.access.expiry import expired, seconds_left
from headrace.access.grants import Grant
from headrace.entries.feed import check_agent_id, check_feed_id
from headrace.errors import HeadraceError, Refused, StreamFailed, Unavailable
from headrace.log.answering import W
from headrace.log.requests import Append, Appended, Chain
from headrace.server.grpc.append_requests import (
    append_of,
    appended_response,
    refusal_message,
    refused_response,
    uuid_bytes,
)
from headrace.server.grpc.calls import Calls, Door, parse, write
from headrace.server.guard import May, check_feed
from headrace.server.service import Service
from headrace.wire import documents as doc
from headrace.wire.generated import log_pb2

SERVICE: Final = "headrace.log.v1.LogAppend"
WAITING_MAX: Final = 256
"""Appends of one stream that wait for their answers; the next one is read when there is room."""
WAITING_BYTES_MAX: Final = 32 << 20
"""With so many bytes of them no further one is read."""
HELD_BYTES_MAX: Final = 256 << 20
"""Bytes of appends that wait to be durable, over all calls and streams; one that does not fit is UNAVAILABLE."""
HELD_BYTES_EASY: Final = HELD_BYTES_MAX // 2
"""With so many of them no stream is read: what is under way then can still come to an end without a refusal."""
STREAMS_MAX: Final = 1024
"""Streams of appends open at once; one more is UNAVAILABLE."""
FEEDS_KNOWN_MAX: Final = 1024
"""Feeds of one stream of which it is remembered that the caller may append to them."""


class LogAppend:
    """The service over one server's use cases."""

    def __init__(self, service: Service, door: Door) -> None:
        self._service = service
        self.door = door
        self._streams: set[_Stream] = set()
        self._stopping = False
        self.held = _Held()
        self.traffic = service.traffic
        self.calls = Calls(service.traffic)

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the service for a gRPC server; requests and answers are bytes."""
        answering = self.calls.answering
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Append": grpc.unary_unary_rpc_method_handler(answering("Append", self._append)),
                "AppendStream": grpc.stream_stream_rpc_method_handler(
                    answering("AppendStream", self._append_stream)
                ),
                "Tail": grpc.unary_unary_rpc_method_handler(answering("Tail", self._tail)),
            },
        )

    def stop(self) -> None:
        """Read no further request of any stream; what was read is answered, then the streams end with UNAVAILABLE."""
        self._stopping = True
        for stream in self._streams:
            stream.end(_stopping())

    async def _append(self, data: bytes, context: Any) -> bytes:
        grant = await self.door.grant_of(context, May.PUBLISH)
        request = parse(log_pb2.AppendRequest, data)
        await self.check_feed(grant, May.PUBLISH, request.feed)
        self.held.add(len(data))
        try:
            waiter = asyncio.get_running_loop().create_future()
            appended = await self.append_soon(await self.decode(request, len(data), None), waiter)
            return appended_response(request.request, appended)
        except Refused as refusal:
            self.traffic.note_refusal("grpc", refusal)
            return refused_response(request.request, refusal)
        finally:
            self.held.remove(len(data))

    async def _append_stream(self, _: Any, context: Any) -> None:
        grant = await self.door.grant_of(context, May.PUBLISH)
        if self._stopping:
            raise _stopping()
        if len(self._streams) >= STREAMS_MAX:
            raise Unavailable(
                f"{STREAMS_MAX} streams of appends are open at this server, which is the most",
                hint="Send the appends of several feeds over one stream, or try again later.",
                side_effects="none",
            )
        stream = _Stream(self, context, grant)
        self._streams.add(stream)
        try:
            await stream.run()
        finally:
            self._streams.discard(stream)

    async def _tail(self, data: bytes, context: Any) -> bytes:
        grant = await self.door.grant_of(context, May.SEE)
        request = parse(log_pb2.TailRequest, data)
        await self.check_feed(grant, May.SEE, request.feed)
        try:
            feed = check_feed_id(request.feed)
            producer = check_agent_id(request.producer_id, "producer_id") if request.producer_id else None
            tail = await self._service.tail(feed, producer)
        except Refused as refusal:
            self.traffic.note_refusal("grpc", refusal)
            return log_pb2.TailResponse(refusal=refusal_message(refusal)).SerializeToString()
        return log_pb2.TailResponse(end=_end(tail)).SerializeToString()

    async def decode(self, request: log_pb2.AppendRequest, request_bytes: int, chain: Chain | None) -> Append:
        """Return the append that a request stands for; raises InvalidRequest and TooLarge."""
        return await append_of(request, request_bytes, now_ms=self.door.clock.wall_ms(), chain=chain)

    async def check_feed(self, grant: Grant, may: May, feed: str) -> None:
        """Raise Forbidden unless ``grant`` is good for this call about ``feed``: a status, not a refusal of an append."""
        await check_feed(self._service.log, grant, may, feed)

    def append_soon(self, append: Append, waiter: W) -> W:
        """Queue an append; ``waiter`` gets its places or its refusal."""
        return self._service.append_soon(append, waiter)


class _Held:
    """The bytes of appends that wait to be durable."""

    def __init__(self) -> None:
        self.bytes = 0
        self._eased = asyncio.Event()

    def add(self, size: int) -> None:
        """Count an append; Unavailable if it is too much, save that it is always one."""
        if self.bytes and self.bytes + size > HELD_BYTES_MAX:
            raise Unavailable(
                f"{self.bytes:,} bytes of appends wait at this server; the most is {HELD_BYTES_MAX:,}",
                hint="Try again later, with the same places.",
            )
        self.bytes += size

    def remove(self, size: int) -> None:
        """Count it no longer."""
        self.bytes -= size
        if not self.is_crowded:
            self._eased.set()

    @property
    def is_crowded(self) -> bool:
        """Whether no stream should read."""
        return self.bytes >= HELD_BYTES_EASY

    async def wait_eased(self) -> None:
        """Return once streams may read."""
        while self.is_crowded:
            self._eased.clear()
            await self._eased.wait()


def _stopping() -> Unavailable:
    return Unavailable("the server is stopping", hint="Ask for the tail, then open a new stream.")


class _Asked:
    """An append of a stream that is to be answered: what a future would be, for a third of its price."""

    __slots__ = ("_is_done", "_on_done", "_outcome", "_request", "size")

    def __init__(self, request: int, size: int, on_done: Callable[[_Asked], None]) -> None:
        """``request``: its number; ``size``: bytes of the message. ``on_done`` is called once it is settled or given up."""
        self._request = request
        self._on_done = on_done
        self._outcome: Appended | HeadraceError | None = None
        self._is_done = False
        self.size = size

    def done(self) -> bool:
        """Tell whether it is settled or given up."""
        return self._is_done

    def set_result(self, result: Appended) -> None:
        """Take its places."""
        self._settle(result)

    def set_exception(self, exception: HeadraceError) -> None:
        """Take its refusal."""
        self._settle(exception)

    def give_up(self) -> None:
        """Take no outcome any more."""
        if not self._is_done:
            self._settle(None)

    @property
    def refusal(self) -> Refused | None:
        """Why it was refused, if it was."""
        return self._outcome if isinstance(self._outcome, Refused) else None

    def answer(self) -> bytes:
        """Return the answer; raises what is answered with a status instead."""
        if isinstance(self._outcome, Refused):
            return refused_response(self._request, self._outcome)
        if not isinstance(self._outcome, Appended):
            raise self._outcome or Unavailable("the append was given up")
        return appended_response(self._request, self._outcome)

    def _settle(self, outcome: Appended | HeadraceError | None) -> None:
        self._outcome, self._is_done = outcome, True
        self._on_done(self)


class _Stream:
    """One ``AppendStream``: a task reads and submits, the call's own answers in order."""

    def __init__(self, face: LogAppend, context: Any, grant: Grant) -> None:
        self._face = face
        self._context = context
        self._grant = grant
        self._allowed: set[str] = set()
        self._chain = Chain()
        self._broken = False
        self._answers: deque[_Asked] = deque()
        self._waiting_bytes = 0
        self._is_full = False
        self._moved = asyncio.Event()
        self._settled = asyncio.Event()
        self._is_taking = False
        self._end: HeadraceError | None = None
        self._reader = asyncio.create_task(self._read())
        self._reader.add_done_callback(lambda _: self._settled.set())

    def end(self, why: HeadraceError) -> None:
        """Read no further, and end with ``why`` once what was read is answered."""
        if self._end is None and not self._reader.done():
            self._end = why
            if not self._is_taking:
                self._reader.cancel()

    async def run(self) -> None:
        """Answer until the client has ended its side and everything is answered."""
        try:
            while await self._has_answer():
                asked = self._answers.popleft()
                answer = asked.answer()
                if asked.refusal is not None:
                    self._face.traffic.note_refusal("grpc", asked.refusal)
                self._waiting_bytes -= asked.size
                if self._is_full:
                    self._moved.set()
                await write(self._context, answer)
            if not self._reader.cancelled():
                self._reader.result()
            if self._end is not None:
                raise self._end
        finally:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
            for asked in self._answers:
                asked.give_up()

    async def _has_answer(self) -> bool:
        """Wait for the outcome of the first append that waits; False once there is none and none can follow."""
        while not (self._answers and self._answers[0].done()):
            if not self._answers and self._reader.done():
                return False
            self._settled.clear()
            await self._settled.wait()
        return True

    def _note_settled(self, asked: _Asked) -> None:
        """Wake who answers, if it is the first that waits; the later ones are answered when their turn comes."""
        self._face.held.remove(asked.size)
        if self._answers and self._answers[0] is asked:
            self._settled.set()

    async def _read(self) -> None:
        """Read until the client ends its side or its token ends; what was read by then is answered."""
        left_s = seconds_left(self._grant, self._face.door.clock)
        timer = None
        if left_s is not None:
            timer = asyncio.get_running_loop().call_later(left_s, self.end, expired())
        try:
            await self._read_all()
        finally:
            if timer is not None:
                timer.cancel()

    async def _read_all(self) -> None:
        """Room is waited for before a request is read: one that was read is taken, whoever ends the stream meanwhile."""
        while self._end is None:
            while not self._has_room():
                self._is_full = True
                self._moved.clear()
                await self._moved.wait()
            self._is_full = False
            if self._face.held.is_crowded:
                await self._face.held.wait_eased()
            data = await self._context.read()
            if data is grpc.aio.EOF:
                return
            self._is_taking = True
            try:
                await self._take(data)
            finally:
                self._is_taking = False

    async def _take(self, data: bytes) -> None:
        """Submit a request, and let its answer wait for its turn."""
        request, size = parse(log_pb2.AppendRequest, data), len(data)
        if request.feed not in self._allowed:
            await self._face.check_feed(self._grant, May.PUBLISH, request.feed)
            if len(self._allowed) < FEEDS_KNOWN_MAX:
                self._allowed.add(request.feed)
        self._face.held.add(size)
        asked = _Asked(request.request, size, self._note_settled)
        try:
            await self._begin(request, asked)
        except BaseException:
            asked.give_up()
            raise
        self._answers.append(asked)
        self._waiting_bytes += size
        if asked.done():
            self._settled.set()

    def _has_room(self) -> bool:
        return len(self._answers) < WAITING_MAX and self._waiting_bytes < WAITING_BYTES_MAX

    async def _begin(self, request: log_pb2.AppendRequest, asked: _Asked) -> None:
        """Submit the request, so that ``asked`` gets its outcome.

        One that can't be read is refused here, and those after it too; those before it, which the writer may still be
        judging, are not touched.
        """
        try:
            if self._broken or self._chain.failed:
                raise StreamFailed(side_effects="possible")
            append = await self._face.decode(request, asked.size, self._chain)
        except HeadraceError as refusal:
            self._broken = True
            asked.set_exception(refusal)
            return
        self._face.append_soon(append, asked)


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
