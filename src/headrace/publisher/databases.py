"""Which databases can be a source: one folder and one line here for each."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final, cast

from headrace.errors import DsnInvalid, SetupMissing
from headrace.publisher.dsn import Dsn
from headrace.publisher.source import Source

DATABASES: Final = {
    "postgres": "headrace.publisher.postgres.source",
    "postgresql": "headrace.publisher.postgres.source",
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
    try:
        imported = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("headrace"):
            raise
        raise SetupMissing(
            f"{dsn.scheme}:// needs the package {error.name}, which is not installed",
            hint=f"pip install 'headrace[{module.split('.')[-2]}]'",
        ) from None
    opener = cast("Callable[[Dsn], Source]", imported.open_source)
    return opener(dsn)
