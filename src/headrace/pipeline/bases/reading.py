"""A base snapshot -> DataFrame. Workers check each file's size and CRC-32 before one of its rows goes out.

Called by restores, and by the job that makes the next base.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from headrace.archive.files.bases import StoredBase
from headrace.archive.files.folder import Folder
from headrace.errors import BaseCorrupt
from headrace.pipeline.addresses import absolute_folder
from headrace.wire.base_manifest import BaseFile
from headrace.wire.kwal_columns import DDL, SCHEMA

_TASK_BYTES: Final = 16 << 20
"""Bytes of files that one task reads, about: compressed, so a quarter of what a task of segments reads."""
_BATCH_ROWS: Final = 8192
"""Rows of a record batch at most; a file's row groups bound its bytes."""


class BaseFileTask(NamedTuple):
    """A file to read, as the manifest has it; ``path`` below the archive's folder."""

    path: str
    size: int
    crc: int
    rows: int


def base_frame(
    spark: SparkSession, url: str, base: StoredBase, identity: str = "", columns: Sequence[str] = ()
) -> DataFrame:
    """Return the base's rows, in no order, with the columns of ``format("headrace.wal")``, or those in ``columns``.

    ``url``: the archive's. ``identity`` opens nothing: a base is not encrypted by us (``docs/formats/base-snapshot.md``).
    Where a file is not as it was written, the query fails with BaseCorrupt, which names it, before a row of it goes out.
    """
    return files_frame(spark, url, base, base.manifest.files, columns)


def files_frame(
    spark: SparkSession, url: str, base: StoredBase, files: Sequence[BaseFile], columns: Sequence[str] = ()
) -> DataFrame:
    """Return the rows of some of a base's files, as :func:`base_frame` does."""
    names = list(columns) or list(SCHEMA.names)
    kinds = dict(zip(SCHEMA.names, DDL.split(", "), strict=True))
    ddl = ", ".join(kinds[name] for name in names)
    if not files:
        return spark.createDataFrame([], ddl)
    tasks = [BaseFileTask(f"{base.path}/{one.path}", one.size, one.crc, one.rows) for one in files]
    count = min(len(tasks), 1 + sum(one.size for one in files) // _TASK_BYTES)
    groups = [tasks[number::count] for number in range(count)]
    read = partial(read_files, url=absolute_folder(url), groups=groups, names=tuple(names))
    return spark.range(0, count, 1, count).mapInArrow(read, ddl)


def read_files(
    batches: Iterator[Any], url: str, groups: Sequence[Sequence[BaseFileTask]], names: Sequence[str]
) -> Iterator[Any]:
    """Read the groups of files whose numbers ``batches`` have; yields their rows. BaseCorrupt; ArchiveUnavailable."""
    folder = Folder(url)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for task in groups[number]:
                yield from read_file(folder, task, names)


def read_file(
    folder: Folder, task: BaseFileTask, names: Sequence[str] = tuple(SCHEMA.names)
) -> Iterator[Any]:
    """Yield the rows of one file as record batches, once all of it is checked. BaseCorrupt; ArchiveUnavailable."""
    where = folder.where(task.path)
    data = folder.read_segment(task.path)
    if len(data) != task.size:
        raise BaseCorrupt(f"{where} has {len(data)} bytes; its base's manifest says {task.size}")
    if (crc := zlib.crc32(data)) != task.crc:
        raise BaseCorrupt(f"{where} is not as it was written: its CRC-32 is {crc:08x}, not {task.crc:08x}")
    try:
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)))
        if not file.schema_arrow.equals(SCHEMA, check_metadata=False) or file.metadata.num_rows != task.rows:
            raise BaseCorrupt(
                f"{where} has other columns, or another number of rows, than its base's manifest says"
            )
        for batch in file.iter_batches(_BATCH_ROWS, columns=list(names)):
            yield batch.select(list(names)).cast(pa.schema([SCHEMA.field(name) for name in names]))
    except pa.ArrowException as error:
        raise BaseCorrupt(f"{where} can't be read: {error}") from None
