"""The small buffer that takes what the long poll brings while a missing range or a snapshot is fetched. Pure.

RFD 5, "Listener agent": out of date, it buffers incoming items while it queries for the missing range. The feed itself
holds them too, so when the buffer is full it is simply dropped, and the rest is read from the feed.
"""

from __future__ import annotations

from typing import Final

from msgspec import Raw

from headrace.listener.stretch import Stretch
from headrace.wire.documents import EntryOut

BUFFER_ENTRIES_MAX: Final = 1_000
BUFFER_BYTES_MAX: Final = 8 << 20
"""As much as one answer of the server: a buffer that holds less could not take a single poll."""


class Buffer:
    """One stretch above the listener's place, which grows. Bounded by entries and by bytes of their values."""

    def __init__(self, entries_max: int = BUFFER_ENTRIES_MAX, bytes_max: int = BUFFER_BYTES_MAX) -> None:
        self.entries_max = entries_max
        self._bytes_max = bytes_max
        self._stretch: Stretch | None = None
        self._bytes = 0

    @property
    def last(self) -> int | None:
        """Where its stretch ends; None if it is empty."""
        return self._stretch.last if self._stretch is not None else None

    def put(self, stretch: Stretch) -> bool:
        """Take ``stretch``, which goes on where the buffer ends. False: it is full, and now empty."""
        known = self._stretch
        size = sum(map(_bytes_of, stretch.entries))
        count = len(stretch.entries) + (len(known.entries) if known is not None else 0)
        full = count > self.entries_max or self._bytes + size > self._bytes_max
        if full or (known is not None and stretch.after != known.last):
            self.drop()
            return False
        if stretch.last > stretch.after:
            before = known if known is not None else Stretch(stretch.after, stretch.after, None)
            entries = [*before.entries, *stretch.entries]
            self._stretch = Stretch(before.after, stretch.last, stretch.lsn, entries)
            self._bytes += size
        return True

    def drop(self) -> None:
        """Empty it."""
        self._stretch, self._bytes = None, 0

    def take_behind(self, place: int) -> Stretch | None:
        """Return what follows ``place``, and empty the buffer; nothing, and keep it, while something between is missing."""
        if self._stretch is None or self._stretch.after > place:
            return None
        found = self._stretch.behind(place)
        self.drop()
        return found


def _bytes_of(entry: EntryOut) -> int:
    values = (entry.changes, entry.before)
    return sum(len(memoryview(value)) for value in values if isinstance(value, Raw)) + len(
        entry.changes_base64 if isinstance(entry.changes_base64, str) else ""
    )
