"""Where a listener keeps its place and what its consumer refused: the contract of a bookmark store, and the list of stores.

RFD 5 ("Listener agent") leaves the storage to the user and asks that it be durable. One more store is one more file and one
line in :func:`open_bookmarks`; ``tests/contract/test_bookmarks.py`` holds all of them to the contract.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from headrace.entries.bookmark import Bookmark
from headrace.errors import Usage
from headrace.listener.parking import ParkedEntry, ParkedMax


class BookmarkStore(Protocol):
    """Keeps one bookmark, and the parked entries, for each (listener id, feed).

    Calls are blocking and may come from any one thread at a time. What is stored is durable when the call returns, or the
    call raises SourceUnavailable and what was there before stands. At any time only one store object may move a bookmark:
    either nobody else can open the store meanwhile, or the others get BookmarkMoved.
    """

    def load(self, listener_id: str, feed: str) -> Bookmark | None:
        """Return the bookmark that was stored last; None if there is none."""

    def claim(self, listener_id: str, feed: str) -> Bookmark | None:
        """Return what :meth:`load` does, and fence everybody who claimed before: a listener calls it when it starts."""

    def store(self, listener_id: str, feed: str, bookmark: Bookmark) -> None:
        """Keep ``bookmark``. One that comes from a snapshot voids what is parked up to it, in the same step.

        BookmarkMoved if another one has claimed it since.
        """

    def filter_of(self, listener_id: str, feed: str) -> str | None:
        """Return what :meth:`set_filter` kept last; None: the bookmark is made without a filter, or there is none."""

    def set_filter(self, listener_id: str, feed: str, stored: str | None) -> None:
        """Keep the filter that the bookmark is made with from now on (EntryFilter.stored()); bookmarks leave it as it is.

        Once there is one, programs that know no filters are kept out: they would go on without it. BookmarkMoved.
        """

    def park(
        self,
        listener_id: str,
        feed: str,
        entry: ParkedEntry,
        bookmark: Bookmark | None,
        parked_max: ParkedMax,
    ) -> None:
        """Keep ``entry`` (in place of what is parked under its sequence id) and ``bookmark``, both or neither.

        ParkedTooMany if more than ``parked_max`` would be parked; BookmarkMoved.
        """

    def parked(self, listener_id: str, feed: str) -> list[ParkedEntry]:
        """Return what is parked, in the order of sequence ids."""

    def unpark(self, listener_id: str, feed: str, sequence_id: int) -> bool:
        """Forget what is parked under ``sequence_id``; False if nothing is."""

    def close(self) -> None:
        """Let go of files and connections; does nothing the second time."""


def open_bookmarks(text: str) -> BookmarkStore:
    """Open the store that ``text`` names: a path or ``sqlite:///PATH``, ``file:///PATH``, ``postgresql://…``.

    Usage for another scheme; SetupMissing where a driver is not installed; and what each store raises.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "sqlite", "/" + text
    match scheme:
        case "sqlite":
            from headrace.listener.sqlite import SqliteBookmarks  # noqa: PLC0415  # only the store that is used

            return SqliteBookmarks(Path(rest[1:]))
        case "file":
            from headrace.listener.file import FileBookmarks  # noqa: PLC0415  # only the store that is used

            return FileBookmarks(Path(rest[1:]))
        case "postgresql" | "postgres":
            from headrace.listener.postgres import PostgresBookmarks  # noqa: PLC0415  # needs a driver

            return PostgresBookmarks(text)
    raise Usage(
        f"{scheme[:40]!r} is no store of bookmarks",
        hint="Write a path, sqlite:///PATH, file:///PATH or postgresql://…",
    )
