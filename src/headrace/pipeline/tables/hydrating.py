"""Tables that begin with the publisher's snapshot, because nothing else reaches the beginning of their feed.

The snapshot streams through the driver into files that the workers read: never more than one part of it is in memory. It
counts once it has come whole; then its rows are merged as entries of the sequence id that it stands for, and the feed
follows from there. A run that was cut takes another snapshot, which replaces what the first one brought.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import UNSET
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.client.credential import Credential
from headrace.client.hydration import HydrationClient
from headrace.client.snapshot import SnapshotFetch, SnapshotFound, StillMade
from headrace.client.snapshot_body import SnapshotRow
from headrace.entries.entry import Op
from headrace.errors import (
    ConfigInvalid,
    HeadraceError,
    NoSnapshot,
    SequenceNotAvailable,
    SnapshotBroken,
    SnapshotForbidden,
    SnapshotGone,
    Unavailable,
)
from headrace.pipeline.connection import Connection, Endpoint
from headrace.pipeline.tables.ledger import Ledger, folder_of
from headrace.pipeline.tables.merge import (
    APP_ID,
    APP_VERSION,
    EXACT_WRITES,
    TableBatch,
    apply_batch,
    create_empty,
    settings,
)
from headrace.pipeline.tables.origins import SNAPSHOT, given_of, now_text
from headrace.pipeline.tables.parallel import run_all
from headrace.pipeline.tables.schemas import PlacedSchema, TableName, read_schema, unfit
from headrace.pipeline.tables.states import Reached, Start
from headrace.runtime.backoff import Backoff
from headrace.runtime.logs import get_logger
from headrace.wire.arrays import array_of

logger = get_logger("pipeline")

PART_BYTES: Final = 32 << 20
"""So many bytes of rows are gathered before they are written."""
TRIES_MAX: Final = 5
"""Snapshots that are begun, while each is gone or broken before it has come."""
LOOK_S: Final = 0.5
"""How often a fetch looks whether it is to end."""
HEAD_S_MAX: Final = 600.0
"""How long the feed may take to get to what the snapshot stands for: the publisher has yet to post that."""

_ROWS: Final = pa.schema([("key", pa.binary()), ("value", pa.binary())])


class LeftOff(Exception):
    """The job was told to stop before its tables had begun; the next run begins them."""


class Taken(NamedTuple):
    """A snapshot that has come whole: ``folder`` holds its rows, a folder a table; ``sequence_id`` is what it stands for."""

    folder: Path
    snapshot_id: str
    sequence_id: int
    schemas: list[PlacedSchema]
    tables: set[TableName]


def begin_with_snapshot(
    spark: SparkSession,
    ledger: Ledger,
    endpoint: Endpoint,
    listener: str,
    *,
    unreached: SequenceNotAvailable,
    stop: threading.Event | None = None,
) -> Start:
    """Fetch the publisher's snapshot and merge it into the tables; ``listener``: who asks for it, registered.

    Raises ``unreached``, with why there is no snapshot, if the publisher has none; LeftOff once ``stop`` is set; and what
    passes (Unavailable), what the server refuses, and what a merge raises.
    """
    stop = stop or threading.Event()
    folder = ledger.folder / "snapshot"
    shutil.rmtree(folder, ignore_errors=True)
    before = ledger.start if ledger.start is not None and ledger.start.source == SNAPSHOT else None
    floor = before.after if before is not None else 0
    history = ledger.feed, ledger.incarnation
    try:
        taken = asyncio.run(_until(stop, SnapshotFetching(history, endpoint, listener, folder).taken(floor)))
    except (NoSnapshot, SnapshotForbidden) as error:
        raise SequenceNotAvailable(
            f"{unreached.detail}; and the publisher's snapshot: {error.detail} ({error.code})",
            hint=unreached.advice,
        ) from None
    with Connection(endpoint) as server:
        lsn = _head_at(server, ledger.feed, taken.sequence_id, stop)
        oldest = server.feed(ledger.feed).oldest_sequence_id
    start = Start(
        source=SNAPSHOT,
        after=taken.sequence_id,
        oldest=oldest,
        at=now_text(),
        snapshot_id=taken.snapshot_id,
        folders=tuple(
            sorted(folder_of(one) for one in taken.tables | {placed.schema.name for placed in taken.schemas})
        ),
    )
    if before is not None:
        _remove_tables(ledger, before)
    _check_free(ledger, start)
    ledger.keep(
        start=start
    )  # before any table has a row of it: whoever begins anew must not take an older one
    _merge(spark, ledger, taken)
    ledger.begin(taken.sequence_id, taken.schemas, merged=Reached(taken.sequence_id, lsn))
    shutil.rmtree(folder, ignore_errors=True)
    return start


def end_lease(endpoint: Endpoint, listener: str, feed: str) -> None:
    """Let retention go on: from now on the listener's place holds. A lease that can't be given back ends by itself."""

    async def end() -> None:
        async with _client_of(endpoint) as client:
            await client.end_hydration(listener, feed)

    try:
        asyncio.run(end())
    except HeadraceError as error:
        logger.warning("a hydration lease was not given back", code=error.code, detail=error.detail)


async def _until(stop: threading.Event, work: Coroutine[Any, Any, Taken]) -> Taken:
    """Return what ``work`` does; LeftOff, and it is cancelled, once ``stop`` is set."""
    task = asyncio.create_task(work)
    try:
        while not stop.is_set():
            done, _ = await asyncio.wait({task}, timeout=LOOK_S)
            if done:
                return task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})
    raise LeftOff


def _remove_tables(ledger: Ledger, cut: Start) -> None:
    """Remove the tables of a snapshot that was cut: the next one may not have their rows, or not have them at all.

    Nothing was published of them. ConfigInvalid where one can't be removed.
    """
    for path in [ledger.to / folder for folder in cut.folders]:
        try:
            if os.path.lexists(path):  # a link that leads nowhere too: it is no table of ours
                shutil.rmtree(path)
        except OSError as error:
            raise ConfigInvalid(
                f"{path}, what is left of a snapshot that was cut, can't be removed: {error}",
                hint="Begin in an empty folder.",
            ) from None


def _check_free(ledger: Ledger, start: Start) -> None:
    """ConfigInvalid if a folder of the snapshot's tables is there already: it is somebody else's."""
    taken = [folder for folder in start.folders if os.path.lexists(ledger.to / folder)]
    if taken:
        raise ConfigInvalid(
            f"{ledger.to / taken[0]} is there already, and is none of this feed's tables",
            hint="Begin in an empty folder.",
        )


@asynccontextmanager
async def _client_of(endpoint: Endpoint) -> AsyncIterator[HydrationClient]:
    token, ca = (Path(file) if file else None for file in (endpoint.token_file, endpoint.ca_file))
    client = HydrationClient(endpoint.server, token=Credential.find(token), ca_file=ca)
    try:
        yield client
    finally:
        await client.close()


class SnapshotFetching:
    """One job's way to one whole snapshot of a history of a feed, (feed, incarnation), in ``folder``, which is made."""

    def __init__(self, history: tuple[str, str], endpoint: Endpoint, listener: str, folder: Path) -> None:
        self._feed, self._incarnation = history
        self._endpoint = endpoint
        self._listener = listener
        self._folder = folder
        self._part = _Part()
        self._parts = 0
        self._schemas: list[PlacedSchema] = []
        self._described: set[TableName] = set()
        self._tables: set[TableName] = set()

    async def taken(self, floor: int) -> Taken:
        """Return a snapshot that stands for ``floor`` at least, and joins what the feed holds."""
        async with _client_of(self._endpoint) as client:
            fetch = SnapshotFetch(client, self._feed, self._listener)
            try:
                return await self._until_whole(client, fetch, floor)
            finally:
                await fetch.close()

    async def _until_whole(self, client: HydrationClient, fetch: SnapshotFetch, floor: int) -> Taken:
        backoff, tries = Backoff(), 0
        deadline = time.monotonic() + self._endpoint.retry_s
        while True:
            done = fetch.bytes_done
            try:
                return await self._once(client, fetch, floor)
            except (SnapshotGone, SnapshotBroken):
                tries += 1
                fetch.found = None
                if tries == TRIES_MAX:
                    raise
            except Unavailable:
                if fetch.bytes_done > done:
                    deadline = time.monotonic() + self._endpoint.retry_s
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(backoff.next_delay())

    async def _once(self, client: HydrationClient, fetch: SnapshotFetch, floor: int) -> Taken:
        known = fetch.found
        lease = await client.take_hydration(
            self._listener,
            self._feed,
            *((known.snapshot_id, known.sequence_id) if known is not None else ()),
        )
        at_least = max(floor, lease.oldest_sequence_id - 1)
        found: StillMade | SnapshotFound | None = None
        while not isinstance(found, SnapshotFound):
            if found is not None:
                await asyncio.sleep(found.seconds)
            found = await fetch.open(at_least, known.snapshot_id if known is not None else None)
        if found.incarnation != self._incarnation or found.sequence_id < at_least:
            raise SnapshotBroken(
                f"the snapshot {found.snapshot_id} stands for {found.sequence_id} of {found.incarnation}"
            )
        if not fetch.begun:
            self._begin_anew()

        async def renew() -> None:
            await client.take_hydration(self._listener, self._feed, found.snapshot_id, found.sequence_id)

        await renew()
        async with aclosing(fetch.rows()) as batches:
            async for rows in batches:
                for row in rows:
                    self._take(row, found.sequence_id)
                if self._part.bytes >= PART_BYTES:
                    self._flush()
                    await renew()
        self._flush()
        return Taken(self._folder, found.snapshot_id, found.sequence_id, self._schemas, self._tables)

    def _begin_anew(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        self._part, self._parts = _Part(), 0
        self._schemas, self._described, self._tables = [], set(), set()

    def _take(self, row: SnapshotRow, place: int) -> None:
        name = tuple(row.table) if row.table is not UNSET else ()
        if row.is_control:
            schema = read_schema(bytes(row.changes), feed=self._feed, sequence_id=place)
            self._schemas.append(PlacedSchema(place - 1, schema))  # in force for rows of the place itself
            self._described.add(schema.name)
            return
        if name and name not in self._described:
            raise unfit(
                self._feed, place, name, "", "the snapshot has no schema of this table before its rows"
            )
        self._tables.add(name)
        self._part.add(name, row.key.encode(), bytes(row.changes))

    def _flush(self) -> None:
        if self._part.bytes:
            self._parts += 1
            for name, rows in self._part.tables():
                folder = self._folder / folder_of(name)
                folder.mkdir(exist_ok=True)
                pq.write_table(rows, folder / f"part-{self._parts:05}.parquet")
            self._part = _Part()


class _Part:
    """Rows that are gathered before they are written."""

    def __init__(self) -> None:
        self._rows: dict[TableName, tuple[list[bytes], list[bytes]]] = {}
        self.bytes = 0

    def add(self, name: TableName, key: bytes, value: bytes) -> None:
        keys, values = self._rows.setdefault(name, ([], []))
        keys.append(key)
        values.append(value)
        self.bytes += len(key) + len(value) + 64

    def tables(self) -> Iterator[tuple[TableName, pa.Table]]:
        for name, columns in self._rows.items():
            yield (
                name,
                pa.Table.from_arrays([array_of(values, pa.binary()) for values in columns], schema=_ROWS),
            )


def _head_at(server: Connection, feed: str, place: int, stop: threading.Event) -> str:
    """Wait until the feed has got to ``place``; return that entry's LSN if it is the newest one, else nothing.

    A snapshot may stand for entries that its publisher has yet to post. SequenceNotAvailable if they do not come,
    LeftOff once ``stop`` is set.
    """
    deadline = time.monotonic() + HEAD_S_MAX
    while True:
        view = server.feed(feed)
        if view.head_sequence_id >= place:
            return view.newest_lsn if view.head_sequence_id == place else ""
        if time.monotonic() > deadline:
            raise SequenceNotAvailable(
                f"the snapshot stands for entry {place} of {feed}, which the publisher has not posted",
                hint="See to the publisher's agent (headrace agent status), then start this again.",
            )
        if stop.wait(0.2):
            raise LeftOff


def _merge(spark: SparkSession, ledger: Ledger, taken: Taken) -> None:
    """Merge a snapshot's rows into tables that are not there."""
    place = taken.sequence_id
    numbered = {APP_ID: f"headrace:{ledger.feed}:{ledger.incarnation}", APP_VERSION: str(place)}
    described = {one.schema.name: one for one in taken.schemas}
    jobs: list[Callable[[], None]] = []
    for table in sorted(taken.tables):
        versions = [described[table]] if table else given_of(ledger)
        batch = TableBatch(ledger.feed, table, rows_of(spark, taken, table), versions, place, patched=False)
        jobs.append(partial(apply_batch, spark, ledger.to / folder_of(table), batch))
    jobs += [
        partial(create_empty, spark, ledger.to / folder_of(table), described[table])
        for table in sorted(set(described) - taken.tables)
    ]
    with settings(spark, EXACT_WRITES | numbered):
        run_all(spark, jobs)


def rows_of(spark: SparkSession, taken: Taken, table: TableName) -> DataFrame:
    """Return a snapshot's rows of one table as changes at the sequence id that it stands for."""
    return spark.read.parquet(str(taken.folder / folder_of(table))).select(
        "key",
        F.lit(taken.sequence_id).cast("bigint").alias("sequence_id"),
        F.lit(Op.PUT.value).alias("op"),
        "value",
    )
