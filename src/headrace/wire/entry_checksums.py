"""Entries against their own checksums, CRC-32C of key + value, for all entries of a buffer at once.

Called after a walk over them (:mod:`headrace.wire.walk`), by what checks received batches and by what checks segments. Needs
numpy and pyarrow.
"""

from __future__ import annotations

from typing import Final

import google_crc32c
import numpy as np
import pyarrow as pa

from headrace.entries.lsn import ZERO
from headrace.wire import varint
from headrace.wire.batch_check import check_slices
from headrace.wire.columns import byte_slices
from headrace.wire.kwal_blocks import Block
from headrace.wire.walk import Flags, Found, Ints

_AT_ONCE: Final = 2048
"""Entries whose keys and values are copied out at once, so that the copies stay in the processor's cache."""


def fitting(data: bytes | memoryview, found: Found) -> Flags:
    """Tell which entries fit their checksums, as far as arrays can tell: false for odd ones too. ``data``: the buffer."""
    (key, key_size), (value, value_size) = found.slices["key"], found.slices["value"]
    stored, stored_size = found.slices["checksum"]
    buffer = np.frombuffer(data, np.uint8)
    value = np.where(value_size == 0, key + key_size, value)
    key = np.where(key_size == 0, value, key)
    told = (stored_size == 4) & (key + key_size <= value) & ~found.odd
    fits = np.zeros(len(told), np.bool_)
    for at in range(0, len(told), _AT_ONCE):
        rows = at + np.flatnonzero(told[at : at + _AT_ONCE])
        if len(rows):
            both = _joined(data, key[rows], key_size[rows], value[rows], value_size[rows])
            crcs = np.fromiter(map(google_crc32c.value, both), np.uint32, len(rows))
            four = buffer[stored[rows][:, None] + np.arange(4)]
            fits[rows] = crcs == four.view(">u4")[:, 0]
    return fits


def check_block(block: Block) -> None:
    """Raise JournalCorrupt, with the member ``lsn``, for the first entry of a segment's block that fails its checksum."""
    fits = fitting(block.data, block.found)
    view = memoryview(block.data)
    for row in np.flatnonzero(~fits).tolist():
        entry = view[int(block.places.starts[row]) : int(block.places.ends[row])]
        check_slices([memoryview(b"\x0a" + varint.encode(len(entry)) + entry)], ZERO)


def _joined(
    data: bytes | memoryview, key: Ints, key_size: Ints, value: Ints, value_size: Ints
) -> list[bytes]:
    """Key + value of each entry: taken as neighbouring elements of one array, of whose offsets every second one counts."""
    total = len(key)
    starts, sizes = np.empty(2 * total, np.int64), np.empty(2 * total, np.int64)
    starts[0::2], starts[1::2], sizes[0::2], sizes[1::2] = key, value, key_size, value_size
    single = byte_slices(pa.py_buffer(data), starts, sizes, pa.binary())
    _, offsets, joined = single.buffers()
    every_second = np.frombuffer(offsets, np.int32)[: 2 * total + 1 : 2].copy()
    both = pa.Array.from_buffers(pa.binary(), total, [None, pa.py_buffer(every_second), joined])
    made: list[bytes] = both.to_pylist()
    return made
