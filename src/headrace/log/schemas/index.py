"""The index of schemas: what the journal has of them, kept when retention drops the frames.

Its rows stand in the metadata database, with a mark up to where the journal was looked over. What this process appends is
looked over as it is written (``spans``), everything else is read back: after a start, what another server appended, and the
frames that do hold schemas. So a crash between an append and its rows loses nothing, and retention asks
:meth:`SchemaIndex.read_up_to` before it drops. Blocks: call it from a worker thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from headrace.errors import JournalCorrupt, SchemaNotFound, StoreUnavailable
from headrace.log.contract import Store
from headrace.log.metadata.contract import Metadata, SchemaRow
from headrace.log.schemas.entries import SchemaName
from headrace.log.schemas.look import Look
from headrace.log.schemas.spans import Spans
from headrace.wire.frame import FrameHeader

ANEW_MAX: Final = 3
"""Times that a look begins anew because another server, or a repair, has set the mark back meanwhile."""


class SchemaIndex:
    """The schemas of one log's feeds. Used from any thread; one at a time looks the journal over."""

    def __init__(self, store: Store, metadata: Metadata) -> None:
        """Nothing is read before the first look."""
        self._store, self._metadata = store, metadata
        self._spans = Spans()
        self._guard = threading.Lock()
        self._look: Look | None = None
        self._position = 0

    @property
    def position(self) -> int:
        """Up to where the journal was looked over, in this process."""
        return self._position

    def note(self, frames: Iterable[tuple[FrameHeader, bytes]]) -> None:
        """Take in a group that is durable now; from the thread that writes, and cheap."""
        self._spans.note(frames)

    def read_up_to(self, position: int) -> None:
        """Keep every schema that stands below ``position``: once this returns, they are durable.

        What can't be read because it is damaged is passed over, and looked at again the next time. Raises StoreUnavailable.
        """
        with self._guard:
            for _ in range(ANEW_MAX):
                if self._look is None:
                    self._look = Look(self._store, self._metadata, self._spans)
                if self._look.read_up_to(position):
                    self._position = self._look.at
                    return
                self._look = None
            raise StoreUnavailable("the index of schemas is being made anew by somebody else")

    def settle(self) -> None:
        """Write the mark: the next start has nothing to read back. Raises StoreUnavailable."""
        with self._guard:
            if self._look is not None:
                self._look.keep()

    def schema(self, feed: str, name: SchemaName) -> SchemaRow:
        """Return a schema, as far as the journal was looked over.

        Raises SchemaNotFound, JournalCorrupt where it may stand in what can't be read, and MetadataCorrupt if its row is
        damaged.
        """
        row = self._metadata.schemas.schema(feed, *name)
        if row is not None:
            return row
        holes = self._look.holes if self._look is not None else ()
        if holes:
            raise JournalCorrupt(
                f"the schema may stand in the journal from position {holes[0].start:#x} on, which is damaged",
                change_feed_id=feed,
            )
        raise SchemaNotFound(
            f"the feed {feed} has no schema of {name.database}.{name.table}, version {name.version}"
        )

    def newest(self, feed: str, after: int, rows_max: int) -> list[SchemaRow]:
        """Return the newest schema of each table, those above the sequence id ``after``, in its order."""
        return self._metadata.schemas.newest(feed, after, rows_max)
