"""One file of a base snapshot, looked at byte for byte and row for row. Runs in worker processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.archive.files.bases import check_bytes
from headrace.archive.files.folder import Folder
from headrace.backup.verifying.findings import finding
from headrace.backup.verifying.segment_check import Checked, KnownRow
from headrace.entries.entry import Op
from headrace.entries.lsn import Lsn
from headrace.errors import BaseCorrupt, HeadraceError
from headrace.wire.arrays import array_of, numpy_flags, scalar_of
from headrace.wire.base_manifest import BaseFile

_COLUMNS: Final = ("feed", "incarnation", "sequence_id", "lsn", "op", "control", "copy", "key", "value")
_BATCH_ROWS: Final = 65_536
SOME_ROWS: Final = 256
"""So many rows of each :data:`_BATCH_ROWS` are compared with the entries that they are of."""

Reached = Mapping[tuple[str, str], int]
"""The last sequence id that a base has of each (feed, incarnation)."""


class BaseTask(NamedTuple):
    """A file to look at: ``path`` is the base's folder, ``lsn`` its LSN. ``fast``: its rows are not looked at.

    ``since``: LSN from which there are segments; empty for none.
    """

    path: str
    lsn: str
    told: BaseFile
    reached: Reached
    fast: bool = False
    since: str = ""

    @property
    def file(self) -> str:
        """The file below the archive's folder."""
        return f"{self.path}/{self.told.path}"

    @property
    def size(self) -> int:
        """Bytes of it, by the manifest."""
        return self.told.size


def check_base_file(folder: Folder, task: BaseTask) -> Checked:
    """Look at one file; what is wrong is in the answer. It is read in parts."""
    try:
        with folder.reaching(task.file), folder.store.open(folder.path(task.file), "rb") as opened:
            check_bytes(opened, folder.where(task.file), task.told)
            rows, some = ({}, []) if task.fast else _check_rows(opened, folder.where(task.file), task)
    except HeadraceError as error:
        return Checked(task.file, task.size, 0, [finding(error, task.file)])
    return Checked(task.file, task.size, 0, [], rows=rows, some=tuple(some))


def _check_rows(opened: Any, where: str, task: BaseTask) -> tuple[dict[tuple[str, str], int], list[KnownRow]]:
    """Return how many rows there are of each (feed, incarnation), and some of them; BaseCorrupt for one that the base
    can't have.
    """
    opened.seek(0)
    found: dict[tuple[str, str], int] = {}
    some: list[KnownRow] = []
    try:
        file = pq.ParquetFile(opened)
        if file.metadata.num_rows != task.told.rows:
            raise BaseCorrupt(f"{where} has {file.metadata.num_rows} rows, by its manifest {task.told.rows}")
        for batch in file.iter_batches(_BATCH_ROWS, columns=list(_COLUMNS)):
            some += _some(batch, task)
            for (feed, incarnation), (rows, last_id, last_lsn) in _summed(batch).items():
                history = feed or "", incarnation or ""
                found[history] = found.get(history, 0) + rows
                if history not in task.reached:
                    raise BaseCorrupt(
                        f"{where} has entries of {feed} ({incarnation}), which the manifest does not name"
                    )
                if last_id > task.reached[history] or last_lsn > task.lsn:
                    raise BaseCorrupt(
                        f"{where} has the entry {last_id} of {feed} at lsn={last_lsn}: beyond the entry "
                        f"{task.reached[history]} and lsn={task.lsn}, up to which the base goes"
                    )
    except (pa.ArrowException, KeyError) as error:
        raise BaseCorrupt(f"{where} can't be read as Parquet: {error}") from None
    return found, some


def _some(batch: pa.RecordBatch, task: BaseTask) -> Iterator[KnownRow]:
    """Yield rows, evenly spread, that are entries of the log as they were, and that a segment may still have.

    Copied rows may be a publisher's, which gave them the LSN at which its copy was taken.
    """
    if not task.since:
        return
    plain = pc.and_(pc.is_null(batch.column("control")), pc.invert(batch.column("copy")))
    plain = pc.and_(
        plain, pc.is_in(batch.column("op"), array_of([Op.PUT.value, Op.DELETE.value], pa.string()))
    )
    plain = pc.and_(plain, pc.greater_equal(batch.column("lsn"), scalar_of(task.since)))
    rows = np.flatnonzero(numpy_flags(plain))
    for row in (
        rows[np.unique(np.linspace(0, len(rows) - 1, SOME_ROWS).astype(np.int64))] if len(rows) else ()
    ):
        lsn, op, key, value = (batch.column(name)[row].as_py() for name in ("lsn", "op", "key", "value"))
        crc = google_crc32c.value((key or b"") + (value or b""))
        yield KnownRow(Lsn.parse(lsn), op, crc, task.file)


def _summed(batch: pa.RecordBatch) -> dict[tuple[str | None, str | None], tuple[int, int, str]]:
    """Return (rows, greatest sequence id, greatest LSN) by (feed, incarnation). LSNs sort as text."""
    grouped = pa.Table.from_batches([batch]).group_by(["feed", "incarnation"])
    summed = grouped.aggregate([([], "count_all"), ("sequence_id", "max"), ("lsn", "max")])
    return {
        (row["feed"], row["incarnation"]): (row["count_all"], row["sequence_id_max"], row["lsn_max"])
        for row in summed.to_pylist()
    }
