"""The source's tables at one moment of its binlog, as the server's own texts, into files that Spark reads. MariaDB alone.

One transaction WITH CONSISTENT SNAPSHOT sees all tables; the server says at which end of a transaction in its binlog that
was taken. Rows come one by one and go to Parquet in bounded pieces: no table is held in memory, nothing is locked for longer
than its own rows are read. A statement that changes a table meanwhile is noticed (:class:`Shifted`, and the caller looks for
it in the feed).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
from pymysql.constants import ER

from headrace.capture.binlog.event import GtidPosition, Place
from headrace.capture.catalogue_schema import from_catalogue
from headrace.capture.catalogue_table import CatalogueTable, TableKind
from headrace.capture.ddl import TableName
from headrace.capture.mariadb.catalogue import list_tables, read_table
from headrace.capture.mariadb.chunks import CONSISTENT_ENGINE, RowStream
from headrace.capture.mariadb.connection import Source, connect, execute, fetch, source_errors, transaction
from headrace.capture.mariadb.key_parts import quoted
from headrace.capture.mariadb.server import current_gtid, current_place, gtid_of
from headrace.capture.selection import Selection
from headrace.errors import BinlogInvalid, TableStopped
from headrace.pipeline.audit.texts import TextKind, server_text, text_kind
from headrace.runtime.dsn import Dsn
from headrace.wire.arrays import array_of

ROWS_MAX: Final = 10_000
BYTES_MAX: Final = 16 << 20
"""Of rows that are held before they are written."""

_SNAPSHOT: Final = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
_WITH_ROWS: Final = (TableKind.TABLE, TableKind.VERSIONED)


class Shifted(Exception):
    """A table has another shape than at the snapshot's moment: the snapshot can't show it."""


class SourceTable(NamedTuple):
    """One captured table. ``columns``: how each is compared, in order; ``file``: their texts, as ``c0``, ``c1``, ….

    ``key``: the columns that tell its rows apart. ``reason``: why it can't be compared, ``""`` if it was read.
    """

    name: tuple[str, str]
    columns: dict[str, TextKind]
    key: tuple[str, ...]
    file: Path
    rows: int
    reason: str = ""


class SourceRead(NamedTuple):
    """All captured tables at one moment, ``place`` and ``gtids``. ``ended``: where the binlog ended after the last row."""

    place: Place
    gtids: GtidPosition
    ended: GtidPosition
    tables: list[SourceTable]


def read_source(dsn: Dsn, selection: Selection, folder: Path) -> SourceRead:
    """Read what the selection captures into ``folder``.

    Raises Shifted; SourceUnavailable, SourceForbidden, SourceUnfit (it writes no binlog), DsnInvalid.
    """
    with closing(connect(dsn)) as asking, closing(connect(dsn)) as reading:
        execute(reading, "SET SESSION max_statement_time = 0")
        with source_errors(), _shifts(), transaction(reading, _SNAPSHOT):
            place = current_place(reading)
            gtids = gtid_of(asking, place)
            if gtids is None:
                raise BinlogInvalid(
                    f"the server does not know which transaction ends at {place.offset} of {place.file}"
                )
            names = [
                one.name
                for one in list_tables(reading)
                if one.kind in _WITH_ROWS and selection.captures(*one.name)
            ]
            tables = [
                _read(reading, name, selection, folder / f"source-{number}.parquet")
                for number, name in enumerate(names)
            ]
        return SourceRead(place, gtids, current_gtid(asking), tables)


def _read(reading: Source, name: TableName, selection: Selection, file: Path) -> SourceTable:
    """Read one table; its shape can't change from the first look at it to its last row."""
    quoted_name = f"{quoted(name.database)}.{quoted(name.table)}"
    execute(reading, "SAVEPOINT untouched")
    fetch(reading, f"SELECT 1 FROM {quoted_name} LIMIT 0")  # noqa: S608 - all of it quoted
    table = read_table(reading, name)
    if table is None:
        raise Shifted(f"{'.'.join(name)} is gone")
    chosen = _chosen(table, selection)
    if isinstance(chosen, str):
        found = SourceTable(name, {}, (), file, 0, chosen)
    else:
        columns, key, select = chosen
        rows = _spool(reading, f"SELECT {select} FROM {quoted_name}", len(columns), file)  # noqa: S608 - all of it quoted
        found = SourceTable(name, columns, key, file, rows)
    execute(reading, "ROLLBACK TO SAVEPOINT untouched")  # the table may change its shape again
    return found


def _chosen(
    table: CatalogueTable, selection: Selection
) -> tuple[dict[str, TextKind], tuple[str, ...], str] | str:
    """Return how columns are compared, the key, and the SELECT list; or why the table can't be read."""
    if table.engine != CONSISTENT_ENGINE:
        return f"it is kept by the storage engine {table.engine}, which has no snapshots"
    schema = from_catalogue(table, 0, 0)
    try:
        choice = selection.of(schema)
    except TableStopped as error:
        return error.detail
    masks = dict(zip(choice.delivered, choice.masks, strict=True))
    columns: dict[str, TextKind] = {}
    select: list[str] = []
    for at, column in enumerate(table.columns):
        kind = text_kind(column)
        if kind is None:
            continue
        columns[column.name] = kind
        text = server_text(column)
        mask = masks.get(at)
        if at not in masks:
            text = "NULL"  # it does not go out
        elif mask is not None:
            text = f"IF({quoted(column.name)} IS NULL, NULL, '{mask}')"
        select.append(text)
    return columns, schema.handle_key, ", ".join(select) or "1"


def _spool(reading: Source, query: str, width: int, file: Path) -> int:
    """Write the rows of a query as texts; returns how many there were."""
    schema = pa.schema([(f"c{at}", pa.string()) for at in range(width)])
    count = 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for rows in _pieces(reading, query):
            columns = list(zip(*rows, strict=True))
            arrays = [array_of(columns[at], pa.binary()).cast(pa.string()) for at in range(width)]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
            count += len(rows)
    return count


def _pieces(reading: Source, query: str) -> Iterator[Sequence[Sequence[bytes | None]]]:
    """Yield rows as the server sends them, in bounded lists."""
    decoders, reading.decoders = reading.decoders, {}
    reading.use_unicode = False
    try:
        with closing(reading.cursor(RowStream)) as cursor:
            try:
                cursor.execute(query)
                rows: list[Sequence[Any]] = []
                size = 0
                for row in cursor.fetchall_unbuffered():
                    rows.append(row)
                    size += sum(map(len, filter(None, row)))
                    if len(rows) >= ROWS_MAX or size >= BYTES_MAX:
                        yield rows
                        rows, size = [], 0
                if rows:
                    yield rows
            except BaseException:
                cursor.abandon()  # it would read the rest of the table away first
                raise
    finally:
        reading.decoders, reading.use_unicode = decoders, True


@contextmanager
def _shifts() -> Iterator[None]:
    """Turn what the server says of a table that was changed since the snapshot into :class:`Shifted`."""
    try:
        yield
    except pymysql.err.MySQLError as error:
        if error.args and error.args[0] in {ER.TABLE_DEF_CHANGED, ER.NO_SUCH_TABLE}:
            raise Shifted(str(error.args[1])) from None
        raise
