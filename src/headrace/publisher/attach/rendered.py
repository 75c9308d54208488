"""What a stored row of an attached table becomes, the same for every database."""

from __future__ import annotations

from typing import NamedTuple


class RenderedRow(NamedTuple):
    """What of an entry comes from the row's values; ``changes`` and ``before`` are JSON."""

    key: str | None
    changes: bytes
    changed: tuple[str, ...] | None
    before: bytes | None
