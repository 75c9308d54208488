"""Changes of keys -> those that a later put or delete of the same key does not make irrelevant. Called on workers. Pure.

What is left out here need not be sent to another worker and sorted there. Segments are taken as they stand, the newest one
first, so that one segment and the keys of those behind it are all that is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.entries.entry import Op
from headrace.wire.arrays import arrow_flags, arrow_ints, numpy_flags, numpy_ints, scalar_of

KEYS_BYTES_MAX: Final = 128 << 20
"""Bytes of keys that a task remembers, so as to leave out their earlier changes."""

_PATCH: Final = scalar_of(Op.PATCH.value)


def newest_changes(segments: Iterator[Iterator[Any]], keys_bytes_max: int = KEYS_BYTES_MAX) -> Iterator[Any]:
    """Yield what may still matter of segments' changes (``folding.CHANGE_SCHEMA``): the newest segment first, each in order.

    Of keys beyond ``keys_bytes_max`` only those changes are left out that the same segment makes irrelevant.
    """
    later: list[Any] = []  # names of keys that a later segment puts or deletes
    bytes_left = keys_bytes_max
    for batches in segments:
        held = list(batches)
        if not held:
            continue
        names = pa.concat_arrays([_names(batch) for batch in held])
        whole = np.concatenate([numpy_flags(pc.not_equal(batch.column("op"), _PATCH)) for batch in held])
        kept, ends = _newest(names, whole)
        if later:
            known = numpy_flags(pc.is_in(names, value_set=pa.chunked_array(later)))
            kept &= ~known
            ends = ends[~known[ends]]
        at = 0
        for batch in held:
            mask = kept[at : at + batch.num_rows]
            at += batch.num_rows
            yield batch if mask.all() else batch.filter(arrow_flags(mask))
        if bytes_left > 0 and len(ends):
            later.append(names.take(arrow_ints(ends)))
            bytes_left -= later[-1].nbytes


def _names(batch: Any) -> Any:
    """Return feed and key of each change as one value. A feed's number ends at the first colon: no two are one."""
    number = batch.column("feed").cast(pa.string()).cast(pa.binary())
    return pc.binary_join_element_wise(number, batch.column("key"), scalar_of(b":", pa.binary()))


def _newest(names: Any, whole: Any) -> tuple[Any, Any]:
    """Return of each change whether none of its key that is ``whole`` follows, and the last whole one of each key."""
    codes = numpy_ints(names.dictionary_encode().indices.cast(pa.int64()))
    rows = np.arange(len(codes))
    last = np.full(int(codes.max()) + 1, -1, np.int64)
    last[codes[whole]] = rows[whole]  # of several rows of a key the last one stays
    return rows >= last[codes], last[last >= 0]
