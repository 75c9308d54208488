"""What a plan's segments and base hold, found by reading every byte of them once, before anything is written.

Each segment and each file of the base is verified on the way, so a restore that begins to write has seen nothing
damaged. What comes to the driver is a row for each segment and feed, and the control entries that change tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.pipeline.restore.scanning import Part, Range, opened, scan
from headrace.pipeline.tables.schemas import TableName
from headrace.wire import columns
from headrace.wire.arrays import array_of
from headrace.wire.kwal_columns import Wanted

CONTROLS: Final = ("truncate", "schema", "ddl")
"""Control entries that change which rows a table has, or what its rows are called."""

_SCHEMA: Final = pa.schema(
    [
        ("feed", pa.string()),
        ("incarnation", pa.string()),
        ("entries", pa.int64()),
        ("rows", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("last_ts", pa.int64()),
        ("control", pa.string()),
        ("table", columns.SCHEMA.field("table").type),
        ("value", pa.binary()),
    ]
)
_DDL: Final = (
    "feed STRING, incarnation STRING, entries BIGINT, `rows` BIGINT, first BIGINT, last BIGINT, last_ts BIGINT, "
    "control STRING, `table` ARRAY<STRING>, value BINARY"
)
_TOLD_BY_CONTROLS: Final = frozenset({"control", "table", "value"})
_COUNTED: Final = ("feed", "incarnation", "sequence_id", "commit_ts", "control")
TELLING: Final = ("feed", "incarnation", "sequence_id", "commit_ts", "control", "table", "value")


class Control(NamedTuple):
    """A control entry of a feed: its place, its name, the table that it is of, what it says."""

    feed: str
    incarnation: str
    sequence_id: int
    control: str
    table: TableName
    value: bytes


class Held(NamedTuple):
    """How many entries of one history of a feed there are, and how many of them are rows; the first and the last one."""

    feed: str
    incarnation: str
    entries: int
    rows: int
    first: int
    last: int
    last_ts: int


class Survey(NamedTuple):
    """What was found: histories of feeds, and control entries in the order of each feed."""

    held: list[Held]
    controls: list[Control]


def survey_segments(spark: SparkSession, wanted: Range, groups: Sequence[Sequence[Part]]) -> Survey:
    """Read and verify the segments whole, and tell what they hold of the wanted range.

    Raises, as Spark's exception, SegmentCorrupt naming file and byte, IdentityNeeded, ArchiveUnavailable.
    """
    return _told(scan(spark, wanted, groups, _survey_task, _DDL))


def survey_base(base: DataFrame) -> Survey:
    """Read a base's rows, each file of which is verified on the way, and tell the same of them."""
    return _told(base.select(*TELLING).mapInArrow(_survey_batches, _DDL))


def joined(surveys: Iterable[Survey]) -> Survey:
    """Put surveys into one."""
    found: dict[tuple[str, str], list[Held]] = {}
    controls: list[Control] = []
    for survey in surveys:
        controls += survey.controls
        for one in survey.held:
            found.setdefault((one.feed, one.incarnation), []).append(one)
    held = [
        Held(
            *history,
            sum(part.entries for part in parts),
            sum(part.rows for part in parts),
            min(part.first for part in parts),
            *max((part.last, part.last_ts) for part in parts),
        )
        for history, parts in sorted(found.items())
    ]
    return Survey(held, sorted(controls, key=lambda one: (one.feed, one.incarnation, one.sequence_id)))


def _told(frame: DataFrame) -> Survey:
    frame = frame.persist()
    try:
        counts = frame.where("control IS NULL").groupBy("feed", "incarnation")
        totals = counts.agg(
            F.sum("entries").alias("entries"),
            F.sum("rows").alias("rows"),
            F.min("first").alias("first"),
            F.max(F.struct("last", "last_ts")).alias("end"),
        )
        held = [
            Held(row["feed"], row["incarnation"], row["entries"], row["rows"], row["first"], *row["end"])
            for row in totals.collect()
        ]
        named = frame.where("control IS NOT NULL").select(
            "feed", "incarnation", "first", "control", "table", "value"
        )
        controls = [
            Control(
                row["feed"],
                row["incarnation"],
                row["first"],
                row["control"],
                tuple(row["table"] or ()),
                bytes(row["value"]),
            )
            for row in named.collect()
        ]
    finally:
        frame.unpersist()
    return joined([Survey(held, controls)])


def _survey_task(wanted: Range, part: Part) -> Iterator[Any]:
    segment = opened(wanted, part)
    selection = Wanted(wanted.first, wanted.last)
    counts: list[dict[str, Any]] = []
    telling = False
    for batch in segment.batches(_COUNTED, selection):
        counts += _counts(batch)
        telling = telling or pc.any(_is_telling(batch)).as_py()
    yield _rows(_summed(counts))
    if telling:  # few segments have one, so only those are looked at a second time, with values
        for batch in segment.batches(TELLING, selection):
            yield _controls(batch)


def _survey_batches(batches: Iterator[Any]) -> Iterator[Any]:
    counts: list[dict[str, Any]] = []
    for batch in batches:
        counts = _summed([*counts, *_counts(batch)])
        yield _controls(batch)
    yield _rows(counts)


def _is_telling(batch: Any) -> Any:
    return pc.is_in(batch.column("control"), array_of(CONTROLS, pa.string()))


def _counts(batch: Any) -> list[dict[str, Any]]:
    table = pa.table(
        {
            "feed": batch.column("feed"),
            "incarnation": batch.column("incarnation"),
            "sequence_id": batch.column("sequence_id"),
            "commit_ts": batch.column("commit_ts"),
            "row": pc.is_null(batch.column("control")).cast(pa.int64()),
        }
    )
    wanted = [
        ("row", "count"),
        ("row", "sum"),
        ("sequence_id", "min"),
        ("sequence_id", "max"),
        ("commit_ts", "max"),
    ]
    found: list[dict[str, Any]] = table.group_by(["feed", "incarnation"]).aggregate(wanted).to_pylist()
    return [
        {
            "feed": one["feed"],
            "incarnation": one["incarnation"],
            "entries": one["row_count"],
            "rows": one["row_sum"],
            "first": one["sequence_id_min"],
            "last": one["sequence_id_max"],
            "last_ts": one["commit_ts_max"],
        }
        for one in found
    ]


def _summed(counts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in counts:
        known = found.setdefault((one["feed"], one["incarnation"]), one)
        if known is not one:
            known["entries"] += one["entries"]
            known["rows"] += one["rows"]
            for name, pick in (("first", min), ("last", max), ("last_ts", max)):
                known[name] = pick(known[name], one[name])
    return list(found.values())


def _controls(batch: Any) -> Any:
    """The telling control entries: ``first`` has the place."""
    rows = batch.filter(_is_telling(batch))
    given = {
        "feed": rows.column("feed"),
        "incarnation": rows.column("incarnation"),
        "first": rows.column("sequence_id"),
        "control": rows.column("control"),
        "table": rows.column("table"),
        "value": rows.column("value"),
    }
    arrays = [
        given[field.name] if field.name in given else pa.nulls(rows.num_rows, field.type) for field in _SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _rows(counts: Sequence[dict[str, Any]]) -> Any:
    arrays = [
        pa.nulls(len(counts), field.type)
        if field.name in _TOLD_BY_CONTROLS
        else array_of([one[field.name] for one in counts], field.type)
        for field in _SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
