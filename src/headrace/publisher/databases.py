"""Which databases can be a source: one folder and one line here for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Final, cast

from headrace.errors import DsnInvalid, SetupMissing, Usage
from headrace.publisher.grants import Rights
from headrace.publisher.source import Source
from headrace.publisher.state import StateReader
from headrace.runtime.dsn import Dsn

DATABASES: Final = {
    "mariadb": "headrace.publisher.mysql.source",
    "mysql": "headrace.publisher.mysql.source",
    "postgres": "headrace.publisher.postgres.source",
    "postgresql": "headrace.publisher.postgres.source",
    "sqlite": "headrace.publisher.sqlite.source",
}
"""DSN scheme -> the module whose ``open_source(dsn)`` opens it, and whose ``state_reader`` reads a snapshot.

A database with users also has ``read_rights``.

Imported when used, so that no driver is needed unasked.
"""


def open_source(dsn: Dsn) -> Source:
    """Open the database that ``dsn`` names; DsnInvalid for a scheme that is not known, else what the database raises."""
    opener = cast("Callable[[Dsn], Source]", _module_of(dsn).open_source)
    return opener(dsn)


def state_reader(dsn: Dsn, feed: str, query: str | None) -> StateReader:
    """Return a reader of the state of ``feed`` in the database that ``dsn`` names, not yet opened.

    ``query``: the application's own, for what no attached table holds. Errors as those of :func:`open_source`.
    """
    maker = cast("Callable[[Dsn, str, str | None], StateReader]", _module_of(dsn).state_reader)
    return maker(dsn, feed, query)


def read_rights(dsn: Dsn, tables: Sequence[str], role: str, application_role: str | None) -> Rights:
    """Return the least rights that ``role``'s agent and ``application_role``'s application need; Usage if none are asked."""
    module = _module_of(dsn)
    if not hasattr(module, "read_rights"):
        raise Usage(
            f"{dsn.scheme} knows no roles",
            hint="Only PostgreSQL, MariaDB and MySQL ask for rights: give such a DSN.",
        )
    reader = cast("Callable[[Dsn, Sequence[str], str, str | None], Rights]", module.read_rights)
    return reader(dsn, tables, role, application_role)


def _module_of(dsn: Dsn) -> ModuleType:
    module = DATABASES.get(dsn.scheme)
    if module is None:
        raise DsnInvalid(
            f"{dsn.scheme}:// is no source that this version knows",
            hint=f"Known are: {', '.join(f'{scheme}://' for scheme in sorted(DATABASES))}.",
        )
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("headrace"):
            raise
        raise SetupMissing(
            f"{dsn.scheme}:// needs the package {error.name}, which is not installed",
            hint=f"pip install 'headrace[{module.split('.')[-2]}]'",
        ) from None
