"""What there is to fold, found before anything is written: control entries, and where each feed ends. Driver only.

Every segment is read whole and verified on the way, and every control file of the base before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.archive.files.bases import StoredBase
from headrace.archive.files.folder import Folder
from headrace.archive.moments.histories import Line
from headrace.entries.lsn import Lsn
from headrace.errors import ControlsTooMany, SegmentCorrupt
from headrace.pipeline.bases.controls import needed_controls
from headrace.pipeline.bases.generations import ControlEntry, FeedGenerations, TableName, generations_of
from headrace.pipeline.bases.reading import BaseFileTask, read_file
from headrace.pipeline.bases.scanning import END, Part, Reading, scan, survey_task
from headrace.pipeline.bases.writing import is_control
from headrace.wire.arrays import array_of, arrow_ints, scalar_of
from headrace.wire.kwal_columns import SCHEMA

_HISTORY: Final = ("feed", "incarnation")
CONTROL_BYTES_MAX: Final = 1 << 30
"""Bytes of control entries that are collected at most: as many as Spark collects by default
(``spark.driver.maxResultSize``). In this process they take up to three times as many."""
ROW_BYTES: Final = 1024
"""What an entry takes beside its key and value, about."""
_TABLES: Final = msgspec.json.Decoder(tuple[TableName, ...])


class Begun(NamedTuple):
    """A feed that begins with a publisher's snapshot: the entry that it stands for, and its schemas, as control entries."""

    feed: str
    incarnation: str
    sequence_id: int
    lsn: Lsn
    controls: pa.Table


class FeedEnd(NamedTuple):
    """The last entry of one history of a feed that counts."""

    sequence_id: int
    lsn: Lsn


class Survey(NamedTuple):
    """``ends``: of each (feed, incarnation) of the lines. ``feeds``: their tables' generations. ``controls``: rows to keep,
    of the ``looked_at`` control entries that there are, all of which were in memory at once. ``other_keys``: the tables of a
    captured feed with rows whose keys are none of capture's; None if that is not known, as the base before does not tell.
    """

    ends: Mapping[tuple[str, str], FeedEnd]
    feeds: Mapping[str, FeedGenerations]
    controls: pa.Table
    looked_at: int
    other_keys: Mapping[str, frozenset[TableName] | None]


def survey(
    spark: SparkSession,
    reading: Reading,
    groups: Sequence[Sequence[Part]],
    base: tuple[Folder, StoredBase] | None,
    lines: Mapping[str, Line],
    *,
    begun: Sequence[Begun] = (),
    control_bytes_max: int = CONTROL_BYTES_MAX,
) -> Survey:
    """Look through the segments and the base. Raises, as Spark's exception, what reading them raises; BaseCorrupt;
    ControlsTooMany before more than ``control_bytes_max`` of control entries are in this process's memory.

    ``begun``: feeds that begin with a publisher's snapshot.
    """
    room = _Room(control_bytes_max)
    found = _collected(scan(spark, reading, groups, survey_task), room)
    is_end = pc.equal(pc.fill_null(found.column("control"), scalar_of("")), scalar_of(END))
    known = {(one.feed, one.incarnation): FeedEnd(one.sequence_id, one.lsn) for one in begun}
    ends = _ends(found.filter(is_end), base[1] if base is not None else None, lines, known)
    tables = [found.filter(pc.invert(is_end)), *(one.controls for one in begun)]
    if base is not None:
        kept = {(span.feed, span.incarnation) for line in lines.values() for span in line.spans}
        tables += [_of(room.took(table), kept) for table in _base_controls(*base)]
    controls = _ordered(pa.concat_tables(tables))
    entries = _entries(controls)
    other_keys = _other_keys(found.filter(is_end), base[1] if base is not None else None, lines)
    feeds = {}
    for feed, line in lines.items():
        last = ends[feed, line.incarnation].sequence_id
        feeds[feed] = generations_of(entries.get(feed, []), last, other_keys[feed] or ())
        if not feeds[feed].captured:
            other_keys[feed] = frozenset()
    return Survey(ends, feeds, _needed(controls, entries, feeds), controls.num_rows, other_keys)


class _Room:
    """What control entries may still take of this process's memory."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._taken = 0

    def take(self, taken: int) -> None:
        """Take so many bytes; ControlsTooMany if there are not as many left."""
        self._taken += taken
        if self._taken > self._bytes_max:
            raise ControlsTooMany(
                f"its control entries and those of the base before take more than {self._bytes_max:,} bytes of memory"
            )

    def took(self, table: pa.Table) -> pa.Table:
        """Take a table's bytes, and return it."""
        self.take(table.nbytes + ROW_BYTES * table.num_rows)
        return table


