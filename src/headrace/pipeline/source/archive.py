"""What a server no longer retains, read from an archive of KWAL segments: checked to be all of it. For planner, workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.errors import SequenceNotAvailable
from headrace.wire.arrays import numpy_ints

if TYPE_CHECKING:
    from headrace.pipeline.wal.archive import SegmentPart

_ID_MAX: Final = (1 << 63) - 1


class Archive:
    """The segments under one URL. ``keep``: hold the segment read last, for who asks for parts of it again and again.

    ``identity``: file with the age identity that encrypted segments are read with.
    """

    def __init__(self, url: str, *, keep: bool = False, identity: str = "") -> None:
        self._url = url
        self._identity = identity
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
        for part in segments_of(self._url, feed, incarnation, first, last, identity=self._identity):
            for batch in self._read(part, tuple(names)):
                ids = numpy_ints(batch.column("sequence_id"))
                begin, end = (int(at) for at in np.searchsorted(ids, (expected, last + 1)))
                if begin < end:
                    yield batch.slice(begin, end - begin)
                    expected = int(ids[end - 1]) + 1
        if expected <= last:  # who reads would ask for it again and again
            raise SequenceNotAvailable(
                f"the archive does not have the entries {expected} to {last} of {feed}", change_feed_id=feed
            )

    def history_of(self, feed: str, sequence_id: int, lsn: str) -> str | None:
        """Return the incarnation under which the archive has this entry of the feed with this LSN; None if it has it not."""
        from headrace.pipeline.wal.archive import parts_with

        for part in parts_with(self._url, feed, sequence_id, lsn):
            for batch in self._read(part, ("sequence_id", "lsn")):
                ids = numpy_ints(batch.column("sequence_id"))
                at = int(np.searchsorted(ids, sequence_id))
                if at < len(ids) and ids[at] == sequence_id and str(batch.column("lsn")[at]) == lsn:
                    return part.incarnation
        return None

    def _read(self, part: SegmentPart, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        from headrace.pipeline.wal.archive import read_part

        if not self._keep:
            yield from read_part(part, names, identity=self._identity)
            return
        asked = part.file, part.feed, part.incarnation, names
        if self._kept is None or self._kept[0] != asked:
            self._kept = (
                asked,
                list(read_part(part._replace(first=0, last=_ID_MAX), names, identity=self._identity)),
            )
        yield from self._kept[1]
