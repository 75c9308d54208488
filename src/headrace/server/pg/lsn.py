"""A position of the journal as PostgreSQL's tools write it: two numbers in hex, ``16/B374D848``. Pure."""

from __future__ import annotations

import re
from typing import Final

from headrace.server.pg.sqlstate import PgError, SqlState

INVALID: Final = 0
"""``0/0``: no position. Journals begin above it."""
_TEXT: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})", re.ASCII)


def lsn_text(position: int) -> str:
    """Return a position as text."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """Return the position that ``text`` names; PgError."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise PgError(SqlState.SYNTAX_ERROR, f"could not parse write-ahead log location {text[:80]!r}")
    return int(found[1], 16) << 32 | int(found[2], 16)
