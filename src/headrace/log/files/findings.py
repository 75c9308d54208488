"""What a look at a data folder finds: its segments as far as they can be read, and what is damaged."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from headrace.log.damage import Damage
from headrace.log.tail import JournalState
from headrace.runtime.disk import DiskFile
from headrace.wire.mark import Mark


@dataclass(slots=True)
class Segment:
    """A segment file as far as it can be read. ``start_size`` None: not even its frames can be found.

    ``state`` is what it continues from, known only if ``is_start_intact``.
    """

    path: Path
    file: DiskFile
    first_position: int
    start_size: int | None = None
    is_start_intact: bool = False
    state: JournalState = field(default_factory=JournalState)
    end: int = 0
    """Position after its last frame: the next segment's first, or the mark."""

    def read(self, position: int, size: int) -> bytes:
        """Return bytes of frames; only if ``start_size`` is known."""
        return self.file.read_at(self.offset_of(position), size)

    def offset_of(self, position: int) -> int:
        """Return where a position stands in the file."""
        return (self.start_size or 0) + position - self.first_position


@dataclass(slots=True)
class Findings:
    """All that a look at a data folder found. ``names``: feeds by region id. ``frames`` and ``entries``: intact ones."""

    folder: Path
    mark: Mark | None = None
    segments: list[Segment] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    frames: int = 0
    entries: int = 0
    bytes: int = 0
    is_end_doubtful: bool = False
    """Whether damaged bytes at the journal's end may have been acknowledged, because a copy of the mark is damaged."""

    def close(self) -> None:
        """Let go of the files."""
        for segment in self.segments:
            segment.file.close()
