"""One batch's rows into the feed, there exactly once when it returns. Called in a task; it blocks.

Every try first asks the feed for this agent's last append, so that whatever an earlier try left behind is seen. What is
appended names its place (KAFKA-2260): a try that comes late, from a task that was given up, can only find its own rows
standing there, or be refused. Registering fences the appends of a query that this one replaced.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from headrace.client.credential import Credential
from headrace.client.http import FeedClient
from headrace.client.log_append import LogAppendClient, Writes
from headrace.errors import FeedNotFound, FeedRecreated, FeedUnfit, Fenced, OffsetMismatch, Unavailable
from headrace.pipeline.sink import position as positions
from headrace.pipeline.sink.options import SinkTarget
from headrace.pipeline.sink.position import LastAppend, Settlement, SinkPosition
from headrace.pipeline.sink.rows import FeedRows
from headrace.runtime.backoff import Backoff
from headrace.wire import documents as doc

RETRY_FIRST_S: Final = 0.02
RETRY_DELAY_S_MAX: Final = 5.0
"""Longest wait between two tries: a server that is back is found within it."""

_AGAIN: Final = (Unavailable, Fenced, OffsetMismatch)
"""After these the feed is asked again what stands in it: not now, or somebody else registered or appended meanwhile."""


class Put(NamedTuple):
    """What became of a batch's rows for a feed. ``written`` False: they stood there already, or were to be kept unseen."""

    feed: str
    rows: int
    first_sequence_id: int
    written: bool


def put_rows(
    target: SinkTarget,
    settled: Settlement,
    own: SinkPosition,
    parts: Sequence[FeedRows],
    kept: Mapping[str, LastAppend] = {},
) -> list[Put]:
    """Append each feed's rows atomically, unless they are there; everything is durable when it returns.

    ``kept``: what the query remembers to have appended, by feed. Tries for ``retry_s`` seconds a feed, then raises what
    stood in the way. Raises SinkTaken, BatchMissing, BatchStale, BatchSplit, BatchChanged, FeedRecreated, and the server's
    refusals.
    """
    # Not an asyncio.Runner: its handling of signals belongs to whoever owns the process, and that is Spark.
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_put_all(_Task(target, settled, own, kept), parts))
    finally:
        loop.close()


class _Task(NamedTuple):
    """What a task was told: where it appends, what was decided, which batch it is, and what stood there before."""

    target: SinkTarget
    settled: Settlement
    own: SinkPosition
    kept: Mapping[str, LastAppend]


async def _put_all(task: _Task, parts: Sequence[FeedRows]) -> list[Put]:
    target = task.target
    token_file, ca_file = (Path(file) if file else None for file in (target.token_file, target.ca_file))
    token = Credential.find(token_file)
    async with (
        FeedClient(target.server, token=token, ca_file=ca_file) as http,
        LogAppendClient(target.grpc, token=token, ca_file=ca_file) as appends,
    ):
        sink = _Sink(http, appends, task)
        return [await sink.put(part) for part in parts]


class _Sink:
    """One task's connections, and who it is."""

    def __init__(self, http: FeedClient, appends: LogAppendClient, task: _Task) -> None:
        self._http = http
        self._appends = appends
        self._target, self._settled, self._own, self._kept = task

    async def put(self, part: FeedRows) -> Put:
        backoff = Backoff(first_s=RETRY_FIRST_S, delay_s_max=RETRY_DELAY_S_MAX)
        deadline = time.monotonic() + self._target.retry_s
        while True:
            try:
                done = await self._try(part)
            except _AGAIN:
                delay = backoff.next_delay()
                if time.monotonic() + delay > deadline:
                    raise
                await asyncio.sleep(delay)
                continue
            if done is not None:
                return done

    async def _try(self, part: FeedRows) -> Put | None:
        """Return what became of the rows; None if the feed has to be asked again."""
        tail = await self._tail(part.feed)
        last = tail.last_frame if tail is not None else None
        found = positions.decode(base64.b64decode(last.source_position)) if last is not None else None
        place = positions.place_of(
            self._own,
            part.rows,
            feed=part.feed,
            next_sequence_id=tail.next_sequence_id if tail is not None else 1,
            last=last,
            found=found,
            settled=self._settled,
            kept=self._kept.get(part.feed),
        )
        if place is None:
            return Put(part.feed, part.rows, last.first_sequence_id if last is not None else 0, written=False)
        writes = await self._register(part.feed)
        try:
            stored = await self._appends.append(
                writes,
                part.entries,
                expected_offset=place.first,
                source_position=positions.encode(self._own),
            )
        except OffsetMismatch:
            if not place.stored or last is None:
                raise
            raise positions.changed(self._own, part.rows, feed=part.feed, last=last) from None
        if stored.duplicate and not place.stored:
            return None  # who wrote it meanwhile: another attempt of this task, or one that has equal rows by chance?
        return Put(part.feed, part.rows, stored.first_sequence_id, written=not stored.duplicate)

    async def _tail(self, feed: str) -> doc.Tail | None:
        """Return the feed's end with this agent's last append; None if there is no such feed yet."""
        try:
            tail = await self._http.tail(feed, self._target.agent_id)
        except FeedNotFound:
            return None
        if tail.expected_offset == "ignored":
            raise FeedUnfit(
                f"the feed {feed} has the setting expected-offset: ignored, so no append to it is safe to repeat",
                hint=f"headrace feeds settings {feed} --expected-offset optional",
            )
        return tail

    async def _register(self, feed: str) -> Writes:
        """Make sure that the last registration is this query's; the same query again changes nothing."""
        target = self._target
        registered = await self._http.register_publisher(
            target.agent_id, feed, instance=self._own.query, shared=target.shared
        )
        if target.incarnation and registered.incarnation != target.incarnation:
            raise FeedRecreated(
                f"the feed {feed} has the incarnation {registered.incarnation}, the query was made for {target.incarnation}",
                change_feed_id=feed,
            )
        return Writes(feed, target.agent_id, registered.epoch, registered.incarnation)
