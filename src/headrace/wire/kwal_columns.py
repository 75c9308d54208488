"""KWAL segments -> Arrow record batches, with array operations over the buffer and no Python per entry.

The columns are those of :mod:`headrace.wire.columns`, so that a feed reads the same from a server and from its archive, and
``incarnation``: an archive may hold several histories of a feed. Called on Spark's workers. Needs numpy and pyarrow.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import JournalCorrupt, SegmentCorrupt
from headrace.wire import columns
from headrace.wire.arrays import arrow_flags
from headrace.wire.columns import walked_batch
from headrace.wire.kwal import (
    FOOTER_SIZE,
    SegmentName,
    check_name,
    decode_head,
    fault,
    stored_crc,
)
from headrace.wire.kwal_blocks import Block, blocks_of
from headrace.wire.kwal_damage import damage
from headrace.wire.kwal_entries import find_entries
from headrace.wire.kwal_feeds import FeedTable
from headrace.wire.kwal_manifest import Manifest
from headrace.wire.walk import Ints

DDL: Final = f"{columns.DDL}, incarnation STRING"
"""The columns as Spark SQL. ``sequence_id`` and ``incarnation`` are null where a segment has no manifest."""
SCHEMA: Final = columns.SCHEMA.append(pa.field("incarnation", pa.string()))
"""The same columns as Arrow."""

LSN_MAX: Final = Lsn.from_int((1 << 128) - 1)


class Wanted(NamedTuple):
    """Which entries of a segment to return: LSNs and, where there is a manifest, sequence ids, all inclusive.

    ``feeds`` and ``incarnation``: None for all.
    """

    first: Lsn = ZERO
    last: Lsn = LSN_MAX
    feeds: Collection[str] | None = None
    incarnation: str | None = None
    first_id: int = 0
    last_id: int = (1 << 63) - 1


EVERYTHING: Final = Wanted()


class Segment:
    """A whole segment in memory, its CRC-32 verified.

    SegmentCorrupt, naming ``where`` and what is damaged at which byte, if it is not what was written, if it is not the one
    that ``name`` says, or not the one that ``manifest`` is of.
    """

    def __init__(
        self,
        data: bytes | memoryview,
        *,
        where: str,
        name: SegmentName | None = None,
        manifest: Manifest | None = None,
    ) -> None:
        self.crc = zlib.crc32(memoryview(data)[:-FOOTER_SIZE])
        if len(data) <= FOOTER_SIZE or self.crc != stored_crc(data):
            raise damage(data, where)
        self.head = decode_head(data, where)
        check_name(self.head, name, where)
        if manifest is not None and (manifest.crc, manifest.entries, manifest.size) != (
            self.crc,
            self.head.entries,
            len(data),
        ):
            raise SegmentCorrupt(
                f"{where} has {self.head.entries} entries, {len(data)} bytes and the CRC {self.crc}; its manifest says "
                f"{manifest.entries}, {manifest.size} and {manifest.crc}"
            )
        self._data = memoryview(data)
        self._where = where
        self._starts, self._ends = find_entries(data, self.head, where)
        self._manifest = manifest

    def __len__(self) -> int:
        """Number of entries."""
        return self.head.entries

    def entries(self) -> Iterator[memoryview]:
        """Yield each entry's bytes: a WalEntry message. Nothing is copied."""
        for start, end in zip(self._starts.tolist(), self._ends.tolist(), strict=True):
            yield self._data[start:end]

    def fields(self) -> tuple[Ints, Ints]:
        """Return where each entry's size begins, and where the entry ends: with a tag before it, an ``entries`` field."""
        return np.append(self.head.size, self._ends[:-1]), self._ends

    def batches(
        self, names: Sequence[str] = tuple(SCHEMA.names), wanted: Wanted = EVERYTHING
    ) -> Iterator[pa.RecordBatch]:
        """Yield the wanted entries as rows in LSN order, with the columns ``names``.

        SegmentCorrupt where LSNs don't grow, and where an entry is none or is in no range of the manifest.
        """
        table = FeedTable(self._manifest.feeds if self._manifest is not None else None)
        for block in self.blocks():
            found = self._selected(block, table, names, wanted)
            if found is not None and found.num_rows:
                yield found

    def blocks(self) -> Iterator[Block]:
        """Yield the entries as blocks, in order; SegmentCorrupt where LSNs don't grow or one is no entry."""
        whole, last = self.head, ZERO
        try:
            for block in blocks_of(self._data, self._starts, self._ends):
                if last == ZERO and block.lsns.at(0) != whole.first:
                    raise JournalCorrupt(
                        f"the first entry has the lsn={block.lsns.at(0)}, the head says {whole.first}"
                    )
                last = block.lsns.at(-1)
                yield block
            if last != whole.last:
                raise JournalCorrupt(f"the last entry has the lsn={last}, the head says {whole.last}")
        except JournalCorrupt as error:
            raise fault(error, self._where) from None

    def _selected(
        self, block: Block, table: FeedTable, names: Sequence[str], wanted: Wanted
    ) -> pa.RecordBatch | None:
        mask = block.lsns.between(wanted.first, wanted.last)
        if not mask.any():
            return None
        try:
            rows = table.rows(block)
            if wanted.feeds is not None:
                mask &= rows.is_of(wanted.feeds)
            if wanted.incarnation is not None:
                mask &= rows.is_of_incarnation(wanted.incarnation)
            if rows.sequence_ids is not None and (wanted.first_id, wanted.last_id) != _ALL_IDS:
                mask &= (rows.sequence_ids >= wanted.first_id) & (rows.sequence_ids <= wanted.last_id)
            if not mask.any():
                return None
            ids = rows.sequence_ids if rows.sequence_ids is not None else block.places.sequence_ids
            places = block.places._replace(sequence_ids=ids, global_ts=block.lsns.global_ts.astype(np.int64))
            own = tuple(name for name in names if name != "incarnation")
            found = walked_batch(block.data, places, block.found, rows.feed(), own, bare=True)
        except JournalCorrupt as error:
            raise fault(error, self._where) from None
        arrays = dict(zip(own, found.columns, strict=True))
        if "incarnation" in names:
            arrays["incarnation"] = rows.incarnation()
        if "sequence_id" in names and rows.sequence_ids is None:
            arrays["sequence_id"] = pa.nulls(found.num_rows, pa.int64())
        schema = pa.schema([SCHEMA.field(name) for name in names])
        batch = pa.RecordBatch.from_arrays([arrays[name] for name in names], schema=schema)
        return batch if mask.all() else batch.filter(arrow_flags(mask))


_ALL_IDS: Final = (EVERYTHING.first_id, EVERYTHING.last_id)
