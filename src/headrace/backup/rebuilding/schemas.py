"""The schemas of tables below a rebuilt journal: they outlive their frames on a server, so a rebuilt one keeps them.

A base snapshot carries them, and so do segments that stand before a gap.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.archive.files.bases import StoredBase
from headrace.archive.files.folder import Folder
from headrace.entries.entry import Change
from headrace.entries.lsn import Lsn
from headrace.errors import BaseCorrupt
from headrace.log.metadata.rows import SchemaRow
from headrace.log.schemas.entries import KEY_PREFIX, name_of
from headrace.wire.arrays import scalar_of
from headrace.wire.base_manifest import BaseFile
from headrace.wire.kwal_columns import Segment, Wanted

_COLUMNS: Final = ("feed", "incarnation", "sequence_id", "lsn", "op", "key", "value", "table")
_PUT: Final = "put"


def base_schemas(base: StoredBase, url: str, histories: Collection[tuple[str, str]]) -> Iterator[SchemaRow]:
    """Yield the schemas in the files of ``base``, whose folder is at ``url``, of these (feed, incarnation).

    One file is in memory at a time. BaseCorrupt, naming the file, if one is not what was written; ArchiveUnavailable.
    """
    folder = Folder(url)
    for file in base.manifest.files:
        yield from _schemas_of(_rows_of(folder, file), histories)


def segment_schemas(
    segment: Segment, first: Lsn, histories: Collection[tuple[str, str]]
) -> Iterator[SchemaRow]:
    """Yield the schemas in ``segment`` from ``first`` on, of these (feed, incarnation), in LSN order. SegmentCorrupt."""
    for batch in segment.batches(_COLUMNS, Wanted(first=first)):
        yield from _schemas_of(pa.Table.from_batches([batch]), histories)


def _schemas_of(rows: pa.Table, histories: Collection[tuple[str, str]]) -> Iterator[SchemaRow]:
    is_schema = pc.and_(
        pc.starts_with(rows["key"], pattern=KEY_PREFIX), pc.equal(rows["op"], scalar_of(_PUT))
    )
    for row in rows.filter(is_schema).to_pylist():
        if (row["feed"], row["incarnation"]) not in histories:
            continue
        change = Change(row["value"] or b"", key=row["key"], table=tuple(row["table"] or ()))
        name = name_of(change)
        if name is not None:
            yield SchemaRow(row["feed"], *name, row["sequence_id"], row["lsn"], change.value)


def _rows_of(folder: Folder, file: BaseFile) -> pa.Table:
    """Return the file's rows, once its checksum fitted."""
    where = folder.where(file.path)
    data = folder.read(file.path)
    if (len(data), zlib.crc32(data)) != (file.size, file.crc):
        raise BaseCorrupt(f"{where} is not what the base's manifest says: its size or its CRC-32 differs")
    try:
        return pq.read_table(pa.BufferReader(data), columns=list(_COLUMNS)).select(_COLUMNS)
    except (pa.ArrowException, KeyError) as error:
        raise BaseCorrupt(f"{where} can't be read: {error}") from None
