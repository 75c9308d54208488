"""What a check of attached tables finds: each a kind, the table, and a sentence for the operator."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class FindingKind(StrEnum):
    """Why triggers and catalogue no longer agree."""

    TABLE_MISSING = "table-missing"
    TABLE_RENAMED = "table-renamed"
    TRIGGER_MISSING = "trigger-missing"
    TRIGGER_DISABLED = "trigger-disabled"
    TRIGGER_OUTDATED = "trigger-outdated"
    TRIGGER_OVERTAKEN = "trigger-overtaken"
    COLUMN_ADDED = "column-added"
    COLUMN_CHANGED = "column-changed"
    KEY_CHANGED = "key-changed"
    PARTITION_ADDED = "partition-added"
    PARTITION_GONE = "partition-gone"
    UNSAFE = "attach-unsafe"

    @property
    def mendable(self) -> bool:
        """Whether the agent mends it by itself: it rebuilds the triggers and copies what was written meanwhile."""
        return self in {
            FindingKind.TRIGGER_OUTDATED,
            FindingKind.TRIGGER_OVERTAKEN,
            FindingKind.COLUMN_ADDED,
            FindingKind.COLUMN_CHANGED,
            FindingKind.PARTITION_ADDED,
            FindingKind.PARTITION_GONE,
        }


class Finding(NamedTuple):
    """One finding about one attached table."""

    kind: FindingKind
    table: str
    detail: str


class Attached(NamedTuple):
    """One attached table as ``publisher check`` shows it."""

    table: str
    feed: str
    version: int
    columns: tuple[str, ...]
    key: tuple[str, ...]
    masked: tuple[str, ...]
    accepted: str
    copy_state: str
    copied_rows: int
    waiting_rows: int
    findings: tuple[Finding, ...]
