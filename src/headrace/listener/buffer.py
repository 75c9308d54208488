"""The small buffer that takes what the long poll brings while a missing range or a snapshot is fetched. Pure.

RFD 5, "Listener agent": out of date, it buffers incoming items while it queries for the missing range. The feed itself
holds them too, so when the buffer is full it is simply dropped, and the rest is read from the feed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Raw

from headrace.wire.documents import EntryOut

BUFFER_ENTRIES_MAX: Final = 1_000
BUFFER_BYTES_MAX: Final = 8 << 20
"""As much as one answer of the server: a buffer that holds less could not take a single poll."""


class Buffer:
    """Entries with dense sequence ids, above the listener's place. Bounded by entries and by bytes of their values."""

    def __init__(self, entries_max: int = BUFFER_ENTRIES_MAX, bytes_max: int = BUFFER_BYTES_MAX) -> None:
        self.entries_max = entries_max
        self._bytes_max = bytes_max
        self._entries: list[EntryOut] = []
        self._bytes = 0

    @property
    def last(self) -> int | None:
        """The newest sequence id in it; None if it is empty."""
        return self._entries[-1].sequence_id if self._entries else None

    def put(self, entries: Sequence[EntryOut]) -> bool:
        """Take ``entries``, which go on where the buffer ends. False: it is full, and now empty."""
        size = sum(map(_bytes_of, entries))
        full = len(self._entries) + len(entries) > self.entries_max or self._bytes + size > self._bytes_max
        if full or (
            self._entries and entries and entries[0].sequence_id != self._entries[-1].sequence_id + 1
        ):
            self.drop()
            return False
        self._entries.extend(entries)
        self._bytes += size
        return True

    def drop(self) -> None:
        """Empty it."""
        self._entries, self._bytes = [], 0

    def take_after(self, last: int) -> Sequence[EntryOut]:
        """Return what follows ``last`` without a gap, and empty the buffer; nothing, and keep it, while there is a gap."""
        if not self._entries or self._entries[0].sequence_id > last + 1:
            return ()
        found = self._entries[max(0, last + 1 - self._entries[0].sequence_id) :]
        self.drop()
        return found


def _bytes_of(entry: EntryOut) -> int:
    values = (entry.changes, entry.before)
    return sum(len(memoryview(value)) for value in values if isinstance(value, Raw)) + len(
        entry.changes_base64 if isinstance(entry.changes_base64, str) else ""
    )
