"""``spark.read.format("headrace.tables")``: a published table, exactly at the version that its folder's moment names.

Options::

    path      the tables' folder, as ``headrace pipeline tables --to`` has it; required
    table     DATABASE.TABLE, or the parts of its name as a JSON array; left out: the table of entries that name none
    stopped   refuse (default), or accept: a stopped table is read as it was when it stopped

The moment is chosen when the frame is loaded; a publish meanwhile changes nothing. :func:`read_table` reads the same through
Delta's own reader, which skips files by their statistics: prefer it where you have the session in hand.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from msgspec import UNSET
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.errors import InvalidRequest, NothingPublished, StaleTable, TableNotPublished
from headrace.pipeline.tables.ledger import PublishedFile, PublishedTable, local_folder, read_published
from headrace.pipeline.tables.moments import MOMENTS, python_value
from headrace.pipeline.tables.schemas import OWN_PREFIX, TableName, table_name
from headrace.pipeline.tables.simple.dates import text_of as irregular_text
from headrace.pipeline.tables.snapshot_files import DataFile, Field, Snapshot, rows_of, snapshot_at

FORMAT: Final = "headrace.tables"
_OLD_REFUSED: Final = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
PARTITION_BYTES: Final = 64 << 20
"""Files are put together into partitions of about this size: a Python task costs more than a small file."""

_OPTIONS: Final = {"path", "table", "stopped"}


def published_moment(to: str) -> PublishedFile:
    """Return what is published in the tables' folder ``to`` now; NothingPublished, ConfigInvalid, FormatTooNew."""
    folder = local_folder(to)
    found = read_published(folder)
    if found is None:
        raise NothingPublished(f"{folder} has no published tables")
    return found


def published_table(moment: PublishedFile, table: TableName, *, stopped: bool = False) -> PublishedTable:
    """Return where a table of a moment is; TableNotPublished, or StaleTable unless ``stopped`` accepts that."""
    for one in moment.tables:
        if tuple(one.table) == table:
            if one.stopped_after is not UNSET and not stopped:
                name = ".".join(table)
                raise StaleTable(
                    f"table {name} is stopped after sequence id {one.stopped_after}; the moment is {moment.sequence_id}"
                )
            return one
    there = ", ".join(".".join(one.table) or "(entries without a table)" for one in moment.tables[:50])
    wanted = ".".join(table) or "of entries without a table"
    raise TableNotPublished(f"no table {wanted} is published; there are: {there or 'none'}")


def read_table(spark: SparkSession, to: str, table: TableName, *, stopped: bool = False) -> DataFrame:
    """Return a published table with the source's columns alone, read by Delta; errors as :func:`published_table`."""
    moment = published_moment(to)
    return delta_frame(spark, to, published_table(moment, table, stopped=stopped))


def delta_frame(spark: SparkSession, to: str, table: PublishedTable) -> DataFrame:
    """Return one version of a table, with the source's columns alone."""
    frame = version_frame(spark, local_folder(to) / table.path, table.version)
    return frame.drop(*[name for name in frame.columns if name.startswith(OWN_PREFIX)])


def version_frame(spark: SparkSession, path: Path, version: int) -> DataFrame:
    """Return one version of a Delta table, with all its columns."""
    before = spark.conf.get(_OLD_REFUSED, None)
    spark.conf.set(_OLD_REFUSED, "false")  # what is published has all its files, however long it stands
    try:
        return spark.read.format("delta").option("versionAsOf", version).load(str(path))
    finally:
        if before is None:
            spark.conf.unset(_OLD_REFUSED)
        else:
            spark.conf.set(_OLD_REFUSED, before)


def iter_rows(to: str) -> Iterator[tuple[TableName, dict[str, Any]]]:
    """Yield every published row with its table's name, one table at a time, read from the files without Spark.

    Stopped tables, which show an older moment, are left out. Dates are ``date``, timestamps ``datetime`` in UTC, those
    without a zone naive. One that Python has none of is the text it has in a feed: ``infinity``,
    ``294246-12-31T23:59:59+00:00``, ``0044-03-15 BC``, ``0000-00-00``, ``2020-00-10 12:00:00`` (docs/formats/tables.md).
    NothingPublished, and VersionGone where a file is not there.
    """
    for one in published_moment(to).tables:
        if one.stopped_after is UNSET:
            for row in rows_at(local_folder(to) / one.path, one.version):
                yield tuple(one.table), row


