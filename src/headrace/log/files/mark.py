"""The mark file behind a shared mapping: readers of other processes see the new end as soon as it is stored."""

from __future__ import annotations

from pathlib import Path

from headrace.errors import JournalCorrupt
from headrace.runtime.disk import Disk, SyncFailed
from headrace.wire import mark as wire_mark
from headrace.wire.mark import Mark


class MarkFile:
    """The mark of one data folder. Only the journal's writer calls :meth:`store`."""

    def __init__(self, disk: Disk, path: Path) -> None:
        """Open the mark at ``path``, which must exist; JournalCorrupt if neither slot is intact."""
        self._file = disk.open(path)
        if self._file.size() < wire_mark.FILE_SIZE:
            size = self._file.size()
            self._file.close()
            raise JournalCorrupt(f"{path}: the mark is {size} bytes, not {wire_mark.FILE_SIZE}")
        self._map = self._file.map_shared(wire_mark.FILE_SIZE, writable=True)
        found = wire_mark.decode_marks(self._map[:], str(path))
        if found is None:
            self.close()
            raise JournalCorrupt(f"{path}: both copies of the mark fail their checksum")
        self.current = found
        self.damaged_copy = wire_mark.damaged_copy(self._map[:], found, str(path))
        """Where in the file a damaged copy stood when it was opened, or None: the damaged one may have been the newer."""

    @staticmethod
    def create(disk: Disk, path: Path, first: Mark) -> None:
        """Put a new mark file at ``path``, durably; one that goes on counting has both its slots filled."""
        page = bytearray(wire_mark.FILE_SIZE)
        for mark in (first._replace(counter=first.counter - 1), first) if first.counter else (first,):
            page[mark.offset : mark.offset + wire_mark.SLOT_SIZE] = mark.encode()
        disk.write_whole(path, bytes(page))

    def store(self, end: int, global_ts: int) -> None:
        """Move the visible end; what stands below ``end`` must already be durable."""
        self.current = Mark(self.current.counter + 1, end, global_ts)
        offset = self.current.offset
        self._map[offset : offset + wire_mark.SLOT_SIZE] = self.current.encode()

    def sync(self) -> None:
        """Make the mark durable, or raise SyncFailed; needed before a new segment begins.

        (A crash of the machine may set it back, and it must never lie below the newest segment.) It is stored once more
        first: after a sync that failed, in an earlier process too, the page may be called clean and be on no disk. Both its
        copies then name the same end.
        """
        self.store(self.current.end, self.current.global_ts)
        try:
            self._map.flush()
        except OSError as error:
            raise SyncFailed(error.errno, f"the mark was not synced: {error.strerror}") from error
        self._file.sync()

    def settle(self, end: int, global_ts: int) -> None:
        """Have both copies name ``end``, durably: after a recovery and at a clean stop. SyncFailed.

        Whichever of them is damaged later, the other one says the same. Nothing is written where they agree already.
        """
        newest = self.current._replace(end=end, global_ts=global_ts)
        copies = (newest, newest._replace(counter=newest.counter - 1)) if newest.counter else ()
        at = [(one.offset, one.offset + wire_mark.SLOT_SIZE) for one in copies]
        if [self._map[begin:stop] for begin, stop in at] != [one.encode() for one in copies] or not copies:
            self.store(end, global_ts)
            self.sync()

    def close(self) -> None:
        """Let go of mapping and file."""
        if hasattr(self, "_map"):
            self._map.close()
        self._file.close()
