"""Steps of a captured table's plan -> its Delta table. DataFrame in, Delta out; called by the tables job.

Every step may be repeated, after a kill anywhere: rows are merged by (commitTs, sequence id), and carry the transaction
version that :mod:`headrace.pipeline.tables.merge` explains; column changes are counted by the commits they made.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.errors import ValueUnfit
from headrace.pipeline.tables.delta_log import USER_METADATA, commits_after, newest_version
from headrace.pipeline.tables.merge import (
    COLUMN_MAPPING,
    MAPPED_CHARACTERS,
    TIMELESS,
    properties_of,
    set_properties,
    settings,
)
from headrace.pipeline.tables.moments import TIMESTAMP_NTZ
from headrace.pipeline.tables.rows import GONE, SEQUENCE_ID, quoted
from headrace.pipeline.tables.schemas import OWN_PREFIX
from headrace.pipeline.tables.simple.rows import COMMIT_TS, OWN_DDL, typed_batches, typed_ddl
from headrace.pipeline.tables.simple.steps import Evolve, Reading, Rows, TableColumn

_NEWER: Final = f"(s.{COMMIT_TS} > t.{COMMIT_TS} OR (s.{COMMIT_TS} = t.{COMMIT_TS} AND s.{SEQUENCE_ID} > t.{SEQUENCE_ID}))"
_RANGED: Final = {"tinyint", "smallint", "int", "bigint", "string"}
"""Types of keys, beside decimals, of which Delta knows the least and the greatest of a file."""
_LAST: Final = f"{OWN_PREFIX}last"
_ALTERING: Final = {
    "SET TBLPROPERTIES",
    "DROP COLUMNS",
    "RENAME COLUMN",
    "CHANGE COLUMN",
    "CHANGE COLUMNS",
    "ADD COLUMNS",
    "REPLACE COLUMNS",
    "WRITE",
}
"""Delta's names of commits that may change a table's columns."""


def make(spark: SparkSession, path: Path, columns: Sequence[TableColumn]) -> None:
    """Make an empty table, if it isn't there."""
    if newest_version(path) is None:
        _empty_frame(spark, columns).write.format("delta").options(**_properties(columns)).save(str(path))


def empty(spark: SparkSession, path: Path, columns: Sequence[TableColumn]) -> None:
    """Take all rows out of a table, and give it exactly these columns, in one commit. It is made if it isn't there."""
    if newest_version(path) is None:
        make(spark, path, columns)
        return
    if _has_timeless(columns):
        spark.sql(set_properties(path, TIMELESS))
    writer = _empty_frame(spark, columns).write.format("delta").mode("overwrite")
    writer.option("overwriteSchema", "true").options(**_properties(columns)).save(str(path))


