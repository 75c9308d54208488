"""Who holds retention for the tables of a folder: a listener at the server, at the least place that they still need.

A stopped table needs everything after the place where it stopped. The server waits for a listener that it has seen within
its ``--subscriber-expiry`` (a day), and no longer than the byte cap allows.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Final

from headrace.errors import CheckpointNotFound, HeadraceError
from headrace.pipeline.checkpoint import places_in, read_checkpoint
from headrace.pipeline.connection import Connection
from headrace.pipeline.source.acking import Acks
from headrace.pipeline.source.offset import Offset, Place
from headrace.pipeline.tables.ledger import Ledger
from headrace.runtime.logs import get_logger

logger = get_logger("pipeline")

SEEN_S: Final = 60.0
"""A place is told again after so many seconds, though it is the same, so that the server sees who holds."""


def listener_of(ledger: Ledger) -> str:
    """Return the name of the listener that holds for this folder.

    It is another one for another folder, on another machine too, and for a copy of this one at another path.
    """
    whose = f"{ledger.instance} {ledger.to}"
    return f"tables-{hashlib.sha256(whose.encode()).hexdigest()[:16]}"


def place_of(ledger: Ledger) -> Place | None:
    """Return up to where nothing is needed any more: what is published, or the first stop below it; None for nothing yet.

    A table that nothing in the feed can bring back but a copy holds nothing.
    """
    published = ledger.published
    if published is None:
        merged = ledger.merged  # such as a snapshot, whose moment is published with the first batch behind it
        if merged is None or ledger.tables:
            return None
        return Place(incarnation=ledger.incarnation, sequence_id=merged.sequence_id, lsn=merged.lsn)
    notes = [one.stopped for one in ledger.tables if one.stopped is not None]
    least = min((note.after for note in notes if note.holds), default=None)
    if least is None or least >= published.sequence_id:
        return Place(incarnation=published.incarnation, sequence_id=published.sequence_id, lsn=published.lsn)
    return Place(incarnation=published.incarnation, sequence_id=least)


def done_place(checkpoint: str, feed: str) -> Place | None:
    """Return where the newest batch ends that Spark has noted as done; None if none is.

    A batch that is planned and not noted as done is read again when the query starts, though its moment be published.
    """
    for batch in reversed(read_checkpoint(checkpoint).batches):
        if batch.done:
            found = places_in(batch.ends[0]).get(feed) if batch.ends else None
            return found if isinstance(found, Place) else None
    return None


class Holding:
    """Tells the server what the tables of one ledger still need. For one thread; a server that is away is told later."""

    def __init__(self, server: Connection, ledger: Ledger, checkpoint: str) -> None:
        """Register the listener. If the server does not let it hold, the log says so, and nothing holds.

        ``checkpoint``: Spark's record of the query, which may have to read its last batch again.
        """
        self._checkpoint = checkpoint
        self._acks = Acks(server, listener_of(ledger))
        self._ledger = ledger
        self._told: Place | None = None
        self._told_at = 0.0
        self._unread = ""
        self._refused = not self._tried(lambda: self._acks.register([ledger.feed]))

    def tell(self) -> None:
        """Tell the place, if it is another one or was not told for a while."""
        place = self._place()
        now = time.monotonic()
        if self._refused or place is None or (place == self._told and now - self._told_at < SEEN_S):
            return
        self._told, self._told_at = place, now
        self._tried(lambda: self._acks.report(Offset({self._ledger.feed: place})))

    def _place(self) -> Place | None:
        place = place_of(self._ledger)
        if place is None or place == self._told:
            return place
        try:
            done = done_place(self._checkpoint, self._ledger.feed)
        except CheckpointNotFound:  # the query begins behind what is merged
            return place
        except HeadraceError as error:
            if error.code != self._unread:  # once, and not each second
                logger.warning("retention waits for the tables", code=error.code, detail=error.detail)
            self._unread = error.code
            return self._told
        self._unread = ""
        if done is None:
            return self._told
        return place if place.sequence_id <= done.sequence_id else done

    def _tried(self, call: Callable[[], None]) -> bool:
        try:
            call()
        except HeadraceError as error:
            logger.warning("retention does not wait for the tables", code=error.code, detail=error.detail)
            return False
        return True
