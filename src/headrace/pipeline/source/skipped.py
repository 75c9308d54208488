"""Entries that were damaged in the journal and skipped by a repair: read from an archive, if it is certain what they were.

A repair begins another incarnation of the feed, so an archive has these entries under an earlier one, perhaps under several.
The right one has the entry behind the lost range too, with the LSN that the server has there: that is one and the same
append, and what stood before it was the same. Called by the planner and on workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import SequenceLost, SequenceNotAvailable
from headrace.wire.columns import record_batch

if TYPE_CHECKING:
    from headrace.client.http import FramesRange
    from headrace.pipeline.source.archive import Archive


class Frames(Protocol):
    """What is asked of a server."""

    def frames(self, feed: str, first: int, last: int, *, incarnation: str | None = None) -> FramesRange:
        """Return the stored frames that overlap a range; SequenceLost for one that a repair skipped."""


def skipped(
    server: Frames,
    archive: Archive | None,
    lost: SequenceLost,
    *,
    feed: str,
    first: int,
    last: int,
    names: Sequence[str],
) -> Iterator[Any]:
    """Yield those entries of ``first`` … ``last`` that ``lost`` names, as record batches with the columns ``names``.

    ``first`` must be one of them. ``names`` must hold sequence_id. SequenceLost, naming the range and the way on, if there
    is no archive, or none that has them for certain.
    """
    begin, end = int(lost.members["lost-first"]), int(lost.members["lost-last"])
    if archive is None:
        raise _lost(feed, begin, end, "Go on with option archive, or begin") from lost
    behind = _behind(server, feed, end)
    history = archive.history_of(feed, *behind) if behind is not None else None
    if behind is None or history is None:
        entry = f"the entry {behind[0]} ({behind[1]})" if behind is not None else "an entry"
        doubt = f"The archive does not have {entry} behind them: nothing tells whether it has these. Begin"
        raise _lost(feed, begin, end, doubt) from lost
    try:
        yield from archive.batches(feed, history, first, min(end, last), names)
    except SequenceNotAvailable as missing:
        raise _lost(feed, begin, end, f"And {missing.detail}. Begin") from missing


def _behind(server: Frames, feed: str, sequence_id: int) -> tuple[int, str] | None:
    """Return sequence id and LSN of the first entry behind this one that the server has; None if it has none."""
    while True:
        after = sequence_id + 1
        try:
            answer = server.frames(feed, after, after)
        except SequenceLost as lost:
            sequence_id = int(lost.members["lost-last"])
            continue
        except SequenceNotAvailable:  # retention came between
            return None
        batch = record_batch(answer.data, feed=feed, first=after, last=after, names=("lsn",), where=feed)
        return (after, str(batch.column("lsn")[0])) if batch.num_rows else None


def _lost(feed: str, first: int, last: int, why: str) -> SequenceLost:
    return SequenceLost(
        f"the entries {first} to {last} of {feed} were damaged at the server, and a repair skipped them. {why} behind them: "
        f"start {last + 1}, with another checkpoint folder",
        change_feed_id=feed,
        lost_first=first,
        lost_last=last,
    )
