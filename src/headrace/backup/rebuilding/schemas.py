"""The schemas of tables that a base snapshot carries: they outlive their frames on a server, so a rebuilt one keeps them."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.archive.files.bases import StoredBase
from headrace.archive.files.folder import Folder
from headrace.entries.entry import Change
from headrace.errors import BaseCorrupt
from headrace.log.metadata.rows import SchemaRow
from headrace.log.schemas.entries import KEY_PREFIX, name_of
from headrace.wire.base_manifest import BaseFile

_COLUMNS: Final = ("feed", "incarnation", "sequence_id", "lsn", "op", "key", "value", "table")
_PUT: Final = "put"


def base_schemas(base: StoredBase, url: str, histories: Collection[tuple[str, str]]) -> Iterator[SchemaRow]:
    """Yield the schemas in the files of ``base``, whose folder is at ``url``, of these (feed, incarnation).

    One file is in memory at a time. BaseCorrupt, naming the file, if one is not what was written; ArchiveUnavailable.
    """
    folder = Folder(url)
    for file in base.manifest.files:
        for row in _schema_rows(folder, file):
            if (row["feed"], row["incarnation"]) not in histories:
                continue
            change = Change(row["value"] or b"", key=row["key"], table=tuple(row["table"] or ()))
            name = name_of(change)
            if name is not None:
                yield SchemaRow(row["feed"], *name, row["sequence_id"], row["lsn"], change.value)


def _schema_rows(folder: Folder, file: BaseFile) -> list[dict[str, Any]]:
    """Return the file's rows whose key begins as a schema's does, once its checksum fitted."""
    where = folder.where(file.path)
    data = folder.read(file.path)
    if (len(data), zlib.crc32(data)) != (file.size, file.crc):
        raise BaseCorrupt(f"{where} is not what the base's manifest says: its size or its CRC-32 differs")
    try:
        rows = pq.read_table(pa.BufferReader(data), columns=list(_COLUMNS))
        is_schema = pc.and_(pc.starts_with(rows["key"], pattern=KEY_PREFIX), pc.equal(rows["op"], _PUT))
        found: list[dict[str, Any]] = rows.filter(is_schema).to_pylist()
    except (pa.ArrowException, KeyError) as error:
        raise BaseCorrupt(f"{where} can't be read: {error}") from None
    return found
