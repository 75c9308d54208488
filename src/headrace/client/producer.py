"""A producer that appends at named places (KAFKA-2260) and sends the same range again until it knows what became of it.

::

    async with FeedClient("http://127.0.0.1:8470") as client:
        producer = await Producer.register(client, "orders", "shop-1")
        await producer.append([{"uuid": "o-1", "state": "paid"}])

A try without an answer may have been stored or not. The same entries at the same places are then sent again: the server
writes them once, or says that they stand there already. So what :meth:`Producer.append` returns is in the feed once.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Self, TypeVar

import msgspec

from headrace.client.http import FeedClient
from headrace.errors import InvalidRequest, Unavailable
from headrace.runtime.backoff import Backoff
from headrace.runtime.logs import get_logger
from headrace.wire import documents as doc

logger = get_logger("client")

T = TypeVar("T")

RETRY_FIRST_S: Final = 0.05
RETRY_DELAY_S_MAX: Final = 5.0
"""Longest wait between two tries: a server that is back is found within it."""

Item = doc.EntryIn | Mapping[str, Any]
"""One entry: a whole :class:`~headrace.wire.documents.EntryIn`, or its ``changes`` as a mapping of JSON values."""


class Producer:
    """One producer of one feed. Its appends are sent one at a time; use one :class:`Producer` a task.

    ``next_sequence_id`` is the place where the next append is expected to stand: set at registration, moved by each append.
    Move it by hand only after having read what stands below.
    """

    def __init__(self, client: FeedClient, registered: doc.PublisherRegistered, agent_id: str) -> None:
        """Join a client and what a registration answered; :meth:`register` is the usual way."""
        self._client = client
        self.feed = registered.change_feed_id
        self.agent_id = agent_id
        self.epoch = registered.epoch
        self.incarnation = registered.incarnation
        self.next_sequence_id = registered.next_sequence_id

    @classmethod
    async def register(
        cls,
        client: FeedClient,
        feed: str,
        agent_id: str,
        *,
        instance: str | None = None,
        shared: bool = False,
        takeover: bool = False,
        retry_s_max: float | None = None,
    ) -> Self:
        """Register with ``feed`` and return the producer, which stands at the feed's end.

        ``instance`` names this process (default: a new name), so that an older one of the same agent is fenced.
        ``retry_s_max``: how long to try while the server can't be reached (None: for ever). Raises FeedOwned,
        InvalidRequest, and Unavailable at the time-out.
        """
        named = instance if instance is not None else str(uuid.uuid4())

        async def register() -> doc.PublisherRegistered:
            return await client.register_publisher(
                agent_id, feed, instance=named, shared=shared, takeover=takeover
            )

        return cls(client, await persist(register, retry_s_max), agent_id)

    async def append(
        self,
        items: Iterable[Item],
        *,
        source_position: bytes | None = None,
        retry_s_max: float | None = None,
    ) -> doc.Appended:
        """Append the entries atomically at ``next_sequence_id`` and move it behind them; they are durable when it returns.

        Any unclear outcome (no answer, 503) is answered by the same entries at the same places, until the server takes or
        refuses them. ``duplicate`` in the answer: an earlier try had been stored. ``source_position`` is kept with the
        entries, and :meth:`resume` gives it back. ``retry_s_max``: how long to try (None: for ever); at the time-out
        Unavailable is raised and the place stays, so calling again with the same entries goes on where it was.

        Raises OffsetMismatch if the feed is not where this producer thought: another producer was here first
        (``actual-next`` in its members; read what is new, then decide again), and any other refusal as it comes.
        """
        first = self.next_sequence_id
        entries = [self._placed(item, first + index) for index, item in enumerate(items)]
        if not entries:
            raise InvalidRequest("entries: there is none to append", member="entries")

        async def append() -> doc.Appended:
            return await self._client.append(
                self.feed,
                entries,
                epoch=self.epoch,
                incarnation=self.incarnation,
                source_position=source_position,
            )

        appended = await persist(append, retry_s_max)
        self.next_sequence_id = appended.last_sequence_id + 1
        return appended

    async def resume(self, *, retry_s_max: float | None = None) -> doc.Tail:
        """Move to where the feed ends now and return its tail, with this producer's last append and source position.

        Only for a producer that needs to know nothing of what others have appended: who decides by the feed's content
        reads it instead.
        """

        async def tail() -> doc.Tail:
            return await self._client.tail(self.feed, self.agent_id)

        found = await persist(tail, retry_s_max)
        self.next_sequence_id = found.next_sequence_id
        return found

    def _placed(self, item: Item, sequence_id: int) -> doc.EntryIn:
        if isinstance(item, doc.EntryIn):
            return msgspec.structs.replace(item, agent_id=self.agent_id, expected_offset=sequence_id)
        changes = msgspec.Raw(msgspec.json.encode(item))
        return doc.EntryIn(changes=changes, agent_id=self.agent_id, expected_offset=sequence_id)


async def persist(call: Callable[[], Awaitable[T]], retry_s_max: float | None) -> T:
    """Make the same call until it is answered; Unavailable (the last one) once ``retry_s_max`` seconds are over.

    For calls that may be made twice. ``retry_s_max`` None: for ever.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + retry_s_max if retry_s_max is not None else None
    backoff = Backoff(first_s=RETRY_FIRST_S, delay_s_max=RETRY_DELAY_S_MAX)
    while True:
        try:
            return await call()
        except Unavailable as error:
            delay = backoff.next_delay()
            if deadline is not None and loop.time() + delay >= deadline:
                raise
            logger.warning(
                "no answer yet; the same call is made again", code=error.code, wait_s=round(delay, 2)
            )
        await asyncio.sleep(delay)
