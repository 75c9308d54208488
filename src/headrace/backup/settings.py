"""What a backup agent is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.runtime.health import HealthTerms

SEGMENT_BYTES: Final = 128 << 20
"""RFC-010 §5.2."""
SEGMENT_BYTES_MAX: Final = 1 << 30
"""Largest size of a segment: one is held in memory while the next one is gathered."""
SEGMENT_S: Final = 3600.0
"""RFC-010 §5.2: how long after its first entry a segment is written at the latest."""
UNSERVED: Final = HealthTerms()
"""Health that is told nowhere."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BackupSettings:
    """What to back up, where to, and how.

    ``archive``: the folder, at any address that fsspec knows. ``recipients``: age public keys to encrypt segments to.
    ``once``: end when everything is archived that was there at the start. ``accept_gap``: why what the server no longer has
    may be missing. ``retention_days`` and ``buffer_days``: what the hourly prune keeps (:mod:`headrace.backup.pruning`);
    None: never prune. ``health``: where it tells its health, and when it counts as stuck.
    """

    archive: str
    server: str = "http://127.0.0.1:8470"
    grpc: str = "127.0.0.1:8471"
    subscriber_id: str = "backup"
    segment_bytes: int = SEGMENT_BYTES
    segment_s: float = SEGMENT_S
    recipients: tuple[str, ...] = ()
    once: bool = False
    accept_gap: str = ""
    retention_days: float | None = 7
    buffer_days: float = 1
    token_file: Path | None = None
    ca_file: Path | None = None
    health: HealthTerms = UNSERVED
