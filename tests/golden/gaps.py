"""The record of an accepted gap, as a golden file."""

from __future__ import annotations

from pathlib import Path

from headrace.archive.files.gaps import AcceptedGap, encode_gap

GAP = AcceptedGap(
    after="0687f0b7e9dc0000.0000000001.0000000004",
    before="0687f0b90c980001.0000000003.0000000018",
    reason="the disk of host backup-2 died; nothing of these nine minutes is needed",
    by="ops@backup-1",
    at_ms=1_795_300_000_000,
)


def make_gap(path: Path) -> None:
    """Write the record."""
    path.write_bytes(encode_gap(GAP))
