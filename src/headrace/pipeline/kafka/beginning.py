"""Where a job without a checkpoint begins, and what it leaves out by that. Called once, before the query is started.

The source would find it out too; here it is found first, so that the job can say it, and begins exactly there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace.errors import CheckpointUnfit, ConfigInvalid
from headrace.pipeline.checkpoint_folder import Folder, manager_of
from headrace.pipeline.connection import Connection
from headrace.pipeline.source.options import Options
from headrace.pipeline.source.planner import FeedPlanner
from headrace.pipeline.source.starts import Moment, read_moment

FIRST: Final = "first"
"""The word for a feed's first entry, retained or not."""


class Beginning(NamedTuple):
    """``start``: for the source. ``at``: the first sequence id that is read, None where a checkpoint goes on, or may.

    ``warnings``: what can surprise.
    """

    start: str
    at: int | None
    warnings: list[str]


def read_start(text: str) -> Moment:
    """Read what ``--start`` says: ``first``, or a word of the source's own. InvalidRequest for anything else."""
    return 1 if text == FIRST else read_moment(text, "start")


def find_beginning(options: Mapping[str, str], start: str, checkpoint: str) -> Beginning:
    """Return where a job with the source's ``options`` (one feed, without ``start``) begins.

    ``start``: as for :func:`read_start`; empty: with an archive the first entry, else the oldest that is retained. Raises
    what the source does for a start that it can't reach: SequenceNotAvailable, BeyondHead, InvalidRequest; where only Spark
    can look at the checkpoint, the source does so itself. CheckpointUnfit for a folder of this disk that can't be read.
    """
    archive = "archive" in options
    moment = read_start(start or (FIRST if archive else "oldest"))
    is_empty = _is_empty(checkpoint)
    if is_empty is False:
        ignored = f"{checkpoint} says where to go on: --start {start} is for an empty checkpoint"
        return Beginning("", None, [ignored] if start else [])
    asked = Options(options, streaming=True)
    if is_empty is None and moment not in {"oldest", "head"}:
        # Retention may have passed it, and a checkpoint be further: the source judges it if Spark asks where to begin.
        return Beginning(str(moment) if isinstance(moment, int) else start, None, [])
    (feed,) = asked.feeds
    with Connection(asked.endpoint) as server:
        place = FeedPlanner(server, feed, archive=asked.archive()).begin(moment)
        left_out = 0 if start else _dropped_below(server, feed, place.sequence_id)
    at = place.sequence_id + 1
    if is_empty is None:
        return Beginning(str(at), None, [])
    warnings = []
    if left_out:
        warnings.append(
            f"it begins at entry {at} of {feed}, the oldest that the server retains: {left_out} entries below are not sent. "
            "With --archive, the URL of a backup's KWAL segments, and a new checkpoint they would be"
        )
    return Beginning(str(at), at, warnings)


def _is_empty(checkpoint: str) -> bool | None:
    """Tell whether a query on this checkpoint would begin anew; None where only Spark can look at it."""
    try:
        names = Folder(checkpoint).names()
    except ConfigInvalid:
        return None
    except CheckpointUnfit:
        if manager_of(checkpoint) is not None:
            raise
        return None
    return not any(name.startswith("offsets/") for name in names)


def _dropped_below(server: Connection, feed: str, done: int) -> int:
    """Return how many entries up to ``done`` there were; a feed may begin above 1."""
    began_at = server.feed(feed).first_sequence_id
    return max(0, done - max(1, began_at) + 1)
