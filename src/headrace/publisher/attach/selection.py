"""Which tables and which columns an operator means: names, patterns, columns left out, columns masked. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from headrace.errors import AttachUnsafe, TableNotFound, Usage

MASK = "***"
"""What stands in a masked column where the source has a value; NULL stays NULL."""


@dataclass(frozen=True, slots=True)
class AttachRequest:
    """What ``headrace publisher attach`` was asked for. A column is named ``column`` (in all tables) or ``table.column``.

    ``tables``: names; ``include`` and ``exclude``: patterns (``*``, ``?``, ``[…]``) over table names. ``columns``: deliver
    these and the key only. ``key``: the columns that name a row, for a table whose own key does not do. ``accept``: why an
    unsafe table is attached all the same. ``before``: carry the row as it was before each update. ``copy``: copy the rows
    that are already there.
    """

    feed: str
    tables: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    exclude_columns: tuple[str, ...] = ()
    mask: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    accept: str = ""
    before: bool = False
    copy: bool = True


def choose_tables(request: AttachRequest, known: Sequence[str]) -> list[str]:
    """Return the tables of ``known`` that ``request`` means, in the order of ``known``; case does not matter in names.

    Raises TableNotFound listing what is there, Usage if nothing was asked for.
    """
    if not request.tables and not request.include:
        raise Usage("no table was named", hint="Name tables with --table, or patterns with --include '*'.")
    names = {name.lower(): name for name in known}
    missing = [name for name in request.tables if name.lower() not in names]
    chosen = {names[name.lower()] for name in request.tables if name.lower() in names}
    chosen |= {name for name in known if _matches(name, request.include)}
    chosen = {name for name in chosen if not _matches(name, request.exclude)}
    if missing or not chosen:
        what = f"there is no table {', '.join(missing)}" if missing else "the patterns leave no table"
        raise TableNotFound(f"{what}; the tables are: {', '.join(known) or 'none'}")
    if request.key and len(chosen) > 1:
        raise Usage("--key names the key of one table", hint="Attach that table by a command of its own.")
    return [name for name in known if name in chosen]


def check_column_names(request: AttachRequest, columns_of: dict[str, Sequence[str]]) -> None:
    """Raise Usage if ``request`` names a column that none of its tables has: a misspelt mask would leak what it names."""
    asked = [
        ("--columns", request.columns),
        ("--exclude-columns", request.exclude_columns),
        ("--mask", request.mask),
    ]
    for option, names in asked:
        for name in names:
            if not any(
                _named(column, table, [name]) for table, columns in columns_of.items() for column in columns
            ):
                raise Usage(
                    f"{option} {name}: no such column in {', '.join(columns_of)}",
                    hint="Write COLUMN, or TABLE.COLUMN for one table's.",
                )


def narrow(request: AttachRequest, table: str, columns: Sequence[str], key: Sequence[str]) -> AttachRequest:
    """Return ``request`` with the column names that mean columns of ``table`` only: what is stored with its attachment."""

    def meant(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in names if any(_named(column, table, [name]) for column in columns))

    return replace(
        request,
        tables=(table,),
        include=(),
        exclude=(),
        columns=meant(request.columns) or (tuple(key) if request.columns else ()),
        exclude_columns=meant(request.exclude_columns),
        mask=meant(request.mask),
    )


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """The delivered columns of one table, and those of them whose values are masked."""

    delivered: tuple[str, ...]
    masked: frozenset[str]


def choose_columns(
    request: AttachRequest, table: str, columns: Sequence[str], key: Sequence[str]
) -> ColumnChoice:
    """Return what is delivered of ``table``; raises AttachUnsafe if a key column would be left out or masked."""
    wanted = [
        name for name in columns if not request.columns or name in key or _named(name, table, request.columns)
    ]
    left_out = {name for name in wanted if _named(name, table, request.exclude_columns)}
    masked = {name for name in wanted if _named(name, table, request.mask)} - left_out
    for name in key:
        if name in left_out or name in masked:
            raise AttachUnsafe(
                f"{table}.{name} is in the key, which names the row: it can be neither left out nor masked",
                hint="Leave it out of --exclude-columns and --mask.",
            )
    return ColumnChoice(tuple(name for name in wanted if name not in left_out), frozenset(masked))


def _named(column: str, table: str, names: Iterable[str]) -> bool:
    spellings = {column.lower(), f"{table}.{column}".lower()}
    return any(name.lower() in spellings for name in names)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)
