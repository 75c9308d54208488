"""A file of the disk in memory: what processes see of it, what the platter holds, and what was not synced yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

PAGE: Final = 4096
"""Bytes that are written back together, and may be lost apart from others."""
SECTOR: Final = 512
"""Bytes that a drive writes whole; a page that is being written back may be torn between them."""


@dataclass(slots=True, eq=False)
class Inode:
    """A file: ``seen`` by processes, ``kept`` on the platter, and the pages that differ between them unsynced."""

    seen: bytearray = field(default_factory=bytearray)
    kept: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)
    locked: bool = False

    def touch(self, offset: int, size: int) -> None:
        """Note that these bytes are not on the platter yet."""
        self.dirty.update(range(offset // PAGE, (offset + max(size, 1) - 1) // PAGE + 1))

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Put ``data`` at ``offset``, zeros before it if need be; seen at once, not kept yet."""
        if offset > len(self.seen):
            self.touch(len(self.seen), offset - len(self.seen))
            self.seen.extend(bytes(offset - len(self.seen)))
        self.seen[offset : offset + len(data)] = data
        self.touch(offset, len(data))

    def resize(self, size: int) -> None:
        """Cut or extend what is seen to ``size`` bytes."""
        self.touch(min(size, len(self.seen)), abs(size - len(self.seen)))
        if size <= len(self.seen):
            del self.seen[size:]
        else:
            self.seen.extend(bytes(size - len(self.seen)))

    def write_back(self, page: int, begin: int = 0, end: int = PAGE) -> None:
        """Put a part of a page onto the platter; the file's size there grows as far as it must."""
        first, last = page * PAGE + begin, min(page * PAGE + end, len(self.seen))
        if last <= first:
            return
        if len(self.kept) < last:
            self.kept.extend(bytes(last - len(self.kept)))
        self.kept[first:last] = self.seen[first:last]
