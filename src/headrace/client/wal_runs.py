"""A received batch as runs of each feed, by array operations. Needs numpy, which the core does not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from headrace.entries.lsn import TEXT_SIZE, Lsn
from headrace.wire.batch import ReceivedBatch

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Ints = np.ndarray[Any, np.dtype[np.int64]]
_FEW: Final = 16
_LSN_TAG: Final = 0x0A
_REGION_AT: Final = 17
_INDEX_AT: Final = 28
_TENS: Final = 10 ** np.arange(9, -1, -1, dtype=np.int64)
_HEX: Final = np.zeros(256, np.uint8)
"""What each hexadecimal digit stands for."""
for _value, _figure in enumerate(b"0123456789abcdef"):
    _HEX[_figure] = _value
_SIZES_MAX: Final = (2 + 127, 3 + 16_383, 4 + 2_097_151)
"""Largest entries, with tag and length, whose length takes one byte, two and three."""


def feed_runs(batch: ReceivedBatch) -> Iterable[tuple[Lsn, Lsn]] | None:
    """Return (first, last) of each feed in the batch, if nothing is left out between them; None where that is not so.

    Also None where arrays can't tell: an entry does not begin as our server writes it, with its LSN in canonical form, or an
    index wraps. And for few entries, which go faster one by one.
    """
    if len(batch.sizes) < _FEW:
        return None
    sizes = np.frombuffer(batch.sizes, np.uint32).astype(np.int64)
    lsn_at = np.cumsum(sizes) - sizes + 4
    for size_max in _SIZES_MAX:
        lsn_at += sizes > size_max
    body = np.frombuffer(batch.body, np.uint8)
    if lsn_at[-1] + TEXT_SIZE > len(body):
        return None
    if (body[lsn_at - 2] != _LSN_TAG).any() or (body[lsn_at - 1] != TEXT_SIZE).any():
        return None
    regions, indexes = _numbers(body, lsn_at + _REGION_AT), _numbers(body, lsn_at + _INDEX_AT)
    if (regions == regions[0]).all():
        order = np.arange(len(sizes))
    else:
        order = np.argsort(regions, kind="stable")
    same = regions[order[1:]] == regions[order[:-1]]
    follows = indexes[order[1:]] - indexes[order[:-1]] == 1
    if not (follows | ~same).all():
        return None
    cuts = np.flatnonzero(~same)
    firsts = order[np.concatenate(([0], cuts + 1))]
    lasts = order[np.concatenate((cuts, [len(order) - 1]))]
    made = [
        map(Lsn, _timestamps(body, lsn_at[rows]).tolist(), regions[rows].tolist(), indexes[rows].tolist())
        for rows in (firsts, lasts)
    ]
    return zip(*made, strict=True)


def _numbers(body: _Bytes, at: _Ints) -> _Ints:
    """The ten digits that stand at each of these places, as a number."""
    numbers: _Ints = (body[at[:, None] + np.arange(10)].astype(np.int64) - ord("0")) @ _TENS
    return numbers


def _timestamps(body: _Bytes, at: _Ints) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The 16 hexadecimal digits that stand at each of these places, as a number."""
    digits = _HEX[body[at[:, None] + np.arange(16)]]
    pairs = digits[:, 0::2] << 4 | digits[:, 1::2]
    return np.ascontiguousarray(pairs).view(">u8")[:, 0]
