"""What is held of a journal's segments between one look and the next: bounded, however long the journal is."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, TypeVar

from headrace.runtime.disk import Disk, DiskFile

INDEX_BYTES_MAX: Final = 8 << 20
"""Memory for what finds frames in sealed segments. With the open segment's own index it stays below 16 MB."""
FILES_MAX: Final = 64
"""Sealed segments whose files are open at a time: a process may have 1,024 where nobody has set more, sockets included."""

T = TypeVar("T")


class BoundedCache:
    """Values by kind and position, the one used last kept longest; together they weigh at most ``weight_max``."""

    def __init__(self, weight_max: int) -> None:
        """Hold nothing yet."""
        self._weight_max = weight_max
        self._held: OrderedDict[tuple[type, int], tuple[object, int]] = OrderedDict()
        self._guard = threading.Lock()
        self.weight = 0

    def get(self, kind: type[T], position: int) -> T | None:
        """Return what was put under that kind and position; None if it is not held (any more)."""
        with self._guard:
            if (kind, position) not in self._held:
                return None
            self._held.move_to_end((kind, position))
            value, _ = self._held[kind, position]
            return value if isinstance(value, kind) else None

    def put(self, kind: type[T], position: int, value: T, weight: int) -> None:
        """Hold ``value``, and let go of the ones used longest ago until all fits: of this one, too, if it never can."""
        self.drop(kind, position)
        with self._guard:
            self._held[kind, position] = value, weight
            self.weight += weight
            while self.weight > self._weight_max:
                _, (_, freed) = self._held.popitem(last=False)
                self.weight -= freed

    def drop(self, kind: type, position: int) -> None:
        """Let go of one value, if it is held."""
        with self._guard:
            _, freed = self._held.pop((kind, position), (None, 0))
            self.weight -= freed

    def clear(self) -> None:
        """Let go of everything."""
        with self._guard:
            self._held.clear()
            self.weight = 0


class SegmentCache:
    """The open files and the indexes of one journal's sealed segments, by each segment's first position.

    A file that is let go of is closed when the last reader that is in it has done.
    """

    def __init__(
        self, disk: Disk, *, index_bytes_max: int = INDEX_BYTES_MAX, files_max: int = FILES_MAX
    ) -> None:
        """Hold nothing yet."""
        self.disk = disk
        self.files = BoundedCache(files_max)
        self.indexes = BoundedCache(index_bytes_max)
        self.rebuilding = threading.Lock()
        """Held while a lost index is made again, so that of many readers who miss it only one does the work."""
        self.is_closed = False

    def keep_file(self, position: int, file: DiskFile) -> None:
        """Hold the open file of the segment at ``position``."""
        self.files.put(DiskFile, position, file, 1)

    def forget(self, position: int, *kinds: type) -> None:
        """Let go of what is held of the segment at ``position``: its file, and ``kinds`` of what finds frames in it."""
        self.files.drop(DiskFile, position)
        for kind in kinds:
            self.indexes.drop(kind, position)

    def close(self) -> None:
        """Let go of everything, for good."""
        self.is_closed = True
        self.files.clear()
        self.indexes.clear()
