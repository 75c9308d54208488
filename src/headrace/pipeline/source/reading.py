"""A partition's stored frames as record batches, every step checked: nothing skipped, nothing of another history.

Called on workers by the source's readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from headrace.errors import FeedRecreated, JournalCorrupt
from headrace.pipeline.source.planner import Feeds, Range
from headrace.wire.columns import record_batch


def read_batches(feeds: Feeds, part: Range, names: Sequence[str]) -> Iterator[Any]:
    """Yield the entries of ``part`` as record batches with the columns ``names``, one for each answer of the server.

    Each request carries the LSN of the entry before it, so that the server refuses a place in another history
    (FeedRecreated); the sequence ids must be dense and the last LSN the planned one. JournalCorrupt if entries are
    missing from an answer; SequenceNotAvailable if retention has passed them.
    """
    wanted = tuple(names)
    read = tuple(dict.fromkeys((*wanted, "sequence_id", "lsn")))
    first, lsn = part.first, part.lsn_before
    while first <= part.last:
        answer = feeds.frames(part.feed, first, part.last, incarnation=part.incarnation, lsn=lsn or None)
        batch = record_batch(
            answer.data, feed=part.feed, first=first, last=part.last, names=read, where=part.feed
        )
        ids = batch.column("sequence_id").to_numpy()
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
                f"the entry {part.last} of {part.feed} has the LSN {lsn}, the query planned {part.lsn_last}: an old copy "
                "of the server's data was put back",
                change_feed_id=part.feed,
            )
        yield batch if read == wanted else batch.select(list(wanted))
