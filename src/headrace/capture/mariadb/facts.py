"""What decides whether a server and its tables can be captured, read with the fewest rights; ``fitness`` judges it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from headrace.capture.mariadb.connection import Source, fetch, source_errors
from headrace.capture.mariadb.dump import register
from headrace.capture.mariadb.foreign_keys import ForeignKey, read_foreign_keys
from headrace.capture.mariadb.server import ServerFacts, read_server
from headrace.errors import SourceForbidden, TableNotFound

SYSTEM_DATABASES: Final = ("information_schema", "mysql", "performance_schema", "sys")
VERSIONED: Final = "SYSTEM VERSIONED"

_TABLES: Final = """
SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES
WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND TABLE_SCHEMA NOT IN %s ORDER BY TABLE_SCHEMA, TABLE_NAME"""
_COLUMNS: Final = """
SELECT TABLE_NAME, COLUMN_NAME, DATA_TYPE, CHARACTER_SET_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s
ORDER BY TABLE_NAME, ORDINAL_POSITION"""
_KEYS: Final = """
SELECT TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART, NULLABLE FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND NON_UNIQUE = 0 ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX"""


class Wishes(NamedTuple):
    """What is to be captured, and how.

    ``captures``: says whether a table (database, name) is. ``hides``: says whether a column (database, table, name) does not
    go out. ``longest_outage_s``: for so long capture may be away, and go on afterwards.
    """

    captures: Callable[[str, str], bool]
    longest_outage_s: float
    accept_cascades: bool = False
    hides: Callable[[str, str, str], bool] = lambda database, table, column: False


class ColumnFacts(NamedTuple):
    """A column. ``type`` is the bare one, in lower case; ``charset`` is ``""`` where it holds no text."""

    name: str
    type: str
    charset: str = ""


class UniqueKey(NamedTuple):
    """A primary or unique key. ``prefixed``: of a column it takes the beginning alone."""

    name: str
    nullable: bool
    prefixed: bool


class TableFacts(msgspec.Struct, frozen=True):
    """One table, as the schema tables have it. ``foreign_keys``: None if this account may not read the whole table."""

    database: str
    table: str
    kind: str
    engine: str
    columns: tuple[ColumnFacts, ...]
    keys: tuple[UniqueKey, ...]
    foreign_keys: tuple[ForeignKey, ...] | None

    @property
    def name(self) -> str:
        """How people write it."""
        return f"{self.database}.{self.table}"


class BinlogFilters(NamedTuple):
    """The databases that binlog-do-db and binlog-ignore-db name; () and () if all goes into the binlog."""

    do: tuple[str, ...]
    ignore: tuple[str, ...]


class Facts(msgspec.Struct, frozen=True):
    """All that the verdict is made of.

    ``account``: SQL for whom the connection speaks. ``filters``: None if this account may not see them.
    """

    server: ServerFacts
    account: str
    may_replicate: bool
    filters: BinlogFilters | None
    tables: tuple[TableFacts, ...]


def read_facts(connection: Source, wishes: Wishes, replica_id: int) -> Facts:
    """Return the facts of the server and of all tables that are captured; ``replica_id``: what capture will call itself.

    Rights that are missing are facts too. Raises SourceUnavailable, SourceUnfit (a foreign key can't be read).
    """
    server = read_server(connection)
    with source_errors():
        ((user,),) = fetch(connection, "SELECT CURRENT_USER()")
    return Facts(
        server=server,
        account="@".join("'" + part.replace("'", "''") + "'" for part in str(user).rsplit("@", 1)),
        may_replicate=_may_replicate(connection, replica_id),
        filters=_read_filters(connection),
        tables=tuple(_read_tables(connection, wishes)),
    )


def _may_replicate(connection: Source, replica_id: int) -> bool:
    try:
        register(connection, replica_id)
    except SourceForbidden:
        return False
    return True


def _read_filters(connection: Source) -> BinlogFilters | None:
    try:
        with source_errors():
            rows = fetch(connection, "SHOW MASTER STATUS")
    except SourceForbidden:
        return None
    if not rows:  # no binlog is written
        return BinlogFilters((), ())
    do, ignore = rows[0][2:4]
    return BinlogFilters(*(tuple(filter(None, str(names or "").split(","))) for names in (do, ignore)))


def _read_tables(connection: Source, wishes: Wishes) -> list[TableFacts]:
    with source_errors():
        rows = fetch(connection, _TABLES, (SYSTEM_DATABASES,))
    captured: dict[str, list[Sequence[Any]]] = defaultdict(list)
    for row in rows:
        if wishes.captures(row[0], row[1]):
            captured[row[0]].append(row)
    found = []
    for database, tables in captured.items():
        with source_errors():
            columns = _by_table(fetch(connection, _COLUMNS, (database,)))
            keys = _by_table(fetch(connection, _KEYS, (database,)))
        for _, table, kind, engine in tables:
            try:
                foreign_keys: tuple[ForeignKey, ...] | None = read_foreign_keys(connection, database, table)
            except SourceForbidden:
                foreign_keys = None
            except TableNotFound:  # it was dropped since the list was made
                continue
            found.append(
                TableFacts(
                    database=database,
                    table=table,
                    kind=kind,
                    engine=str(engine or ""),
                    columns=tuple(
                        ColumnFacts(name, str(type_).lower(), charset or "")
                        for name, type_, charset in columns[table]
                    ),
                    keys=tuple(_unique_keys(keys[table])),
                    foreign_keys=foreign_keys,
                )
            )
    return found


def _by_table(rows: Sequence[tuple[Any, ...]]) -> defaultdict[str, list[tuple[Any, ...]]]:
    found = defaultdict(list)
    for table, *rest in rows:
        found[table].append(tuple(rest))
    return found


def _unique_keys(rows: Sequence[tuple[Any, ...]]) -> list[UniqueKey]:
    parts = defaultdict(list)
    for name, _, prefix, nullable in rows:
        parts[name].append((prefix is not None, nullable == "YES"))
    return [
        UniqueKey(name, any(nullable for _, nullable in found), any(prefixed for prefixed, _ in found))
        for name, found in parts.items()
    ]
