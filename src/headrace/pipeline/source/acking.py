"""Who holds retention for a stream: a listener of the server, whose position is what the sink has committed.

The stream itself reports under its option ``listener`` what Spark tells it, which is one batch late while it runs. Who wants
the last batch counted at once calls :func:`ack` at the end of its foreachBatch function, or :func:`ack_offset` with the
offset that a query's progress names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest, NotRegistered, Unavailable
from headrace.pipeline.connection import Connection, Endpoint
from headrace.pipeline.source.offset import Asked, Offset, Place, read_offset
from headrace.wire.documents import FeedView


class Listeners(Protocol):
    """What acking asks of a server."""

    def feed(self, name: str) -> FeedView:
        """Return the feed's bounds."""

    def register_listener(self, listener: str, feed: str, *, hold: bool) -> None:
        """Register a listener with a feed; idempotent."""

    def put_position(self, listener: str, feed: str, bookmark: Bookmark) -> None:
        """Keep a listener's place."""


class Acks:
    """Reports places of one listener."""

    def __init__(self, server: Listeners, listener: str) -> None:
        """``listener``: its name at the server, the same for all feeds."""
        self._server = server
        self._listener = listener

    def register(self, feeds: Collection[str]) -> None:
        """Register the listener so that retention waits for it; ListenerTaken, ListenersTooMany, Forbidden."""
        for feed in feeds:
            self._server.register_listener(self._listener, feed, hold=True)

    def report(self, done: Offset) -> None:
        """Report that all up to ``done`` is committed. A server that is away is told by the next report.

        Raises FeedRecreated, BeyondHead, ListenerTaken.
        """
        for feed, place in done.feeds.items():
            bookmark = Bookmark(
                place.incarnation, place.sequence_id, Lsn.parse(place.lsn) if place.lsn else None
            )
            try:
                self._put(feed, bookmark)
            except Unavailable:
                return

    def _put(self, feed: str, bookmark: Bookmark) -> None:
        try:
            self._server.put_position(self._listener, feed, bookmark)
        except (
            NotRegistered
        ):  # it was not seen for so long that it was forgotten, or the server's metadata was lost
            self._server.register_listener(self._listener, feed, hold=True)
            self._server.put_position(self._listener, feed, bookmark)


def ack(entries: DataFrame, *, listener: str, endpoint: Endpoint) -> None:
    """Report that the micro-batch ``entries``, and all before it, is committed; call it last in a foreachBatch function.

    ``entries`` are those that the function was given (columns feed, sequence_id and lsn; InvalidRequest without them);
    this takes one small job over them. Raises what :meth:`Acks.report` does, and nothing if the server is away.
    """
    missing = {"feed", "sequence_id", "lsn"} - set(entries.columns)
    if missing:
        raise InvalidRequest(f"acknowledging a batch takes its columns {', '.join(sorted(missing))}")
    newest = F.max_by(F.struct("sequence_id", "lsn"), "sequence_id").alias("newest")
    rows = entries.groupBy("feed").agg(newest).collect()  # one row a feed
    with Connection(endpoint) as server:
        places = {
            row["feed"]: Place(
                incarnation=server.feed(row["feed"]).incarnation,
                sequence_id=row["newest"]["sequence_id"],
                lsn=row["newest"]["lsn"],
            )
            for row in rows
        }
        Acks(server, listener).report(Offset(places))


def ack_offset(offset: Mapping[str, Any] | str, *, listener: str, endpoint: Endpoint) -> None:
    """Report that all up to ``offset`` is committed: the ``endOffset`` in the progress of a batch that is done.

    InvalidRequest if it is no offset of this source; else as :meth:`Acks.report`, and nothing if the server is away.
    """
    done = read_offset(offset)
    if isinstance(done, Asked):
        return  # the query has not begun
    with Connection(endpoint) as server:
        Acks(server, listener).report(done)
