"""Feeds whose beginning the archive does not have: their rows come from the publisher's snapshot instead.

A snapshot stands for a sequence id of its feed. Its rows become entries of that id, its schemas control entries of the
one below, and the archive's entries above it follow. So the archive must have those: where the agent has yet to archive
the entry that the snapshot stands for, it is waited for. Captured feeds have no snapshots: a copy of their tables is in
the feed itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from headrace.archive.files.bases import StoredBase
from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.histories import Line, Span, lines_of, newest_registry
from headrace.archive.moments.reachable import segment_of
from headrace.entries.entry import Op
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import NoSnapshot, SegmentGap, SnapshotForbidden
from headrace.pipeline.bases.surveying import Begun
from headrace.pipeline.connection import Connection, Endpoint
from headrace.pipeline.tables.hydrating import SnapshotFetching, Taken, end_lease
from headrace.pipeline.tables.ledger import folder_of
from headrace.pipeline.tables.schemas import TableName
from headrace.wire.arrays import array_of
from headrace.wire.base_manifest import BaseManifest
from headrace.wire.kwal_columns import DDL, LSN_MAX, SCHEMA, Wanted
from headrace.wire.kwal_manifest import Manifest

WAIT_S: Final = 600.0
"""How long the agent may take to archive what a snapshot stands for."""
_LOOK_S: Final = 0.5
_LISTENER: Final = "snapshot-create"


class Publishers(NamedTuple):
    """The server to ask for snapshots. ``scratch``: a folder for them; workers must reach it by the same path."""

    endpoint: Endpoint
    scratch: Path
    wait_s: float = WAIT_S


class FromPublisher(NamedTuple):
    """A feed that begins with a snapshot. ``first``: where the feed began. ``files``: its rows, by table."""

    begun: Begun
    region_id: int
    first: int
    tenant: str
    files: tuple[tuple[TableName, str], ...]


def middle_of(archive: Archive) -> Archive:
    """Return the archive as if a base stood where its segments begin to join: behind the last gap that nobody accepted."""
    first = archive.segments[0] if archive.segments else None
    told = archive.manifests.get(first.file) if first is not None else None
    if first is not None and told is None:
        raise SegmentGap(
            f"{archive.folder.where(first.file)} has no manifest: nobody can tell where the archive begins",
            hint="Start a backup agent on the folder: it writes the manifest anew.",
        )
    start = Lsn.parse(told.walked_from) if told is not None else ZERO
    for gap in archive.chain.gaps():
        if not gap.accepted:
            start = max(start, Lsn.from_int(int(gap.before) - 1))
    manifest = BaseManifest(
        lsn=str(start), committed_at_ms=start.committed_at_ms, created_at_ms=0, buckets=1, feeds=(), files=()
    )
    return archive.with_base(StoredBase(start, "", manifest))


def fetch(url: str, identity: str, archive: Archive, publishers: Publishers) -> list[FromPublisher]:
    """Fetch a snapshot of each feed whose beginning is not in the archive, and wait until what it stands for is.

    ``archive``: as :func:`middle_of` gives it. A feed that has had no entry since the archive began is among them.
    SegmentGap, with why, where a publisher serves none, or a feed is not on the server any more; SnapshotBroken,
    SnapshotGone, Unavailable.
    """
    after = archive.bases[0].lsn
    lines = lines_of(None, _manifests(archive, after, LSN_MAX), LSN_MAX, from_start=after == ZERO)
    with Connection(publishers.endpoint) as server:
        views = {view.change_feed_id: view for view in server.feeds()}
    lacking = [line.spans[-1] for line in lines.values() if line.problem]
    for feed, view in views.items():
        head = view.head_sequence_id
        if feed not in lines and head:
            lacking.append(
                Span(feed, view.region_id, view.incarnation, head + 1, head, Lsn.parse(view.newest_lsn))
            )
    gone = sorted({span.feed for span in lacking} - views.keys())
    gone += sorted(
        newest_registry(None, _manifests(archive, after, LSN_MAX), LSN_MAX).keys()
        - views.keys()
        - lines.keys()
    )
    if gone:
        raise SegmentGap(
            f"the server has no feed {gone[0]} any more, and the archive has not got its beginning"
        )
    return [_fetched(url, identity, span, publishers) for span in lacking]


def begins_at(line: Line | None, one: FromPublisher) -> Line:
    """Return a feed's line from its snapshot on; ``line`` is None if the archive has no entry of it.

    SegmentGap if the archive lacks entries between the two.
    """
    begun = one.begun
    if line is None:
        quiet = Span(
            begun.feed, one.region_id, begun.incarnation, begun.sequence_id + 1, begun.sequence_id, begun.lsn
        )
        return Line(begun.feed, (quiet,), one.first, "", ())
    span = line.spans[-1]
    if span.incarnation != begun.incarnation or span.first > begun.sequence_id + 1:
        raise SegmentGap(
            f"{begun.feed}: the publisher's snapshot stands for entry {begun.sequence_id}, and the archive has the feed "
            f"from {span.first} on"
        )
    return Line(line.feed, (span._replace(first=begun.sequence_id + 1),), one.first, "", line.older)


def rows_frame(spark: SparkSession, feeds: Sequence[FromPublisher]) -> DataFrame | None:
    """Return the snapshots' rows as entries, with an archive's columns; None if there are none."""
    files = [(one, table, path) for one in feeds for table, path in one.files]
    if not files:
        return None
    tasks = [(_stamp(one), table, path) for one, table, path in files]
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(partial(_read, tasks=tasks), DDL)


class _Stamp(NamedTuple):
    feed: str
    incarnation: str
    sequence_id: int
    lsn: Lsn
    tenant: str


def _stamp(one: FromPublisher) -> _Stamp:
    begun = one.begun
    return _Stamp(begun.feed, begun.incarnation, begun.sequence_id, begun.lsn, one.tenant)


def _read(batches: Iterator[Any], tasks: Sequence[tuple[_Stamp, TableName, str]]) -> Iterator[Any]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            stamp, table, path = tasks[number]
            with pq.ParquetFile(path) as file:
                for rows in file.iter_batches(8192):
                    keys, values = rows.column("key").to_pylist(), rows.column("value").to_pylist()
                    yield _entries(stamp, stamp.sequence_id, table, keys, values)


def _entries(
    stamp: _Stamp,
    place: int,
    table: TableName,
    keys: Sequence[bytes],
    values: Sequence[bytes],
    *,
    control: str = "",
) -> Any:
    """Return entries of one place as a record batch."""
    count = len(keys)
    ts = stamp.lsn.global_ts
    given: dict[str, Any] = {
        "feed": stamp.feed,
        "sequence_id": place,
        "lsn": str(stamp.lsn),
        "commit_ts": ts,
        "committed_at": (ts >> 18) * 1000,
        "tenant_id": stamp.tenant,
        "op": Op.PUT.value,
        "control": control or None,
        "table": list(table) or None,
        "source_tx": None,
        "tx_last": False,
        "append_end": True,
        "copy": not control,
        "source_time": None,
        "incarnation": stamp.incarnation,
    }
    made = {"key": array_of(keys, pa.binary()), "value": array_of(values, pa.binary())}
    for field in SCHEMA:
        if field.name not in made:
            made[field.name] = array_of([given[field.name]] * count, field.type)
    return pa.RecordBatch.from_arrays([made[field.name] for field in SCHEMA], schema=SCHEMA)


def _fetched(url: str, identity: str, span: Span, publishers: Publishers) -> FromPublisher:
    endpoint, feed = publishers.endpoint, span.feed
    folder = publishers.scratch / uuid4().hex
    with Connection(endpoint) as server:
        view = server.feed(feed)
        server.register_listener(_LISTENER, feed, hold=False)
    if view.incarnation != span.incarnation:
        raise SegmentGap(
            f"the server has {feed} under the history {view.incarnation}, the archive {span.incarnation}"
        )
    fetching = SnapshotFetching((feed, span.incarnation), endpoint, _LISTENER, folder)
    try:
        taken = asyncio.run(fetching.taken(max(0, span.first - 1)))
    except (NoSnapshot, SnapshotForbidden) as error:
        raise SegmentGap(
            f"{feed} begins with entry {span.first} in the archive, and its publisher's snapshot: {error.detail} "
            f"({error.code})",
            hint="Let the publisher's agent serve snapshots (docs/howto/snapshots.md). A captured feed has none: copy its "
            "source into a new feed.",
        ) from None
    finally:
        end_lease(endpoint, _LISTENER, feed)
    if span.last == taken.sequence_id and span.first > span.last:
        lsn = span.first_lsn  # nothing has come since
    else:
        lsn = _lsn_of(url, identity, span, taken.sequence_id, publishers.wait_s)
    stamp = _Stamp(feed, span.incarnation, taken.sequence_id, lsn, view.tenant_id)
    begun = Begun(feed, span.incarnation, taken.sequence_id, lsn, _schemas(stamp, taken))
    files = tuple(
        (table, str(path))
        for table in sorted(taken.tables)
        for path in sorted((taken.folder / folder_of(table)).glob("*.parquet"))
    )
    return FromPublisher(begun, view.region_id, view.first_sequence_id or 1, view.tenant_id, files)


def _schemas(stamp: _Stamp, taken: Taken) -> pa.Table:
    batches = []
    for placed in taken.schemas:
        schema = placed.schema
        key = f"\0schema/{schema.database}/{schema.table}/{schema.version}".encode()
        value = msgspec.json.encode(schema)
        batches.append(_entries(stamp, placed.sequence_id, schema.name, [key], [value], control="schema"))
    return pa.Table.from_batches(batches, schema=SCHEMA)


def _lsn_of(url: str, identity: str, span: Span, place: int, wait_s: float) -> Lsn:
    """Return the LSN of a feed's entry, once the archive has it."""
    deadline = time.monotonic() + wait_s
    while True:
        archive = Archive.read(url, identity)
        for one in archive.segments:
            for told in archive.manifests[one.file].feeds if one.file in archive.manifests else ():
                history = told.feed, told.incarnation
                if history == (span.feed, span.incarnation) and (
                    told.first_sequence_id <= place <= told.last_sequence_id
                ):
                    wanted = Wanted(last=LSN_MAX, feeds=(span.feed,), first_id=place, last_id=place)
                    (found,) = segment_of(archive, one).batches(("lsn",), wanted)
                    return Lsn.parse(found.column("lsn")[0].as_py())
        if time.monotonic() > deadline:
            raise SegmentGap(
                f"the publisher's snapshot of {span.feed} stands for entry {place}, which is not in the archive",
                hint="Let a backup agent run meanwhile (headrace wal backup), then make the base again.",
            )
        time.sleep(_LOOK_S)


def _manifests(archive: Archive, after: Lsn, last: Lsn) -> list[Manifest]:
    return [
        archive.manifests[one.file]
        for one in archive.segments
        if one.file in archive.manifests and one.name.last > after and one.name.first <= last
    ]