def _collected(rows: DataFrame, room: _Room) -> pa.Table:
    """Return rows of Spark, once it is known that they are not too many: they wait on the workers' disks."""
    kept = rows.persist(StorageLevel.DISK_ONLY)
    try:
        size = F.octet_length("key") + F.octet_length("value") + F.lit(ROW_BYTES)
        (told,) = kept.agg(F.sum(size)).collect()
        room.take(int(told[0] or 0))
        return kept.toArrow().cast(SCHEMA)
    finally:
        kept.unpersist()


def _ends(
    told: pa.Table,
    base: StoredBase | None,
    lines: Mapping[str, Line],
    begun: Mapping[tuple[str, str], FeedEnd],
) -> dict[tuple[str, str], FeedEnd]:
    ends = dict(begun) | {
        (one.feed, one.incarnation): FeedEnd(one.sequence_id, Lsn.parse(one.lsn))
        for one in (base.manifest.feeds if base is not None else ())
    }
    for row in told.select([*_HISTORY, "sequence_id", "lsn"]).to_pylist():
        history = row["feed"], row["incarnation"]
        end = FeedEnd(row["sequence_id"], Lsn.parse(row["lsn"]))
        ends[history] = max(end, ends.get(history, end))
    wanted = {(span.feed, span.incarnation) for line in lines.values() for span in line.spans}
    missing = sorted(wanted - ends.keys())
    if missing:
        raise SegmentCorrupt(f"no segment has an entry of {missing[0][0]} that its manifest tells of")
    return {history: end for history, end in ends.items() if history in wanted}


def _other_keys(
    told: pa.Table, base: StoredBase | None, lines: Mapping[str, Line]
) -> dict[str, frozenset[TableName] | None]:
    """Return which tables of each feed have rows with keys that are none of capture's; see :class:`Survey`."""
    found: dict[str, set[TableName]] = {feed: set() for feed in lines}
    for row in told.select([*_HISTORY, "value"]).to_pylist():
        found.setdefault(row["feed"], set()).update(_TABLES.decode(row["value"]))
    unknown = set()
    for one in base.manifest.feeds if base is not None else ():
        if one.other_keys is UNSET:
            unknown.add(one.feed)
        else:
            found.setdefault(one.feed, set()).update(one.other_keys)
    return {feed: None if feed in unknown else frozenset(found[feed]) for feed in lines}


def _base_controls(folder: Folder, base: StoredBase) -> Iterable[pa.Table]:
    for one in base.manifest.files:
        if is_control(one.path):
            task = BaseFileTask(f"{base.path}/{one.path}", one.size, one.crc, one.rows)
            yield pa.Table.from_batches(list(read_file(folder, task)), schema=SCHEMA)


def _of(table: pa.Table, histories: set[tuple[str, str]]) -> pa.Table:
    """Return the rows of these histories."""
    pairs = zip(*(table.column(name).to_pylist() for name in _HISTORY), strict=True)
    return table.filter(array_of([pair in histories for pair in pairs], pa.bool_()))


def _ordered(table: pa.Table) -> pa.Table:
    """Return control entries by feed and sequence id, each once."""
    rows = list(
        zip(*(table.column(name).to_pylist() for name in ("feed", "sequence_id", "key")), strict=True)
    )
    first: dict[tuple[str, int, bytes], int] = {}
    for index, row in enumerate(rows):
        first.setdefault(row, index)
    return _taken(table, [first[row] for row in sorted(first)])


def _taken(table: pa.Table, rows: Sequence[int]) -> pa.Table:
    import numpy as np

    return table.take(arrow_ints(np.asarray(rows, np.int64)))


def _entries(controls: pa.Table) -> dict[str, list[ControlEntry]]:
    found: dict[str, list[ControlEntry]] = {}
    for row in controls.select(["feed", "sequence_id", "control", "table", "value"]).to_pylist():
        entry = ControlEntry(row["sequence_id"], row["control"], tuple(row["table"] or ()), row["value"])
        found.setdefault(row["feed"], []).append(entry)
    return found


def _needed(
    controls: pa.Table, entries: Mapping[str, Sequence[ControlEntry]], feeds: Mapping[str, FeedGenerations]
) -> pa.Table:
    """Return the control entries that a fold needs."""
    needed = {feed: needed_controls(found, feeds[feed].last) for feed, found in entries.items()}
    rows: list[Any] = controls.select(["feed", "sequence_id", "control"]).to_pylist()
    return _taken(
        controls,
        [
            index
            for index, row in enumerate(rows)
            if (row["sequence_id"], row["control"]) in needed[row["feed"]]
        ],
    )
