"""Where a listener keeps its place: the contract of a bookmark store, and the list of stores.

RFD 5 ("Listener agent") leaves the storage to the user and asks that it be durable.
"""

from __future__ import annotations

from typing import Protocol

from headrace.entries.bookmark import Bookmark


class BookmarkStore(Protocol):
    """Keeps one bookmark for each (listener id, feed). Calls are blocking and may come from any one thread at a time."""

    def load(self, listener_id: str, feed: str) -> Bookmark | None:
        """Return the bookmark that was stored last; None if there is none."""

    def store(self, listener_id: str, feed: str, bookmark: Bookmark) -> None:
        """Keep ``bookmark``; durable when this returns."""

    def close(self) -> None:
        """Let go of files and connections; does nothing the second time."""
