"""Rows of a base -> Parquet files of at most so many bytes, put into the archive one by one, by workers and by the driver.

Each file is put under a name that nobody else uses, durably, and read back: what the manifest says of it is what is there.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.archive.files.folder import Folder
from headrace.archive.files.writing import put_new
from headrace.errors import ArchiveUnavailable
from headrace.pipeline.bases.folding import kept_batches
from headrace.pipeline.bases.generations import FeedGenerations
from headrace.wire.arrays import array_of
from headrace.wire.kwal_columns import SCHEMA

CONTROL_FOLDER: Final = "control/"
"""Where control entries stand, apart from rows: who makes the next base reads them first."""
FILE_BYTES: Final = 64 << 20
"""A file ends with the row group that brings it above this size."""
GROUP_BYTES: Final = 16 << 20
"""Bytes of rows, as they are in memory, that are compressed together."""

WRITTEN_DDL: Final = (
    "path STRING, size BIGINT, crc BIGINT, `rows` BIGINT, bucket INT, feed STRING, incarnation STRING, "
    "entries BIGINT"
)
"""A file, once for each history of a feed that it has entries of."""
WRITTEN_SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("crc", pa.int64()),
        ("rows", pa.int64()),
        ("bucket", pa.int32()),
        ("feed", pa.string()),
        ("incarnation", pa.string()),
        ("entries", pa.int64()),
    ]
)


class Place(NamedTuple):
    """Where files go: the archive, the base's folder below it, and what tells this attempt's files from others'."""

    url: str
    path: str
    attempt: str
    file_bytes: int = FILE_BYTES


class Written(NamedTuple):
    """A file as it stands there, and how many entries it has of each (feed, incarnation)."""

    path: str
    size: int
    crc: int
    rows: int
    bucket: int
    entries: Mapping[tuple[str, str], int]


def written_buckets(
    batches: Iterator[Any], place: Place, feeds: Mapping[str, FeedGenerations]
) -> Iterator[Any]:
    """Fold the sorted rows of one bucket (see :mod:`~headrace.pipeline.bases.folding`) and write what is kept of them.

    Yields what was written (:data:`WRITTEN_SCHEMA`). Called by Spark, a partition being a bucket.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    bucket = context.partitionId() if context is not None else 0
    for one in write_files(kept_batches(batches, feeds), place, f"bucket={bucket}/", bucket):
        yield _told(one)


def write_files(batches: Iterator[Any], place: Place, below: str, bucket: int) -> Iterator[Written]:
    """Write rows with the columns of an archive into as many files as they fill, and yield each as it is there."""
    folder = Folder(place.url)
    open_file: _File | None = None
    waiting: list[Any] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        size += batch.nbytes
        if size < GROUP_BYTES:
            continue
        open_file = open_file or _File()
        open_file.add(waiting)
        waiting, size = [], 0
        if open_file.size >= place.file_bytes:
            yield open_file.put(folder, place, below, bucket)
            open_file = None
    if waiting:
        open_file = open_file or _File()
        open_file.add(waiting)
    if open_file is not None:
        yield open_file.put(folder, place, below, bucket)


class _File:
    """A Parquet file while it is written, in memory."""

    def __init__(self) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(
            self._sink, SCHEMA, compression="zstd", write_statistics=["feed", "sequence_id"]
        )
        self._entries: Counter[tuple[str, str]] = Counter()
        self._rows = 0

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._sink.tell())

    def add(self, batches: list[Any]) -> None:
        """Write one row group."""
        table = pa.Table.from_batches(batches, schema=SCHEMA)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._rows += table.num_rows
        counts = (
            table.select(["feed", "incarnation"])
            .group_by(["feed", "incarnation"])
            .aggregate([([], "count_all")])
        )
        for one in counts.to_pylist():
            self._entries[one["feed"], one["incarnation"]] += one["count_all"]

    def put(self, folder: Folder, place: Place, below: str, bucket: int) -> Written:
        """Put the file there, and return it as it is read back."""
        self._writer.close()
        data: Any = memoryview(self._sink.getvalue())
        path = f"{below}part-{place.attempt}-{uuid4().hex}.parquet"
        file = f"{place.path}/{path}"
        put_new(folder, file, [data])
        crc = zlib.crc32(data)
        found = folder.read_segment(file)
        if len(found) != len(data) or zlib.crc32(found) != crc:
            raise ArchiveUnavailable(f"{folder.where(file)} reads back as other bytes than were written")
        return Written(path, len(data), crc, self._rows, bucket, dict(self._entries))


def _told(one: Written) -> Any:
    histories = list(one.entries)
    count = len(histories)
    columns: dict[str, list[Any]] = {
        "path": [one.path] * count,
        "size": [one.size] * count,
        "crc": [one.crc] * count,
        "rows": [one.rows] * count,
        "bucket": [one.bucket] * count,
        "feed": [feed for feed, _ in histories],
        "incarnation": [incarnation for _, incarnation in histories],
        "entries": list(one.entries.values()),
    }
    return pa.RecordBatch.from_arrays(
        [array_of(columns[field.name], field.type) for field in WRITTEN_SCHEMA], schema=WRITTEN_SCHEMA
    )


def written_of(rows: list[Any]) -> list[Written]:
    """Return the files that rows of :data:`WRITTEN_DDL` tell of, by path."""
    found: dict[str, Written] = {}
    for row in rows:
        one = found.setdefault(
            row["path"], Written(row["path"], row["size"], row["crc"], row["rows"], row["bucket"], {})
        )
        found[row["path"]] = one._replace(
            entries={**one.entries, (row["feed"], row["incarnation"]): row["entries"]}
        )
    return [found[path] for path in sorted(found)]


def is_control(path: str) -> bool:
    """Tell whether a base's file holds control entries."""
    return path.startswith(CONTROL_FOLDER)
