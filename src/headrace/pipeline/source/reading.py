"""A partition's stored frames as record batches, every step checked: nothing skipped, nothing of another history.

Called on workers by the source's readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from headrace.errors import FeedRecreated, JournalCorrupt, SequenceLost, SequenceNotAvailable
from headrace.pipeline.source.archive import Archive
from headrace.pipeline.source.ends import Feeds
from headrace.pipeline.source.planner import Range
from headrace.pipeline.source.skipped import skipped
from headrace.wire.arrays import numpy_ints
from headrace.wire.columns import record_batch


def read_batches(
    feeds: Feeds, part: Range, names: Sequence[str], archive: Archive | None = None
) -> Iterator[Any]:
    """Yield the entries of ``part`` as record batches with the columns ``names``, one for each answer of the server.

    Each request carries the LSN of the entry before it, so that the server refuses a place in another history
    (FeedRecreated); the sequence ids must be dense and the last LSN the planned one. JournalCorrupt if entries are
    missing from an answer. What retention has passed is read from ``archive``; SequenceNotAvailable if there is none. So
    are entries that a repair skipped; SequenceLost if they can't be.
    """
    wanted = tuple(names)
    read = tuple(dict.fromkeys((*wanted, "sequence_id", "lsn")))
    first, lsn = part.first, part.lsn_before
    while first <= part.last:
        for batch in _answered(feeds, part._replace(first=first, lsn_before=lsn), read, archive):
            ids = numpy_ints(batch.column("sequence_id"))
            if not len(ids) or ids[0] != first or not (np.diff(ids) == 1).all():
                raise JournalCorrupt(
                    f"the server left out entries of {part.feed} from {first} to {part.last}",
                    change_feed_id=part.feed,
                    sequence_id=first,
                )
            lsn = str(batch.column("lsn")[-1])
            first = int(ids[-1]) + 1
            if first > part.last and part.lsn_last and lsn != part.lsn_last:
                raise FeedRecreated(
                    f"the entry {part.last} of {part.feed} has the LSN {lsn}, the query planned {part.lsn_last}: an old "
                    "copy of the server's data was put back",
                    change_feed_id=part.feed,
                )
            yield batch if read == wanted else batch.select(list(wanted))


def _answered(feeds: Feeds, part: Range, read: tuple[str, ...], archive: Archive | None) -> Iterator[Any]:
    """Yield what one answer of the server has of the part's beginning; or all that it has no more, of the archive."""
    try:
        answer = feeds.frames(
            part.feed, part.first, part.last, incarnation=part.incarnation, lsn=part.lsn_before or None
        )
    except SequenceNotAvailable as gone:
        oldest = feeds.feed(part.feed).oldest_sequence_id
        if archive is None or oldest <= part.first:
            raise SequenceNotAvailable(
                f"retention has passed the query: it was about to read {part.feed} from {part.first} to {part.last}, "
                f"and the oldest entry retained is {oldest}. Go on with option archive, or begin anew with another "
                "checkpoint folder",
                change_feed_id=part.feed,
            ) from gone
        last = min(part.last, oldest - 1)
        yield from archive.batches(part.feed, part.incarnation, part.first, last, read)
        return
    except SequenceLost as lost:
        yield from skipped(feeds, archive, lost, feed=part.feed, first=part.first, last=part.last, names=read)
        return
    yield record_batch(
        answer.data, feed=part.feed, first=part.first, last=part.last, names=read, where=part.feed
    )
