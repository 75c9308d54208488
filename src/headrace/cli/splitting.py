"""Options that take several names: repeated, or with commas between."""

from __future__ import annotations

from collections.abc import Sequence


def split_names(given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of an option that was repeated, or holds several with commas between; none for None."""
    return tuple(part.strip() for words in given or () for part in words.split(",") if part.strip())