def merge_rows(spark: SparkSession, path: Path, entries: DataFrame, step: Rows) -> None:
    """Merge the rows of a step; ``entries``: the batch. ValueUnfit comes as the text of a JVM error."""
    rows = _net(rows_of(entries, step), step.reading)
    if newest_version(path) == 0:
        # Just made: nothing is there to be merged with.
        fresh = rows.where(~F.col(GONE)).drop(GONE)
        fresh.write.format("delta").mode("append").save(str(path))
        return
    columns = {quoted(name): f"s.{quoted(name)}" for name in rows.columns if name != GONE}
    same = F.expr(" AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in step.reading.key))
    rows = rows.persist()
    try:
        (
            DeltaTable.forPath(spark, str(path))
            .alias("t")
            .merge(rows.alias("s"), _within(rows, step.reading, same))
            .whenMatchedDelete(f"s.{GONE} AND {_NEWER}")
            .whenMatchedUpdate(_NEWER, set=dict(columns))
            .whenNotMatchedInsert(f"NOT s.{GONE}", values=dict(columns))
            .execute()
        )
    finally:
        rows.unpersist()


def _within(rows: DataFrame, reading: Reading, same: Column) -> Column:
    """Return the condition ``same`` with what follows from it: between which keys rows are. Other files aren't read."""
    kinds = {column.name: column.kind for column in reading.columns}
    names = [name for name in reading.key if kinds[name] in _RANGED or kinds[name].startswith("decimal")]
    if not names:
        return same
    ends = rows.agg(*[end(quoted(name)) for name in names for end in (F.min, F.max)]).first()
    if ends is None or None in ends:
        return same
    for name, least, most in zip(names, ends[::2], ends[1::2], strict=True):
        column = F.col(f"t.{quoted(name)}")
        # As the column's own type: Delta's statistics do not help where it would be cast.
        same = same & column.between(*[F.lit(end).cast(kinds[name]) for end in (least, most)])
    return same


def rows_of(entries: DataFrame, step: Rows) -> DataFrame:
    """Return the entries of a step that are rows."""
    names = [F.array(*[F.lit(part) for part in name]) for name in step.names]
    mine = F.col("table").isin(*names) if len(names) > 1 else F.col("table") == names[0]
    kept = mine & F.col("control").isNull() & F.col("sequence_id").between(step.first, step.last)
    return entries.where(kept).select("sequence_id", "value")


def _net(rows: DataFrame, reading: Reading) -> DataFrame:
    """Return one row a key: the last thing that happened to it."""
    typed = rows.mapInArrow(partial(typed_batches, reading=reading), typed_ddl(reading))
    last = F.max_by(
        F.struct(*[F.col(quoted(name)) for name in typed.columns]), F.struct(COMMIT_TS, SEQUENCE_ID)
    )
    keyed = typed.groupBy(*[F.col(quoted(name)) for name in reading.key])
    return keyed.agg(last.alias(_LAST)).select(f"{_LAST}.*")


def check(spark: SparkSession, path: Path, step: Evolve) -> None:
    """Raise ValueUnfit if a row that is there would not be what the source has after this change of columns."""
    frame = spark.read.format("delta").load(str(path)) if step.checks else None
    for one in step.checks:
        if frame is not None and not frame.where(f"NOT ({one.sql})").isEmpty():
            raise ValueUnfit(
                one.reason,
                sequence_id=step.place,
                table=list(step.state.name),
                column=one.column,
            )


def evolve(spark: SparkSession, path: Path, step: Evolve, since: int) -> None:
    """Give the table its new columns. ``since``: the table's version before the step; what is done since is not done again.

    The step's commits are told by a mark that they carry, so others may stand between them. ValueUnfit if one of those
    changed the columns too.
    """
    mark = f"headrace:columns:{step.place}"
    commits = list(commits_after(path, since))
    done = sum(one.mark == mark for one in commits)
    foreign = next((one for one in commits if one.mark != mark and one.operation in _ALTERING), None)
    if foreign is not None:
        raise ValueUnfit(
            f"version {foreign.version} of the table, {foreign.operation}, came in the middle of a change of its columns",
            sequence_id=step.place,
            table=list(step.state.name),
        )
    with settings(spark, {USER_METADATA: mark}):
        statements = _statements(path, step)
        for statement in statements[done:]:
            spark.sql(statement)
        if not step.in_place and done <= len(statements):
            _write_anew(spark, path, step)


def _write_anew(spark: SparkSession, path: Path, step: Evolve) -> None:
    frame = spark.read.format("delta").load(str(path))
    projected = [F.expr(f"CAST({one.value.sql()} AS {one.kind})").alias(one.name) for one in step.projection]
    rows = frame.select(SEQUENCE_ID, COMMIT_TS, *projected)
    writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    # A transaction of its own: the place may be that of the last merge, which Delta would take for this commit.
    writer = writer.option("txnAppId", "headrace:columns").option("txnVersion", str(step.place))
    writer.options(**_properties(step.after)).save(str(path))


def _statements(path: Path, step: Evolve) -> list[str]:
    """Return what is to be said to Delta, the same whenever the step is done again. Not in place: before all is written."""
    if not step.in_place:
        return [set_properties(path, TIMELESS)] if _has_timeless(step.after) else []
    table = f"ALTER TABLE delta.{quoted(str(path))}"
    properties = {}
    if step.renames or step.drops or any(MAPPED_CHARACTERS & set(column.name) for column in step.adds):
        # Without it a rename or drop would rewrite every file.
        properties[COLUMN_MAPPING] = "name"
    if step.widenings:
        properties["delta.enableTypeWidening"] = "true"
    if _has_timeless((*step.adds, *step.widenings)):
        properties |= TIMELESS
    found = []
    if properties:
        found.append(set_properties(path, properties))
    if step.drops:
        found.append(f"{table} DROP COLUMNS ({', '.join(map(quoted, step.drops))})")
    found += [f"{table} RENAME COLUMN {quoted(old)} TO {quoted(new)}" for old, new in step.renames]
    found += [f"{table} ALTER COLUMN {quoted(one.name)} TYPE {one.kind}" for one in step.widenings]
    if step.adds:
        found.append(f"{table} ADD COLUMNS ({_ddl(step.adds)})")
    return found


def _has_timeless(columns: Sequence[TableColumn]) -> bool:
    return any(column.kind == TIMESTAMP_NTZ for column in columns)


def _empty_frame(spark: SparkSession, columns: Sequence[TableColumn]) -> DataFrame:
    own = f", {_ddl(columns)}" if columns else ""
    return spark.createDataFrame([], f"{OWN_DDL}{own}")


def _ddl(columns: Sequence[TableColumn]) -> str:
    return ", ".join(f"{quoted(column.name)} {column.kind}" for column in columns)


def _properties(columns: Sequence[TableColumn]) -> dict[str, str]:
    return properties_of([column.name for column in columns])
