"""Which transactions a segment's entries leave without an end. Called by :func:`headrace.wire.kwal_feeds.survey`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.wire.arrays import arrow_flags, arrow_ints
from headrace.wire.columns import byte_slices, walked_batch
from headrace.wire.kwal_blocks import Block
from headrace.wire.walk import Flags, Ints

_NAMES: Final = ("source_tx", "tx_last", "append_end")


class TxMarks:
    """What a block's entries say of transactions and of ends of appends."""

    def __init__(self, block: Block) -> None:
        if block.found.odd.any():
            read = walked_batch(block.data, block.places, block.found, "", _NAMES, bare=True)
            self._txs: Any = read.column(0)
            self._has_tx: Flags = np.asarray(read.column(0).is_valid().to_pylist(), np.bool_)
            self._tx_last: Flags = np.asarray(read.column(1).to_pylist(), np.bool_)
            self._append_end: Flags = np.asarray(read.column(2).to_pylist(), np.bool_)
            return
        starts, sizes = block.found.slices["source_tx"]
        self._has_tx = sizes > 0
        self._txs = byte_slices(pa.py_buffer(block.data), starts, sizes, pa.binary(), self._has_tx)
        self._tx_last = block.found.numbers["tx_last"] != 0
        self._append_end = block.found.numbers["append_end"] != 0

    def ends_append(self, row: int) -> bool:
        """Tell whether an entry is the last one of its append."""
        return bool(self._append_end[row])

    def mark(
        self, unended: set[bytes], rows: Ints, continued: set[bytes], waiting: Collection[bytes] = ()
    ) -> None:
        """Put the transactions into ``unended`` that the last one of these rows leaves without an end; take others out.

        Those of ``waiting`` that the rows name go into ``continued``.
        """
        rows = rows[self._has_tx[rows]]
        if not len(rows):
            return
        coded = self._txs.take(arrow_ints(rows)).dictionary_encode()
        names = coded.dictionary
        codes = np.frombuffer(coded.indices.buffers()[1], np.int32, len(rows))
        last = np.zeros(len(names), np.int64)
        np.maximum.at(last, codes, np.arange(len(rows)))
        ended = self._tx_last[rows[last]]
        if waiting:
            continued.update(name for name in names.to_pylist() if name in waiting)
        if unended:
            unended.difference_update(names.filter(arrow_flags(ended)).to_pylist())
        if not ended.all():
            unended.update(names.filter(arrow_flags(~ended)).to_pylist())
