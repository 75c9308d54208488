"""Connections to the application's MariaDB or MySQL, and the driver's errors as ours. Every transaction is short."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

import pymysql
from pymysql.constants import CLIENT, CR, ER
from pymysql.cursors import Cursor

from headrace.errors import AttachUnsafe, DsnInvalid, SourceForbidden, SourceUnavailable, TableNotFound
from headrace.publisher.outbox.mysql import STATEMENTS_LOGGED, STATEMENTS_LOGGED_HINT
from headrace.runtime.dsn import Dsn
from headrace.runtime.mysql_address import ANSWER_TIMEOUT_S, MYSQL_DSN_HINT, read_mysql_address
from headrace.runtime.mysql_connection import DriverConnection, MysqlConnection

Source = DriverConnection

QUERY_TIMEOUT_S: Final = 600
"""The same where an operator's own query is run, which may sort for long before its first row."""

LOCK_TIMEOUT_S: Final = 5
"""How long a statement waits for a row: only rows of our own tables are ever waited for."""

STATEMENTS_MAX: Final = 500
"""Statements sent at once."""

_FORBIDDEN: Final = frozenset(
    {
        ER.ACCESS_DENIED_ERROR,
        ER.DBACCESS_DENIED_ERROR,
        ER.TABLEACCESS_DENIED_ERROR,
        ER.COLUMNACCESS_DENIED_ERROR,
        ER.SPECIFIC_ACCESS_DENIED_ERROR,
        1698,  # MariaDB: access denied without a password
    }
)
_SETTINGS: Final = (
    # No gap is ever locked: an application that adds rows waits for none of ours.
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION time_zone = '+00:00'",
    f"SET SESSION innodb_lock_wait_timeout = {LOCK_TIMEOUT_S}",
    f"SET SESSION lock_wait_timeout = {LOCK_TIMEOUT_S}",
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES'",
)
_BINLOG_ROW_NEEDED: Final = 1665


def connect(dsn: Dsn, answer_timeout_s: int = ANSWER_TIMEOUT_S) -> Source:
    """Open the database that ``dsn`` names, in autocommit mode: transactions are begun by name only.

    Raises DsnInvalid (malformed, unknown database), SourceForbidden, SourceUnavailable.
    """
    address = read_mysql_address(dsn, answer_timeout_s)
    with mysql_errors():
        try:
            connection = MysqlConnection(
                **address,
                charset="utf8mb4",
                autocommit=True,
                client_flag=CLIENT.MULTI_STATEMENTS,
            )
        except OSError as error:  # the driver's own errors are none: it reads the file before it connects
            raise DsnInvalid(
                f"ssl-ca can't be used: {error.strerror or error}", hint=MYSQL_DSN_HINT
            ) from None
        except UnicodeError:
            raise DsnInvalid("the DSN's host is no host name", hint=MYSQL_DSN_HINT) from None
        try:
            for setting in _SETTINGS:
                execute(connection, setting)
        except BaseException:
            connection.close()
            raise
    return connection


def execute(connection: Source, query: str, values: Sequence[Any] | dict[str, Any] = ()) -> int:
    """Run one statement; returns how many rows it changed."""
    with closing(connection.cursor(Cursor)) as cursor:
        return cursor.execute(query, values or None)


def fetch(
    connection: Source, query: str, values: Sequence[Any] | dict[str, Any] = ()
) -> Sequence[tuple[Any, ...]]:
    """Run one query and return all its rows."""
    with closing(connection.cursor(Cursor)) as cursor:
        cursor.execute(query, values or None)
        return cursor.fetchall()


def execute_many(connection: Source, statements: Sequence[str]) -> None:
    """Run statements that hold no text of others, :data:`STATEMENTS_MAX` in one packet."""
    with closing(connection.cursor(Cursor)) as cursor:
        for start in range(0, len(statements), STATEMENTS_MAX):
            cursor.execute(";".join(statements[start : start + STATEMENTS_MAX]))
            while cursor.nextset():
                pass


@contextmanager
def transaction(connection: Source) -> Iterator[None]:
    """Commit at the end of the body, roll back if it raises."""
    with mysql_errors():
        connection.begin()
        try:
            yield
            connection.commit()
        except BaseException:
            if connection.open:
                connection.rollback()
            raise


@contextmanager
def locked_tables(connection: Source, *tables: str) -> Iterator[None]:
    """As :func:`transaction`, with nobody else in ``tables``: who wrote there and has not committed is waited for first.

    Meanwhile writers that come later wait for us, :data:`LOCK_TIMEOUT_S` at most; then SourceUnavailable. No other table can
    be used in the body.
    """
    with mysql_errors():
        connection.autocommit(False)
        try:
            execute(connection, f"LOCK TABLES {', '.join(f'{table} WRITE' for table in tables)}")
            yield
            connection.commit()
        finally:
            if connection.open:
                connection.rollback()
                execute(connection, "UNLOCK TABLES")
                connection.autocommit(True)


@contextmanager
def mysql_errors() -> Iterator[None]:
    """Turn the driver's errors into ours. What may pass is SourceUnavailable: no answer, a lock, a full disk."""
    try:
        yield
    except pymysql.err.MySQLError as error:
        number = error.args[0] if error.args else 0
        text = str(error.args[1]) if len(error.args) > 1 else type(error).__name__
        if number == ER.NO_SUCH_TABLE:
            raise TableNotFound(
                f"this database has no outbox: {text}", hint="Call Outbox.create once."
            ) from error
        if number == ER.BAD_DB_ERROR:
            raise DsnInvalid(text, hint=MYSQL_DSN_HINT) from error
        if number in _FORBIDDEN:
            raise SourceForbidden(text) from error
        if number == _BINLOG_ROW_NEEDED:
            raise AttachUnsafe(STATEMENTS_LOGGED, hint=STATEMENTS_LOGGED_HINT) from error
        if number == CR.CR_SERVER_LOST:
            text = "the connection was lost"
        raise SourceUnavailable(f"the database: {text}") from error
