"""One table's part of a batch -> its Delta table, in one commit. DataFrame in, Delta out; called by the tables job.

The commit carries (application, version) = (the feed's history, the batch's last sequence id). Delta skips a commit whose
version it has, so a batch that runs again changes nothing, whatever the query or its checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.entries.entry import Op
from headrace.pipeline.tables.delta_log import newest_version
from headrace.pipeline.tables.folding import PLAIN_DDL, SEED, folded_batches, plain_batches
from headrace.pipeline.tables.moments import MOMENTS, TIMESTAMP_NTZ, sql_number
from headrace.pipeline.tables.rows import (
    CHANGE_DDL,
    GONE,
    KEY,
    SEQUENCE_ID,
    quoted,
    spark_columns,
    typed_batches,
    typed_ddl,
)
from headrace.pipeline.tables.schemas import Evolution, PlacedSchema, TableName, evolution, lenient

APP_ID: Final = "spark.databricks.delta.write.txnAppId"
APP_VERSION: Final = "spark.databricks.delta.write.txnVersion"
"""Session settings that name the (application, version) of every Delta commit made under them."""

COLUMN_MAPPING: Final = "delta.columnMapping.mode"
MAPPED_CHARACTERS: Final = set(" ,;{}()\n\t=")
"""Characters that a column's name can have only where Delta keeps names apart from the files' own."""

TIMELESS: Final = {"delta.feature.timestampNtz": "supported"}
"""With this a table may get a column of timestamps without a zone. Delta gives it to a table that is made with one, not to
one that gets the column later, be it by ADD COLUMNS or with all else written anew."""

PROPERTIES: Final = {
    "delta.logRetentionDuration": "interval 7 days",
    "delta.deletedFileRetentionDuration": "interval 2 days",
    "delta.enableExpiredLogCleanup": "false",
}
"""What every table is made with. The job alone removes old files and old commits: it knows which versions are still needed,
Delta would go by their age."""

EXACT_WRITES: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
"""Session settings with which every date and timestamp is written as the number it is, and any reader gets it back: the
default's nanoseconds (INT96) wrap around in other readers before 1677 and after 2262."""


SOURCE_AS_IT_IS: Final = {
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.databricks.delta.merge.failSourceCachedAfterMaterialization": "false",
}
"""Session settings with which MERGE makes no copy of its source: for one that is persisted, and the same whenever it is
computed again."""


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Let session settings be ``wanted`` within the ``with``."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


class TableBatch(NamedTuple):
    """What a batch holds of one table.

    ``rows``: its entries (``rows.CHANGE_DDL``), none of them below ``cleared_at``, the sequence id of
    the batch's last entry that clears the table (0: none does). ``versions``: the table's schemas in feed order, up to
    the batch's end, or what was given for the table without a name; none if that has no types. ``patched``: patches are
    among the rows. ``recopied``: all rows come again behind the newest schema.
    """

    feed: str
    table: TableName
    rows: DataFrame
    versions: Sequence[PlacedSchema]
    cleared_at: int
    patched: bool
    recopied: bool = False


def apply_batch(spark: SparkSession, path: Path, batch: TableBatch) -> None:
    """Bring the table at ``path`` up to the end of the batch, making it if it isn't there. Safe to repeat.

    The caller has set :data:`APP_ID`, :data:`APP_VERSION` and :data:`EXACT_WRITES` in ``spark``. ValueUnfit comes as the
    text of a JVM error.
    """
    exists = newest_version(path) is not None
    if exists and batch.table:  # what an operator gave stays as it is
        follow_schema(spark, path, batch.versions, recopied=batch.recopied)
    typed = _typed(batch, _net(spark, path, batch, exists=exists))
    if exists:
        _merge(spark, path, typed, batch.cleared_at)
    else:
        rows = typed.where(~F.col(GONE)).drop(GONE)
        rows.write.format("delta").options(**properties_of(rows.columns)).mode("append").save(str(path))


def follow_schema(
    spark: SparkSession, path: Path, versions: Sequence[PlacedSchema], *, recopied: bool = False
) -> None:
    """Give the table the columns of its newest schema. It looks at the columns that are there, so it can be repeated.

    ``recopied``: all rows come again behind it, so a column of another type is made anew. ValueUnfit for one without that.
    """
    if not versions:
        return
    actual = {
        field.name: field.dataType.simpleString()
        for field in DeltaTable.forPath(spark, str(path)).toDF().schema.fields
        if field.name not in {KEY, SEQUENCE_ID}
    }
    schemas = [placed.schema for placed in versions]
    change = evolution(actual, spark_columns(schemas[-1]), schemas, recopied=recopied)
    for statement in _statements(path, change, spark_columns(schemas[-1])):
        spark.sql(statement)


def create_empty(spark: SparkSession, path: Path, newest: PlacedSchema) -> None:
    """Make the table of a schema that has no rows yet, if it isn't there."""
    if newest_version(path) is None:
        rows = spark.createDataFrame([], typed_ddl(newest.schema)).drop(GONE)
        rows.write.format("delta").options(**properties_of(rows.columns)).mode("append").save(str(path))