def rows_at(path: Path, version: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of one version of the table in ``path``, its source's columns alone; values as in :func:`iter_rows`."""
    snapshot = snapshot_at(path, version)
    fields = _source_fields(snapshot)
    moments = {field.name: field.type for field in fields if field.type in MOMENTS}
    for batch in rows_of(snapshot.files, fields, to_arrow_schema(_struct_of(fields), timezone="UTC")):
        columns = [
            _as_numbers(column) if name in moments else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        for row in pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist():
            for name, kind in moments.items():
                number = row[name]
                if number is not None:
                    row[name] = irregular_text(number, kind) or python_value(number, kind)
            yield row


def _as_numbers(column: Any) -> Any:
    """Return a column of dates or timestamps as days or microseconds, which Python has for all of them."""
    return column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())


def _source_fields(snapshot: Snapshot) -> list[Field]:
    return [field for field in snapshot.fields if not field.name.startswith(OWN_PREFIX)]


def _struct_of(fields: Sequence[Field]) -> StructType:
    members = [{"name": one.name, "type": one.type, "nullable": True, "metadata": {}} for one in fields]
    return StructType.fromJson({"type": "struct", "fields": members})


class FilesPartition(InputPartition):
    """One task's files."""

    def __init__(self, files: list[DataFile]) -> None:
        super().__init__(files)
        self.files = files


class HeadraceTables(DataSource):
    """The data source ``headrace.tables``; batch reads only."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        given = {name.lower(): value for name, value in options.items()}
        unknown = sorted(set(given) - _OPTIONS)
        if unknown:
            raise InvalidRequest(
                f"{FORMAT} has no option {unknown[0]!r}",
                hint=f"The options are: {', '.join(sorted(_OPTIONS))}.",
            )
        path, stopped = given.get("path", ""), given.get("stopped", "refuse")
        if not path:
            raise InvalidRequest(
                f"{FORMAT} needs the option path", hint="Add .option('path', DIR) or load(DIR)."
            )
        if stopped not in {"refuse", "accept"}:
            raise InvalidRequest(f"{FORMAT}: stopped is refuse or accept, not {stopped[:80]!r}")
        # Spark sends this very object on to where the read is planned, so schema and files are of one moment.
        moment = published_moment(path)
        one = published_table(moment, table_name(given.get("table", "")), stopped=stopped == "accept")
        self._snapshot = snapshot_at(local_folder(path) / one.path, one.version)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return _struct_of(_source_fields(self._snapshot))

    def reader(self, schema: StructType) -> DataSourceReader:
        return TablesReader(self._snapshot, schema)


class TablesReader(DataSourceReader):
    """Reads the files of one snapshot; with ``.schema(...)`` only the columns that it names."""

    def __init__(self, snapshot: Snapshot, schema: StructType) -> None:
        known = {field.name: field for field in snapshot.fields}
        unknown = [name for name in schema.fieldNames() if name not in known]
        if unknown:
            raise InvalidRequest(f"the table has no column {unknown[0]!r}")
        self._fields: list[Field] = [known[name] for name in schema.fieldNames()]
        self._files = snapshot.files
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        groups: list[list[DataFile]] = []
        size = PARTITION_BYTES
        for file in self._files:
            if size >= PARTITION_BYTES:
                groups.append([])
                size = 0
            groups[-1].append(file)
            size += file.size
        return [FilesPartition(group) for group in groups] or [FilesPartition([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the partition's rows as record batches."""
        if not isinstance(partition, FilesPartition):
            raise TypeError(f"{partition!r} is no partition of {FORMAT}")
        return rows_of(partition.files, self._fields, to_arrow_schema(self._schema, timezone="UTC"))
