"""Rows of a batch -> the same rows, each with the stretch that it stands in: how many of the given places are below it.

Called on workers by the tables job: a batch may hold thousands of places, and an expression of Spark's would have a term for
each. Pure: Arrow and numpy, no JVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.wire.arrays import arrow_ints, numpy_ints

STRETCH_DDL: Final = "table ARRAY<STRING>, sequence_id BIGINT, stretch BIGINT"
"""The rows with their stretch."""


def stretch_batches(batches: Iterator[Any], places: Sequence[int]) -> Iterator[Any]:
    """Add to record batches of (table, sequence_id) the number of the ``places``, in ascending order, below each row."""
    known = np.array(places, np.int64)
    for batch in batches:
        ids = batch.column("sequence_id")
        stretch = arrow_ints(np.searchsorted(known, numpy_ints(ids)))
        yield pa.RecordBatch.from_arrays(
            [batch.column("table"), ids, stretch], names=["table", "sequence_id", "stretch"]
        )
