"""The free space below which nothing is appended: a full disk would take the room that everything else needs, too."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from headrace.errors import DiskReserve
from headrace.runtime.disk import Disk

RESERVE_BYTES_MIN: Final = 1 << 30
"""The least that is kept free unless a setting says otherwise."""
RESERVE_SHARE: Final = 20
"""One part in so many of the volume is kept free."""
CLEAR_SHARE: Final = 8
"""One part in so many of the reserve on top of it is clear room."""


class Reserve:
    """What is kept free on the volume of ``folder``: ``given`` bytes, or the larger of 1 GB and 5 % if that is None."""

    def __init__(self, disk: Disk, folder: Path, given: int | None) -> None:
        """Look at the volume's size if need be; 0 keeps nothing free."""
        self._disk, self._folder = disk, folder
        self.bytes = given
        if given is None:
            self.bytes = max(RESERVE_BYTES_MIN, disk.volume_bytes(folder) // RESERVE_SHARE)

    def has_clear_room(self) -> bool:
        """Return whether so much is free that appends are not refused again at once: the reserve and an eighth of it."""
        if not self.bytes:
            return True
        return self._disk.free_bytes(self._folder) >= self.bytes + self.bytes // CLEAR_SHARE

    def check(self, size: int) -> None:
        """Raise DiskReserve if ``size`` more bytes would leave less than the reserve."""
        if not self.bytes:
            return
        free = self._disk.free_bytes(self._folder)
        if free - size < self.bytes:
            raise DiskReserve(
                f"{self._folder}: {free:,} bytes are free on the volume, and {self.bytes:,} are kept in reserve",
                free_bytes=free,
                reserve_bytes=self.bytes,
            )
