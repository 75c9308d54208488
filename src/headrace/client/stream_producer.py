"""A producer that appends over gRPC streams without waiting for each answer, and retries until everything is answered.

::

    async with FeedClient("http://127.0.0.1:8470") as http, LogAppendClient("127.0.0.1:8471") as appends:
        async with await StreamProducer.register(http, appends, "orders", "shop-1") as producer:
            for order in orders:
                await producer.send([encode_half(Change(order, key=b"o-1"))])

What :class:`~headrace.client.producer.Producer` promises over HTTP, pipelined: each append names its place (KAFKA-2260), so
whatever has no answer is sent again, in the same order at the same places, over a new stream. The server writes it once.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NoReturn, Self

from headrace.client.http import FeedClient
from headrace.client.log_append import AppendStream, LogAppendClient, Stored, Writes
from headrace.client.producer import RETRY_DELAY_S_MAX, RETRY_FIRST_S, persist
from headrace.errors import (
    FeedRecreated,
    HeadraceError,
    InvalidRequest,
    OffsetMismatch,
    StreamFailed,
    Unavailable,
)
from headrace.runtime.backoff import Backoff
from headrace.runtime.logs import get_logger
from headrace.wire import documents as doc
from headrace.wire.generated import log_pb2
from headrace.wire.halves import Joined, join_halves

logger = get_logger("client")

WAITING_APPENDS_MAX: Final = 256
"""Appends that wait for their answers: as many as a server reads ahead on one stream."""
WAITING_BYTES_MAX: Final = 32 << 20
"""Their bytes, save that it is always one."""
_LENGTH_SIZE: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """An append that has no answer yet: all that is needed to send it again, and who waits for it."""

    first: int
    entries: Joined
    source_position: bytes
    stored: asyncio.Future[Stored]

    @property
    def size(self) -> int:
        return len(self.entries.entries) + len(self.source_position)

    @property
    def count(self) -> int:
        return len(self.entries.lengths) // _LENGTH_SIZE


class StreamProducer:
    """One producer of one feed; use one a task, as ``async with``. Its appends are stored in the order of :meth:`send`.

    ``next_sequence_id`` is where the next append is expected to stand. Memory is bounded by ``waiting_appends_max`` and
    ``waiting_bytes_max``: :meth:`send` waits for room.
    """

    def __init__(
        self,
        client: LogAppendClient,
        registered: doc.PublisherRegistered,
        agent_id: str,
        *,
        retry_s_max: float | None = None,
        waiting_appends_max: int = WAITING_APPENDS_MAX,
        waiting_bytes_max: int = WAITING_BYTES_MAX,
    ) -> None:
        """Join a client and what a registration answered; :meth:`register` is the usual way."""
        self.feed = registered.change_feed_id
        self.agent_id = agent_id
        self.epoch = registered.epoch
        self.incarnation = registered.incarnation
        self.next_sequence_id = registered.next_sequence_id
        self._client = client
        self._retry_s_max = retry_s_max
        self._appends_max, self._bytes_max = waiting_appends_max, waiting_bytes_max
        self._waiting: deque[_Waiting] = deque()
        self._unsent: deque[_Waiting] = deque()
        self._bytes = 0
        self._answered = 0
        self._has_unsent = asyncio.Event()
        self._moved = asyncio.Event()
        self._failure: HeadraceError | None = None
        self._sender: asyncio.Task[None] | None = None

    @property
    def unanswered(self) -> int:
        """How many entries were sent and are not known to be durable yet."""
        return self.next_sequence_id - self._waiting[0].first if self._waiting else 0

    @classmethod
    async def register(
        cls,
        http: FeedClient,
        client: LogAppendClient,
        feed: str,
        agent_id: str,
        *,
        instance: str | None = None,
        shared: bool = False,
        takeover: bool = False,
        retry_s_max: float | None = None,
    ) -> Self:
        """Register with ``feed`` over HTTP and return the producer, which stands at the feed's end.

        ``instance`` names this process (default: a new name), so that an older one of the same agent is fenced.
        ``retry_s_max``: how long to try without any answer, here and later (None: for ever). Raises FeedOwned,
        InvalidRequest, and Unavailable at the time-out.
        """
        named = instance if instance is not None else str(uuid.uuid4())

        async def register() -> doc.PublisherRegistered:
            return await http.register_publisher(
                agent_id, feed, instance=named, shared=shared, takeover=takeover
            )

        return cls(client, await persist(register, retry_s_max), agent_id, retry_s_max=retry_s_max)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            await self.close()

    async def send(
        self, halves: Sequence[bytes] | Joined, *, source_position: bytes = b""
    ) -> asyncio.Future[Stored]:
        """Take an append for ``next_sequence_id``, move that behind it, and return the future of where it stands.

        ``halves`` are producer's halves (:func:`headrace.wire.entry.encode_half`). The future has its result once the
        entries are durable; ``duplicate`` says that an earlier try had been stored. ``source_position`` is kept with the
        entries, and :meth:`resume` gives it back. Raises what ended the producer: see :meth:`flush`.
        """
        entries = halves if isinstance(halves, Joined) else join_halves(halves)
        if not entries.lengths:
            raise InvalidRequest("entries: there is none to append", member="entries")
        size = len(entries.entries) + len(source_position)
        while self._failure is None and self._is_full(size):
            await self._next_move()
        if self._failure is not None:
            raise self._failure
        waiting = _Waiting(
            self.next_sequence_id, entries, source_position, asyncio.get_running_loop().create_future()
        )
        waiting.stored.add_done_callback(_retrieved)
        self.next_sequence_id += waiting.count
        self._bytes += size
        self._waiting.append(waiting)
        self._unsent.append(waiting)
        self._has_unsent.set()
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_until_answered())
        return waiting.stored

    async def append(self, halves: Sequence[bytes] | Joined, *, source_position: bytes = b"") -> Stored:
        """Append, and wait until it is durable. Raises the refusal of this append, or what ended the producer before it."""
        return await (await self.send(halves, source_position=source_position))

    async def flush(self) -> None:
        """Wait until everything that was sent is durable.

        Raises what ended the producer: the refusal of an append, such as OffsetMismatch where another producer was here
        first, or Unavailable after ``retry_s_max``. Its future raises the same, those behind it StreamFailed; nothing more
        is sent, and ``next_sequence_id`` is its place again. :meth:`again` or :meth:`resume` goes on.
        """
        while self._waiting and self._failure is None:
            await self._next_move()
        if self._failure is not None:
            raise self._failure

    def again(self) -> None:
        """Forget what ended the producer, and stand where that left it: the same appends can be sent again, at their places.

        So that they are not stored twice where an earlier try was stored and its answer lost.
        """
        self._failure = None

    async def resume(self) -> log_pb2.FeedEnd:
        """Move to where the feed ends now, as :meth:`again`, and return that end with this producer's last append.

        Only once everything is answered, and only for a producer that needs to know nothing of what others have appended:
        who decides by the feed's content reads it instead. FeedRecreated if the feed is not the one of the registration.
        """
        if self._waiting:
            raise InvalidRequest("resume: appends still wait for their answers; flush first")

        async def tail() -> log_pb2.FeedEnd:
            return await self._client.tail(self.feed, self.agent_id)

        end = await persist(tail, self._retry_s_max)
        self._check_incarnation(end)
        self._failure = None
        self.next_sequence_id = end.next_sequence_id
        return end

    async def close(self) -> None:
        """Send no more. What has no answer may be stored or not: its futures raise Unavailable."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.cancel()
            await asyncio.wait({sender})
        if self._waiting:
            self._give_up(Unavailable("the producer was closed before the answer"))

    # -- the one task that sends ----------------------------------------------------------------------------------------

    async def _send_until_answered(self) -> None:
        """Send what waits, over one stream after the other, until an append is told what no retry can change."""
        backoff = Backoff(first_s=RETRY_FIRST_S, delay_s_max=RETRY_DELAY_S_MAX)
        loop = asyncio.get_running_loop()
        failing_since = loop.time()
        while True:
            answered = self._answered
            try:
                if backoff.failures:
                    await self._find_place()
                await self._send_over_one_stream()
            except HeadraceError as error:
                if not self._waiting and _passes(error):
                    return  # the next append opens a stream
                if self._answered > answered or not backoff.failures:
                    backoff.reset()
                    failing_since = loop.time()
                delay = backoff.next_delay()
                late = self._retry_s_max is not None and (
                    loop.time() + delay >= failing_since + self._retry_s_max
                )
                if late or not _passes(error):
                    self._give_up(error)
                    return
                logger.warning(
                    "no answer yet; the same appends are sent again", code=error.code, wait_s=round(delay, 2)
                )
            except Exception as error:
                self._give_up(HeadraceError(f"the producer failed: {error!r}"))
                raise
            await asyncio.sleep(delay)

    async def _find_place(self) -> None:
        """After an unclear outcome: FeedRecreated unless the feed still holds everything that was answered."""
        end = await self._client.tail(self.feed, self.agent_id)
        self._check_incarnation(end)
        first = self._waiting[0].first if self._waiting else self.next_sequence_id
        if end.next_sequence_id < first:
            raise FeedRecreated(
                f"the feed {self.feed} ends before {end.next_sequence_id}, but everything before {first} was confirmed: "
                "it is an older copy",
                expected=first,
                actual_next=end.next_sequence_id,
            )

    def _check_incarnation(self, end: log_pb2.FeedEnd) -> None:
        found = str(uuid.UUID(bytes=end.incarnation))
        if found != self.incarnation:
            raise FeedRecreated(
                f"the feed {self.feed} has the incarnation {found}, not {self.incarnation}",
                hint="Find out by the feed's entries what it holds, then register again.",
                incarnation=found,
            )

    async def _send_over_one_stream(self) -> NoReturn:
        """Send everything that has no answer, in order, and what comes after it; raises as soon as one is not taken."""
        self._unsent = deque(self._waiting)
        self._has_unsent.set()
        answers: asyncio.Queue[asyncio.Future[Stored]] = asyncio.Queue()
        writes = Writes(self.feed, self.agent_id, self.epoch, self.incarnation)
        async with self._client.append_stream(writes) as stream:
            writing = asyncio.create_task(self._write(stream, answers))
            try:
                while True:
                    self._settle(await (await answers.get()))
            finally:
                writing.cancel()
                await asyncio.wait({writing})

    async def _write(self, stream: AppendStream, answers: asyncio.Queue[asyncio.Future[Stored]]) -> None:
        """Send what comes; a stream that takes no more is told in its turn, behind the answers that are still to come."""
        while True:
            await self._has_unsent.wait()
            while self._unsent:
                one = self._unsent.popleft()
                try:
                    answer = await stream.send(
                        one.entries, expected_offset=one.first, source_position=one.source_position
                    )
                except Exception as error:  # noqa: BLE001  # it is raised where the answers are awaited
                    answer = asyncio.get_running_loop().create_future()
                    answer.set_exception(error)
                    answers.put_nowait(answer)
                    return
                answers.put_nowait(answer)
            self._has_unsent.clear()

    def _settle(self, stored: Stored) -> None:
        waiting = self._waiting[0]
        if stored.first_sequence_id != waiting.first:
            raise OffsetMismatch(
                f"the feed {self.feed} took an append for {waiting.first} at {stored.first_sequence_id}: it does not "
                "compare expected-offset, so nothing can be retried there",
                hint="Set expected-offset: optional in the feed's settings.",
                expected=waiting.first,
                side_effects="possible",
            )
        self._waiting.popleft()
        self._bytes -= waiting.size
        self._answered += 1
        if not waiting.stored.done():
            waiting.stored.set_result(stored)
        self._moved.set()

    def _give_up(self, error: HeadraceError) -> None:
        """End for good: the first append that waits is told why, those behind it that they were not tried."""
        self._failure = error
        if self._waiting:
            self.next_sequence_id = self._waiting[0].first
        for index, waiting in enumerate(self._waiting):
            if not waiting.stored.done():
                behind = StreamFailed(side_effects="possible")
                waiting.stored.set_exception(error if index == 0 else behind)
        self._waiting.clear()
        self._unsent.clear()
        self._bytes = 0
        self._moved.set()

    def _is_full(self, size: int) -> bool:
        return len(self._waiting) >= self._appends_max or (
            bool(self._waiting) and self._bytes + size > self._bytes_max
        )

    async def _next_move(self) -> None:
        self._moved.clear()
        await self._moved.wait()


def _passes(error: HeadraceError) -> bool:
    """Can it be another answer next time? A status without a code of ours says nothing: the line broke in some odd way."""
    return isinstance(error, Unavailable | StreamFailed) or type(error) is HeadraceError


def _retrieved(future: asyncio.Future[Stored]) -> None:
    """A future that nobody awaits must not be complained of: :meth:`StreamProducer.flush` says the same."""
    if not future.cancelled():
        future.exception()
