"""The feed's side of capture: claim it, find out where in the source it stands, and send appends that carry that along.

Every append names its place and has the source position with it, so the feed itself is the checkpoint (KAFKA-2260): whoever
starts asks for the last append, and goes on from what that says. Whatever ended the one before, nothing stands there twice
and nothing is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self

from headrace.capture import position as positions
from headrace.capture.changes import Append
from headrace.capture.position import SourcePosition
from headrace.client.http import FeedClient
from headrace.client.log_append import LogAppendClient, Stored
from headrace.client.producer import persist
from headrace.client.stream_producer import StreamProducer
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import AgentFenced, FeedUnfit, Fenced, SimpleInvalid
from headrace.simple import json_codec
from headrace.simple.message import Bootstrap
from headrace.simple.schema import TableSchema
from headrace.wire.generated import log_pb2
from headrace.wire.keyed import join_fields


class CaptureFeed:
    """One feed, claimed by this process. Use as ``async with await CaptureFeed.open(...) as feed``.

    ``position``: where in the source the feed stands, as far as that is durable; None while the feed is empty.
    """

    def __init__(
        self,
        http: FeedClient,
        producer: StreamProducer,
        position: SourcePosition | None,
        *,
        retry_s_max: float | None = None,
        on_durable: Callable[[SourcePosition], None] | None = None,
    ) -> None:
        """Join what :meth:`open` found."""
        self.position = position
        self._http = http
        self._producer = producer
        self._retry_s_max = retry_s_max
        self._on_durable = on_durable

    @classmethod
    async def open(
        cls,
        http: FeedClient,
        appends: LogAppendClient,
        feed: str,
        agent_id: str,
        *,
        takeover: bool = False,
        retry_s_max: float | None = None,
        on_durable: Callable[[SourcePosition], None] | None = None,
    ) -> Self:
        """Claim ``feed`` as a new process of ``agent_id``, which fences an older one, and ask where it stands.

        In this order: nothing of an older process can still come behind what is answered. ``retry_s_max``: how long to wait
        for a server that does not answer, here and later (None: for ever). ``on_durable`` is told of each position once its
        entries are durable, in the loop's thread.

        Raises FeedOwned (without ``takeover``), FeedUnfit where the feed holds what capture did not write, FormatTooNew,
        and Unavailable at the time-out.
        """
        producer = await StreamProducer.register(
            http, appends, feed, agent_id, takeover=takeover, retry_s_max=retry_s_max
        )
        try:
            position = position_of(await producer.resume(), feed, agent_id)
        except BaseException:
            await producer.close()
            raise
        return cls(http, producer, position, retry_s_max=retry_s_max, on_durable=on_durable)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def next_sequence_id(self) -> int:
        """Where the next append will stand."""
        return self._producer.next_sequence_id

    @property
    def unanswered(self) -> int:
        """How many entries were sent and are not known to be durable yet."""
        return self._producer.unanswered

    async def send(self, append: Append) -> None:
        """Hand an append over, in order; waits while as many are under way as memory is set aside for.

        Cut lines and restarts of the server are ridden out. Raises AgentFenced once a newer process has taken over, and
        whatever else ended the producer: what has no answer may be durable or not, :meth:`open` again finds out.
        """
        try:
            stored = await self._producer.send(
                join_fields(append.fields), source_position=positions.encode(append.position)
            )
        except Fenced as refusal:
            raise AgentFenced(refusal.detail) from None
        stored.add_done_callback(lambda future: self._settle(future, append.position))

    async def flush(self) -> None:
        """Wait until all that was sent is durable; the errors of :meth:`send`."""
        try:
            await self._producer.flush()
        except Fenced as refusal:
            raise AgentFenced(refusal.detail) from None

    async def close(self) -> None:
        """Send no more. What was not flushed may be durable or not."""
        await self._producer.close()

    async def schemas(self) -> list[TableSchema]:
        """Return the newest schema of each table that the feed ever had, in the order in which they came.

        Of tables that were dropped since, too. FeedUnfit if the feed holds schemas that are no BOOTSTRAP messages.
        """
        feed = self._producer.feed
        found: list[TableSchema] = []
        for one in await persist(lambda: self._http.schemas(feed), self._retry_s_max):
            place = one.database, one.table, one.version
            data = await persist(partial(self._http.schema, feed, *place), self._retry_s_max)
            found.append(_schema_of(data, *place))
        return found

    def _settle(self, future: asyncio.Future[Stored], position: SourcePosition) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        self.position = position
        if self._on_durable is not None:
            self._on_durable(position)


def position_of(end: log_pb2.FeedEnd, feed: str, agent_id: str) -> SourcePosition | None:
    """Return where in the source a feed stands that ends like this for ``agent_id``; None if it is empty.

    FeedUnfit where somebody else's entries stand there, or its own without a position; FormatTooNew.
    """
    if not end.HasField("last_frame"):
        if Lsn.parse(end.newest_lsn) == ZERO:
            return None
        raise FeedUnfit(f"the feed {feed} holds entries, but none that {agent_id} wrote")
    last = end.last_frame
    if last.first_sequence_id + last.count != end.next_sequence_id:
        raise FeedUnfit(
            f"the feed {feed} goes on behind the last entry of {agent_id}, "
            f"{last.first_sequence_id + last.count - 1}: somebody else has written there",
            next_sequence_id=end.next_sequence_id,
        )
    if not last.source_position:
        raise FeedUnfit(f"the last append of {agent_id} to the feed {feed} has no source position")
    return positions.decode(last.source_position)


def _schema_of(data: bytes, database: str, table: str, version: int) -> TableSchema:
    name = f"the feed's schema of {database}.{table}, version {version},"
    try:
        message = json_codec.decode(data)
    except SimpleInvalid as error:
        raise FeedUnfit(f"{name} is no message: {error.detail}") from None
    if not isinstance(message, Bootstrap) or message.table_schema.key != (database, table, version):
        raise FeedUnfit(f"{name} is no BOOTSTRAP message of it")
    return message.table_schema
