"""How far a running job is behind its feed, in entries and in seconds. Pure: jobs tell it what Spark and the server said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.errors import HeadraceError
from headrace.pipeline.source.offset import Offset, Place, read_offset


class Lag(NamedTuple):
    """``entries`` that the feed has beyond what is done, and how many ``seconds`` ago the last one done was appended.

    0 at the head. None where it is not known: the server is away, or no batch has ended yet.
    """

    entries: int | None
    seconds: float | None


def lag_of(ends: Sequence[str], feed: str, head: int | None, done: int, now_s: float) -> Lag:
    """Return the lag of a job on ``feed``, whose newest sequence id is ``head``.

    ``ends``: where its query's sources stand, as Spark tells it; ``done``: the last sequence id that the job knows itself.
    ``now_s``: seconds since 1970.
    """
    place = _place_in(ends, feed)
    if place is not None:
        done = max(done, place.sequence_id)
    entries = None if head is None else max(0, head - done)
    if entries == 0:
        return Lag(0, 0.0)
    if place is None or not place.committed_at_ms:
        return Lag(entries, None)
    return Lag(entries, round(max(0.0, now_s - place.committed_at_ms / 1000), 1))


def _place_in(ends: Sequence[str], feed: str) -> Place | None:
    for end in ends:
        try:
            offset = read_offset(end)
        except HeadraceError:  # of another source
            continue
        if isinstance(offset, Offset) and feed in offset.feeds:
            return offset.feeds[feed]
    return None
