"""What is damaged in a log, as ``headrace log verify`` says it: the same words for both stores."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from headrace.wire.frame import FrameHeader


class DamageKind(StrEnum):
    """What is damaged, and so what it costs."""

    MARK = "mark"
    START = "segment-start"
    GAP = "gap"
    END = "end"
    PAYLOAD = "frame-payload"
    HEADER = "frame-header"
    HOLE = "frame"
    CONTROL = "control-frame"
    INDEX = "index"
    METADATA = "metadata"
    FEED = "feed-state"
    TABLES = "tables"


TABLE_PREFIX: Final = "headrace_log."
"""What a place that is no file begins with: the schema of the tables."""
COSTS_NOTHING: Final = frozenset({DamageKind.HEADER, DamageKind.INDEX})
"""Kinds whose bytes can be made again from others of the same file."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged place: ``offset`` in its file, and for frames the journal's ``position`` … ``end`` - 1, feed and range.

    (0 where it has no position.) In a database ``file`` is the table.
    """

    kind: DamageKind
    file: Path
    offset: int
    detail: str
    position: int = 0
    end: int = 0
    header: FrameHeader | None = None
    feed: str | None = None

    @property
    def is_of_table(self) -> bool:
        """Whether ``file`` is a table of a database."""
        return self.file.name.startswith(TABLE_PREFIX)

    @property
    def where(self) -> str:
        """File and byte, or table and position."""
        if self.is_of_table:
            return f"{self.file} at position {self.position:#x}" if self.position else str(self.file)
        return f"{self.file} at byte {self.offset}"

    def document(self) -> dict[str, object]:
        """Return it as ``--json`` shows it."""
        found: dict[str, object] = {"kind": str(self.kind), "file": str(self.file), "offset": self.offset}
        found |= {"detail": self.detail, "feed": self.feed}
        if self.position:
            found |= {"position": self.position, "end-position": self.end or None}
        if self.header is not None and self.header.count:
            found["first-sequence-id"] = self.header.first_sequence_id
            found["last-sequence-id"] = self.header.last_sequence_id
        return {name: value for name, value in found.items() if value is not None}


@dataclass(slots=True)
class Verdict:
    """What a look at a whole log found. ``place`` names the log; ``names``: feeds by region id.

    ``frames``, ``entries`` and ``bytes``: those that were looked at and are whole.
    """

    place: str
    damages: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    segments: int = 0
    frames: int = 0
    entries: int = 0
    bytes: int = 0
    end_position: int | None = None
