"""What consumers ask about the schemas of a feed's tables; and the task that keeps the index of them close to the end.

A question is answered for all that is durable when it is asked: the index is brought up to there first, once for all who
wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import Final

from headrace.errors import HeadraceError, SchemaNotFound, StoreUnavailable
from headrace.log.log import Log
from headrace.log.schemas.entries import VERSION_MAX, SchemaName
from headrace.runtime.logs import get_logger
from headrace.wire.schema_documents import SchemaList, SchemaPlace

logger = get_logger("server")

LOOK_EVERY_S: Final = 10.0
"""How often the index is brought up to the journal's end though nobody asks: a start after a crash then reads little."""
WAIT_S_MAX: Final = 20.0
"""How long a question waits for the index; then it is 503, and the index goes on being made."""
STEP_BYTES: Final = 64 << 20
"""Looked over at a time; bounds how long a stop waits."""
ROWS_MAX: Final = 100
"""Schemas read at a time, values and all: entries are at most 1 MiB each."""

_VERSION: Final = re.compile(r"[0-9]{1,19}")


class Schemas:
    """The schemas of one log. Used from the event loop."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._flight: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def start(self) -> None:
        """Begin to keep the index close to the journal's end."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End; call it before the log is closed."""
        self._stop.set()
        for task in (self._task, self._flight):
            if task is not None:
                await asyncio.wait([task])

    async def newest(self, feed: str, after: int, limit: int) -> SchemaList:
        """Return the newest schema of each table of ``feed``: up to ``limit``, those above the sequence id ``after``.

        Raises FeedNotFound, StoreUnavailable, JournalCorrupt.
        """
        tail = await self._log.find(feed)
        await self._caught_up()
        found: list[SchemaPlace] = []
        while len(found) < limit:
            rows = await asyncio.to_thread(
                self._log.schemas.newest, feed, after, min(ROWS_MAX, limit - len(found))
            )
            if not rows:
                break
            after = rows[-1].sequence_id
            found += [
                SchemaPlace(
                    database=row.database_name,
                    table=row.table_name,
                    version=row.version,
                    sequence_id=row.sequence_id,
                    lsn=row.lsn,
                )
                for row in rows
            ]
        return SchemaList(change_feed_id=feed, incarnation=tail.incarnation, schemas=found)

    async def value(self, feed: str, database: str, table: str, version: str) -> bytes:
        """Return a schema as it stands, or stood, in the feed: its entry's value.

        Raises FeedNotFound, SchemaNotFound, StoreUnavailable, JournalCorrupt, MetadataCorrupt.
        """
        await self._log.find(feed)
        if not _VERSION.fullmatch(version) or int(version) > VERSION_MAX:
            raise SchemaNotFound(f"no version of a schema is {version[:80]!r}")
        await self._caught_up()
        name = SchemaName(database, table, int(version))
        return (await asyncio.to_thread(self._log.schemas.schema, feed, name)).value

    async def _run(self) -> None:
        while not self._stop.is_set():
            try:
                await self._caught_up()
                if self._log.store.several_servers:  # what was looked over here need not be at another server
                    await asyncio.to_thread(self._log.schemas.settle)
            except HeadraceError as error:
                logger.warning("the index of schemas can't be brought up to date", reason=error.detail)
            except Exception:
                logger.exception("the index of schemas failed; it is tried again")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), LOOK_EVERY_S)

    async def _caught_up(self) -> None:
        """Return once the index has everything that is durable now; StoreUnavailable if that takes too long."""
        await self._log.refresh()
        index, end = self._log.schemas, self._log.store.end()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_S_MAX
        while index.position < end:
            if self._stop.is_set():
                raise StoreUnavailable("the server is stopping")
            if self._flight is None or self._flight.done():
                upto = min(end, index.position + STEP_BYTES)
                self._flight = asyncio.create_task(asyncio.to_thread(index.read_up_to, upto))
                self._flight.add_done_callback(_retrieved)
            done, _ = await asyncio.wait([self._flight], timeout=max(0.0, deadline - loop.time()))
            if not done:
                raise StoreUnavailable(
                    f"the journal is being looked over for schemas, {end - index.position} bytes are left"
                )
            for flight in done:
                flight.result()


def _retrieved(flight: asyncio.Task[None]) -> None:
    """Whoever waited may have given up: what the flight raised is no news to anybody else."""
    if not flight.cancelled():
        flight.exception()
