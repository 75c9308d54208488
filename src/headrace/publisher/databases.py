"""Which databases can be a source: one folder and one line here for each."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final, cast

from headrace.errors import DsnInvalid
from headrace.publisher.dsn import Dsn
from headrace.publisher.source import Source

DATABASES: Final = {
    "sqlite": "headrace.publisher.sqlite.source",
}
"""DSN scheme -> the module whose ``open_source(dsn)`` opens it; imported when used, so that no driver is needed unasked."""


def open_source(dsn: Dsn) -> Source:
    """Open the database that ``dsn`` names; DsnInvalid for a scheme that is not known, else what the database raises."""
    module = DATABASES.get(dsn.scheme)
    if module is None:
        raise DsnInvalid(
            f"{dsn.scheme}:// is no source that this version knows",
            hint=f"Known are: {', '.join(f'{scheme}://' for scheme in sorted(DATABASES))}.",
        )
    opener = cast("Callable[[Dsn], Source]", import_module(module).open_source)
    return opener(dsn)
