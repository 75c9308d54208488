"""Files of dropped segments on their way out: oldest first, and none before the one that comes before it is gone."""

from __future__ import annotations

from pathlib import Path

from headrace.errors import StoreUnavailable
from headrace.runtime.disk import Disk


class Removals:
    """What was dropped and is not served any more, but may still take space."""

    def __init__(self, disk: Disk) -> None:
        """Nothing waits to be removed."""
        self._disk = disk
        self._paths: list[Path] = []

    def add(self, path: Path) -> None:
        """Let ``path``, which is younger than all before it, be removed by :meth:`finish`."""
        self._paths.append(path)

    def finish(self) -> None:
        """Remove what waits, durably and in order: a younger one that went first would leave a hole in the journal.

        StoreUnavailable if one can't be removed; it and the younger ones wait for the next call.
        """
        try:
            while self._paths:
                self._disk.remove(self._paths[0])
                del self._paths[0]
        except OSError as error:
            raise StoreUnavailable(f"a dropped segment could not be removed: {error}") from error
