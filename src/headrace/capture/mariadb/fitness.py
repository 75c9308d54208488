"""Can this server and these tables be captured without a loss? Each finding names what to set, grant or change, and to what.

``headrace capture check`` prints the findings, and capture makes them at its start. :func:`judge` is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from headrace.capture.binlog.charsets import reader_of
from headrace.capture.mariadb.connection import Source
from headrace.capture.mariadb.facts import VERSIONED, ColumnFacts, Facts, TableFacts, Wishes, read_facts
from headrace.capture.mariadb.server import ServerFacts

RELEASE_MIN: Final = (10, 6)
"""Older servers lack the binlog's times to live in seconds, and what else is read here."""

RELEASE_TESTED: Final = (10, 11)

NO_TABLE: Final = "tables"
"""The subject of the finding that no table is captured."""

_EVENT_BYTES_ADVISED: Final = 1 << 20
"""A rows event is decoded as a whole, which takes up to 40 times as much memory."""

_TRANSACTIONAL: Final = "InnoDB"
_SECONDS_A_DAY: Final = 86_400
_TYPES: Final = frozenset(
    {
        *("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "bit", "year"),
        *("date", "time", "datetime", "timestamp", "char", "varchar", "binary", "varbinary", "enum", "set"),
        *("tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob", "json"),
        *("inet4", "inet6", "uuid"),
    }
)


class Severity(StrEnum):
    """What a finding does: an ERROR stops the capture (or its table), a WARNING may come to, a NOTE is good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(NamedTuple):
    """One thing that is not as it should be.

    ``subject``: the variable, ``rights``, or the table. ``remedy``: what to do, to the letter. ``table``: database and name
    if it concerns that table alone: others can be captured nevertheless.
    """

    severity: Severity
    subject: str
    detail: str
    remedy: str
    table: tuple[str, str] | None = None


def check(connection: Source, wishes: Wishes, replica_id: int) -> list[Finding]:
    """Return all findings, the server's first; [] if all is well. ``replica_id``: what capture will call itself.

    Raises SourceUnavailable, SourceUnfit.
    """
    return judge(read_facts(connection, wishes, replica_id), wishes)


def judge(facts: Facts, wishes: Wishes) -> list[Finding]:
    """Return what ``facts`` mean for ``wishes``, the server's first."""
    found = [*_judge_binlog(facts.server), *_judge_history(facts.server, wishes), *_judge_rights(facts)]
    found += _judge_filters(facts)
    if not facts.tables:
        found.append(
            Finding(
                Severity.WARNING,
                NO_TABLE,
                "no table that this account may see is captured",
                f"Check the setting tables, or run: GRANT SELECT ON `DATABASE`.* TO {facts.account};",
            )
        )
    for table in facts.tables:
        found += _judge_table(table, facts.account, wishes)
    return found


def _judge_binlog(server: ServerFacts) -> Iterator[Finding]:
    """Is there a binlog, and does it hold whole rows with their columns' names and types?"""
    if server.release < RELEASE_MIN:
        yield _unset(
            "version", server.version, f"MariaDB {_dotted(RELEASE_MIN)} or newer is needed", "Upgrade."
        )
    elif server.release < RELEASE_TESTED:
        yield Finding(
            Severity.NOTE,
            "version",
            f"{server.version}: Headrace is tested with {_dotted(RELEASE_TESTED)} and newer",
            "Upgrade when you can.",
        )
    if server.variables.get("log_bin") != "ON":
        yield _unset("log_bin", "OFF", "no binlog is written", _configure("log_bin", "binlog"))
    wanted = (
        ("binlog_format", "ROW", "changes are logged as statements, which name no rows", True),
        ("binlog_row_image", "FULL", "rows are logged without all their columns", True),
        ("binlog_row_metadata", "FULL", "rows are logged without the names of their columns", False),
    )
    for name, value, why, per_session in wanted:
        found = server.variables.get(name, "not there")
        if found != value:
            remedy = _set_global(name, value)
            if per_session:
                remedy += " Sessions that are open keep their own: let the applications connect anew."
            yield _unset(name, found, why, remedy)
    event_bytes = int(server.variables.get("binlog_row_event_max_size", "0"))
    if event_bytes > _EVENT_BYTES_ADVISED:
        yield Finding(
            Severity.WARNING,
            "binlog_row_event_max_size",
            f"{event_bytes}: capture takes up to 40 times as much memory for each rows event",
            _configure("binlog_row_event_max_size", "8192"),
        )
    applies = server.slaves_running > 0 or server.variables.get("wsrep_on") == "ON"
    if server.variables.get("log_slave_updates") != "ON" and (
        applies or server.variables.get("gtid_slave_pos")
    ):
        yield Finding(
            Severity.ERROR if applies else Severity.WARNING,
            "log_slave_updates",
            "OFF: what this server gets from another one is not in its own binlog",
            f"{_configure('log_slave_updates', 'ON')} Or capture from the primary.",
        )


def _judge_history(server: ServerFacts, wishes: Wishes) -> Iterator[Finding]:
    """Is the binlog kept for long enough, and does it hold what readers were given?"""
    kept_s = float(server.variables.get("binlog_expire_logs_seconds", "0"))
    if 0 < kept_s < wishes.longest_outage_s:
        needed_s = int(-(-wishes.longest_outage_s // _SECONDS_A_DAY) * _SECONDS_A_DAY)
        yield _unset(
            "binlog_expire_logs_seconds",
            f"{kept_s:g} ({kept_s / _SECONDS_A_DAY:g} days)",
            f"the binlog is dropped before an outage of {wishes.longest_outage_s:g} s (longest-outage) is over",
            f"{_set_global('binlog_expire_logs_seconds', str(needed_s))} It is the same as expire_logs_days = "
            f"{needed_s / _SECONDS_A_DAY:g}.",
        )
    if float(server.variables.get("max_binlog_total_size", "0")) > 0:
        yield Finding(
            Severity.WARNING,
            "max_binlog_total_size",
            f"{server.variables['max_binlog_total_size']}: the binlog is dropped at that size, however young it is",
            f"{_set_global('max_binlog_total_size', '0')} Or see that it holds more than longest-outage.",
        )
    advised = (
        ("gtid_strict_mode", "ON", "the binlog may come to hold GTIDs out of order, and two of one number"),
        ("sync_binlog", "1", "after a crash of the machine the server may lack what the feed holds already"),
        ("innodb_flush_log_at_trx_commit", "1", "a crash may lose what was committed"),
        ("binlog_checksum", "CRC32", "damage of the binlog is not noticed"),
    )
    for name, value, why in advised:
        found = server.variables.get(name)
        if found is not None and found != value:
            yield Finding(Severity.WARNING, name, f"{found}: {why}", _set_global(name, value))


def _judge_rights(facts: Facts) -> Iterator[Finding]:
    needed = (
        (facts.may_replicate, "REPLICATION SLAVE", "the server does not send its binlog to this account"),
        (
            facts.filters is not None,
            "BINLOG MONITOR",
            "binlog-do-db and binlog-ignore-db, which keep changes out of the binlog, can't be seen",
        ),
    )
    for there, privilege, why in needed:
        if not there:
            grant = f"GRANT {privilege} ON *.* TO {facts.account};"
            yield Finding(Severity.ERROR, "rights", f"{privilege} is missing: {why}", f"Run: {grant}")


def _judge_filters(facts: Facts) -> Iterator[Finding]:
    do, ignore = facts.filters or ((), ())
    captured = sorted({table.database for table in facts.tables})
    for name, given, kept_out in (
        ("binlog-do-db", do, [one for one in captured if one not in do]),
        ("binlog-ignore-db", ignore, [one for one in captured if one in ignore]),
    ):
        if given:
            what = f"changes of {', '.join(kept_out)}" if kept_out else "some schema changes"
            yield Finding(
                Severity.ERROR if kept_out else Severity.WARNING,
                name,
                f"{', '.join(given)}: {what} may not be in the binlog",
                f"Take {name} out of the server's configuration, then restart the server.",
            )


def _judge_table(table: TableFacts, account: str, wishes: Wishes) -> Iterator[Finding]:
    def found(detail: str, remedy: str, severity: Severity = Severity.ERROR) -> Finding:
        return Finding(severity, table.name, detail, remedy, (table.database, table.table))

    quoted = f"{_quoted(table.database)}.{_quoted(table.table)}"
    if table.foreign_keys is None:
        yield found(
            "this account may not read the whole table", f"Run: GRANT SELECT ON {quoted} TO {account};"
        )
        return
    if table.kind == VERSIONED:
        yield found(
            "it is system-versioned: its binlog mixes the rows that are with those that were",
            f"Run: ALTER TABLE {quoted} DROP SYSTEM VERSIONING; or leave the table out of the setting tables.",
        )
    if table.engine != _TRANSACTIONAL:
        yield found(
            f"its engine is {table.engine or 'not there'}: its rows can't be read together with their place in the binlog",
            f"Run: ALTER TABLE {quoted} ENGINE = {_TRANSACTIONAL}; or leave the table out of the setting tables.",
        )
    yield from _judge_keys(table, quoted, found)
    for column in table.columns:
        unread = _unread(column)
        if unread and not wishes.hides(table.database, table.table, column.name):
            yield found(
                f"column {column.name} has the {unread}, which can't be captured",
                f'Write exclude-columns = ["{table.name}.{column.name}"], or leave the table out of the setting tables.',
            )
    for key in table.foreign_keys:
        if key.unlogged:
            yield found(
                f"the foreign key {key.name} to {'.'.join(key.parent)} has {' and '.join(key.unlogged)}: InnoDB changes "
                "rows of this table without a line in the binlog, so the feed never hears of it",
                'cascades = "accept" is set: run headrace capture copy for the table now and then.'
                if wishes.accept_cascades
                else "Make the key RESTRICT and change the rows by statements; or leave the table out of the setting "
                'tables; or write cascades = "accept" and live with the gap.',
                Severity.WARNING if wishes.accept_cascades else Severity.ERROR,
            )


def _judge_keys(table: TableFacts, quoted: str, found: Callable[..., Finding]) -> Iterator[Finding]:
    handles = [key for key in table.keys if not key.nullable]
    if not handles:
        yield found(
            "it has neither a primary key nor a UNIQUE key of NOT NULL columns: nothing tells its rows apart",
            f"Run: ALTER TABLE {quoted} ADD PRIMARY KEY (...); or leave the table out of the setting tables.",
        )
    elif all(key.prefixed for key in handles):
        yield found(
            "its key takes only the beginning of a column: rows are copied in an order that no index has, which is slow",
            f"Run: ALTER TABLE {quoted} and give it a primary key of whole columns.",
            Severity.WARNING,
        )


def _unread(column: ColumnFacts) -> str:
    """Return what of a column is not read, or ``""``."""
    if column.type not in _TYPES:
        return f"type {column.type}"
    if column.charset and reader_of(column.charset) is None:
        return f"character set {column.charset}"
    return ""


def _unset(name: str, value: str, why: str, remedy: str) -> Finding:
    return Finding(Severity.ERROR, name, f"{value}: {why}", remedy)


def _set_global(name: str, value: str) -> str:
    return f"Run: SET GLOBAL {name} = {value}; and write {name} = {value} under [mariadbd] in the server's configuration."


def _configure(name: str, value: str) -> str:
    return f"Write {name} = {value} under [mariadbd] in the server's configuration, then restart the server."


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _dotted(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))
