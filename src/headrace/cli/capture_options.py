"""Options that the commands of ``headrace capture`` share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

Flag = Annotated[bool, Parameter(negative=())]
Patterns = Annotated[list[str] | None, Parameter(negative=())]


def split_patterns(given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the patterns of an option that was repeated, or holds several with commas between."""
    return tuple(part.strip() for words in given or () for part in words.split(",") if part.strip())
