"""What a server no longer retains, read from an archive of KWAL segments: checked to be all of it. For planner, workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.errors import SequenceNotAvailable

if TYPE_CHECKING:
    from headrace.pipeline.wal.archive import SegmentPart

_ID_MAX: Final = (1 << 63) - 1


class Archive:
    """The segments under one URL. ``keep``: hold the segment read last, for who asks for parts of it again and again."""

    def __init__(self, url: str, *, keep: bool = False) -> None:
        self._url = url
        self._keep = keep
        self._kept: tuple[tuple[object, ...], list[pa.RecordBatch]] | None = None

    def batches(
        self, feed: str, incarnation: str, first: int, last: int, names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the entries ``first`` … ``last`` of one history as record batches with the columns ``names``, in order.

        ``names`` must hold sequence_id. SequenceNotAvailable, naming what is missing, if the archive does not have all.
        """
        from headrace.pipeline.wal.archive import segments_of

        expected = first
        for part in segments_of(self._url, feed, incarnation, first, last):
            for batch in self._read(part, tuple(names)):
                ids = batch.column("sequence_id").to_numpy()
                begin, end = (int(at) for at in np.searchsorted(ids, (expected, last + 1)))
                if begin < end:
                    yield batch.slice(begin, end - begin)
                    expected = int(ids[end - 1]) + 1
        if expected <= last:  # who reads would ask for it again and again
            raise SequenceNotAvailable(
                f"the archive does not have the entries {expected} to {last} of {feed}", change_feed_id=feed
            )

    def _read(self, part: SegmentPart, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        from headrace.pipeline.wal.archive import read_part

        if not self._keep:
            yield from read_part(part, names)
            return
        asked = part.file, part.feed, part.incarnation, names
        if self._kept is None or self._kept[0] != asked:
            self._kept = asked, list(read_part(part._replace(first=0, last=_ID_MAX), names))
        yield from self._kept[1]
