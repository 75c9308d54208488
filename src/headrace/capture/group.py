"""One transaction of the binlog while its events come: how much of it is done, what it becomes, its savepoints. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Container

from headrace.capture.binlog.event import Begin
from headrace.capture.changes import Mark, TransactionEntries
from headrace.capture.commit_time import CommitClock
from headrace.capture.ddl import TableName
from headrace.capture.position import SourcePosition


class Group:
    """The events from a GTID to the end of its transaction.

    Its *parts* are its rows events, and its statements if rows follow them; ``parts`` of them were taken, whatever they
    became, so a restart counts the same. ``commit_ts`` is 0 until something goes out. ``is_cut``: a part of it was handed
    out. ``before``: the position before it, where that is not what is known now, because of what it says behind its rows.
    ``touched``: tables that it has rows of, each with its last part.
    """

    def __init__(
        self, begin: Begin, left: SourcePosition | None, *, ts_before: int, table_id_before: int
    ) -> None:
        """``left``: where the feed ends within this transaction, if it does.

        ``ts_before``, ``table_id_before``: the last ones given before it.
        """
        self.begin = begin
        self.gtid = str(begin.gtid)
        self.time_ms = begin.time_s * 1000
        self.ts_before = ts_before
        self.table_id_before = table_id_before
        self.parts = 0
        self.entries: TransactionEntries | None = None
        self.is_cut = left is not None
        self.before: SourcePosition | None = None
        self.commit_ts = left.commit_ts if left is not None else 0
        self.touched: dict[TableName, int] = {}
        self._done = left.parts if left is not None else -1
        self._rows_done = left.rows if left is not None else 0
        self._entries_done = left.entries if left is not None else 0
        self._savepoints: dict[str, tuple[Mark | None, int]] = {}

    def is_done(self) -> bool:
        """Tell whether the next part is in the feed since before a restart."""
        return self.parts < self._done

    def feed_ended_here(self) -> bool:
        """Tell whether the feed ended, before a restart, right before the next part."""
        return self.parts == self._done and not self._rows_done

    def rows_done(self) -> int:
        """Return how many rows of the next part are in the feed since before a restart."""
        return self._rows_done if self.parts == self._done else 0

    def begun(self, clock: CommitClock, wall_ms: Callable[[], int]) -> TransactionEntries:
        """Return what gathers the entries of the parts from the first call on."""
        if self.entries is None:
            self.commit_ts = self.commit_ts or clock.next(self.time_ms)
            self.entries = TransactionEntries(
                self.gtid,
                self.commit_ts,
                wall_ms(),
                self.time_ms,
                parts=self.parts,
                entries=self._entries_done,
            )
        return self.entries

    def begin_anew(self) -> None:
        """What comes has a commitTs of its own; what came was handed out."""
        if self.entries is not None:
            self._entries_done = self.entries.entries_taken
        self.commit_ts, self.entries = 0, None

    def skip_part(self) -> None:
        """Count a part that does not go out."""
        self.parts += 1
        if self.entries is not None:
            self.entries.skip_part()

    def save(self, name: str) -> None:
        """Set a savepoint; one of the same name moves."""
        self._savepoints[_folded(name)] = (
            (self.entries.mark() if self.entries is not None else None),
            self.parts,
        )

    def has_savepoint(self, name: str) -> bool:
        """Tell whether a savepoint of this name was set."""
        return _folded(name) in self._savepoints

    def touched_since(self, savepoint: str | None, but: Container[TableName]) -> list[TableName]:
        """Return the tables that have rows behind ``savepoint`` (None: all of it), ``but`` those."""
        first = self._savepoints[_folded(savepoint)][1] if savepoint is not None else 0
        return [name for name, part in self.touched.items() if part >= first and name not in but]

    def take_back(self, savepoint: str | None, but: Container[TableName]) -> tuple[str, list[TableName]]:
        """Take back what came since ``savepoint`` (None: all of it).

        Returns why that can't be, "" if it can, and the tables that have rows there, ``but`` those.
        """
        if savepoint is not None and not self.has_savepoint(savepoint):
            return f"to {savepoint}, which is no savepoint of it", self.touched_since(None, but)
        if self.roll_back(savepoint):
            return "", []
        return "and is so large that a part is in the feed", self.touched_since(savepoint, but)

    def roll_back(self, savepoint: str | None) -> bool:
        """Take back what came since ``savepoint`` (None: all of it); False if some of that was handed out."""
        if self.parts <= self._done:
            return True  # that was done before the restart, which came behind a later part
        mark, parts = self._savepoints[_folded(savepoint)] if savepoint is not None else (None, 0)
        if self.entries is None:
            return not self.is_cut or parts >= max(self._done, 1)
        return self.entries.roll_back(mark)


def _folded(savepoint: str) -> str:
    """Return what names of savepoints that the server takes for the same have in common: neither case nor accents count."""
    letters = unicodedata.normalize("NFD", savepoint.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))