def _net(spark: SparkSession, path: Path, batch: TableBatch, *, exists: bool) -> DataFrame:
    """Return one row a key: the one put or delete that its entries come to."""
    rows = batch.rows
    change = F.struct("sequence_id", "op", "value")
    if not batch.patched:
        last = rows.groupBy("key").agg(F.max_by(change, "sequence_id").alias("last"))
        return last.select("key", "last.*")
    if exists:
        rows = rows.unionByName(_seeds(spark, path, batch))
    changes = rows.groupBy("key").agg(F.sort_array(F.collect_list(change)).alias("changes"))
    fold = partial(folded_batches, versions=tuple(batch.versions), feed=batch.feed, table=batch.table)
    return changes.mapInArrow(fold, CHANGE_DDL)


def _seeds(spark: SparkSession, path: Path, batch: TableBatch) -> DataFrame:
    """Return the table's rows of the keys that are patched, as changes that stand before the batch's."""
    patched = batch.rows.where(F.col("op") == Op.PATCH.value).select(F.col("key").alias(KEY)).distinct()
    current = spark.read.format("delta").load(str(path)).where(F.col(SEQUENCE_ID) > batch.cleared_at)
    if batch.versions:
        kinds = spark_columns(batch.versions[-1].schema).items()
        columns = [F.expr(_seed_sql(quoted(name), kind)).alias(name) for name, kind in kinds]
        value = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).cast("binary")
    else:
        value = F.coalesce(F.col("value").cast("binary"), F.col("value_binary"))
    return current.join(patched, KEY, "left_semi").select(
        F.col(KEY).alias("key"),
        F.col(SEQUENCE_ID).alias("sequence_id"),
        F.lit(SEED).alias("op"),
        value.alias("value"),
    )


def _seed_sql(name: str, kind: str) -> str:
    # As JSON Spark writes years BC like those AD.
    return sql_number(name, kind) if kind in MOMENTS else name


def _typed(batch: TableBatch, net: DataFrame) -> DataFrame:
    if not batch.versions:
        return net.mapInArrow(plain_batches, PLAIN_DDL)
    versions = tuple(batch.versions)
    if batch.patched:
        # Folded rows stand under the newest schema's names, whatever they were made of.
        versions = (PlacedSchema(sequence_id=0, schema=lenient(versions[-1].schema)),)
    into = partial(typed_batches, versions=versions, feed=batch.feed, table=batch.table)
    typed = net.mapInArrow(into, typed_ddl(versions[-1].schema))
    if batch.table or "key" in {name.lower() for name in typed.columns}:
        return typed
    return typed.withColumn("key", F.expr(f"try_validate_utf8(CAST({KEY} AS STRING))"))


def _merge(spark: SparkSession, path: Path, typed: DataFrame, cleared_at: int) -> None:
    columns = {quoted(name): f"s.{quoted(name)}" for name in typed.columns if name != GONE}
    merge = (
        DeltaTable.forPath(spark, str(path))
        .alias("t")
        .merge(typed.alias("s"), f"t.{KEY} = s.{KEY}")
        # The latest is the greatest sequence id, also where a batch runs again on a table that is ahead of it.
        .whenMatchedDelete(f"s.{GONE} AND s.{SEQUENCE_ID} > t.{SEQUENCE_ID}")
        .whenMatchedUpdate(f"s.{SEQUENCE_ID} > t.{SEQUENCE_ID}", set=dict(columns))
        .whenNotMatchedInsert(f"NOT s.{GONE}", values=dict(columns))
    )
    if cleared_at:
        merge = merge.whenNotMatchedBySourceDelete(f"t.{SEQUENCE_ID} < {cleared_at}")
    merge.execute()


def properties_of(columns: Sequence[str]) -> dict[str, str]:
    """Return the properties that a table of these columns is made with."""
    needed = any(MAPPED_CHARACTERS & set(name) for name in columns)
    return PROPERTIES | ({COLUMN_MAPPING: "name"} if needed else {})


def set_properties(path: Path, properties: Mapping[str, str]) -> str:
    """Return the statement that gives the table at ``path`` these properties, beside those that it has; one commit."""
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    return f"ALTER TABLE delta.{quoted(str(path))} SET TBLPROPERTIES ({listed})"


def _statements(path: Path, change: Evolution, kinds: dict[str, str]) -> list[str]:
    if not change:
        return []
    table = f"ALTER TABLE delta.{quoted(str(path))}"
    found = []
    properties = {}
    if change.renames or change.drops or any(MAPPED_CHARACTERS & set(column.name) for column in change.adds):
        # Without it a rename or drop would rewrite every file.
        properties[COLUMN_MAPPING] = "name"
    if any(kinds[column.name] == TIMESTAMP_NTZ for column in change.adds):
        properties |= TIMELESS
    if properties:
        found.append(set_properties(path, properties))
    found += [f"{table} RENAME COLUMN {quoted(old)} TO {quoted(new)}" for old, new in change.renames]
    if change.drops:
        found.append(f"{table} DROP COLUMNS ({', '.join(map(quoted, change.drops))})")
    if change.adds:
        added = ", ".join(f"{quoted(column.name)} {kinds[column.name]}" for column in change.adds)
        found.append(f"{table} ADD COLUMNS ({added})")
    return found
