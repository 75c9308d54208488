"""What a look at an archive found, as ``headrace wal verify`` says it. Values only."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.archive.files.gaps import AcceptedGap
from headrace.errors import HeadraceError


class Finding(NamedTuple):
    """Something that is wrong. ``code`` is the error's that a reader would get; ``file`` stands below the archive's folder.

    ``byte``: where in the file, None where that can't be told.
    """

    code: str
    file: str
    detail: str
    byte: int | None = None

    def document(self) -> dict[str, Any]:
        """Return it as ``--json`` shows it."""
        found = {"code": self.code, "file": self.file, "byte": self.byte, "detail": self.detail}
        return {name: value for name, value in found.items() if value is not None}


def finding(error: HeadraceError, file: str) -> Finding:
    """Return an error about a file as a finding."""
    return Finding(error.code, file, error.detail, error.members.get("byte"))


class Verification(NamedTuple):
    """All that was found. ``segments``, ``bases``, ``entries``, ``rows`` and ``bytes``: those that were looked at.

    ``unread``: encrypted segments of which the ciphertext alone was checked. ``accepted``: gaps that are known and accepted.
    ``notes``: what is no damage and worth knowing. ``seconds``: how long it took.
    """

    archive: str
    findings: list[Finding]
    accepted: list[AcceptedGap]
    notes: list[str]
    segments: int
    bases: int
    entries: int
    rows: int
    bytes: int
    unread: int
    fast: bool
    seconds: float

    @property
    def code(self) -> str | None:
        """The first finding's code; None if there is none."""
        return self.findings[0].code if self.findings else None

    def document(self) -> dict[str, Any]:
        """Return it as ``--json`` shows it."""
        return {
            "wal-dir": self.archive,
            "whole": not self.findings,
            "code": self.code,
            "findings": [one.document() for one in self.findings],
            "accepted-gaps": [
                {
                    "after": one.after,
                    "before": one.before,
                    "reason": one.reason,
                    "by": one.by,
                    "at-ms": one.at_ms,
                }
                for one in self.accepted
            ],
            "notes": self.notes,
            "segments": self.segments,
            "segments-not-decrypted": self.unread,
            "bases": self.bases,
            "entries": self.entries,
            "rows": self.rows,
            "bytes": self.bytes,
            "fast": self.fast,
            "seconds": round(self.seconds, 3),
        }
