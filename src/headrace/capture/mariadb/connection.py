"""Connections to the captured MariaDB, which never write, and the driver's errors as ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

import pymysql
from pymysql.constants import CR, ER
from pymysql.cursors import Cursor

from headrace.errors import (
    BinlogInvalid,
    DsnInvalid,
    HeadraceError,
    PositionPurged,
    SourceForbidden,
    SourceLocked,
    SourceReplaced,
    SourceUnavailable,
    SourceUnfit,
    TableNotFound,
)
from headrace.runtime.dsn import Dsn
from headrace.runtime.mysql_address import ANSWER_TIMEOUT_S, MYSQL_DSN_HINT, read_mysql_address
from headrace.runtime.mysql_connection import DriverConnection, MysqlConnection

Source = DriverConnection

LOCK_TIMEOUT_S: Final = 5
"""How long a query waits for a table whose shape is being changed; then SourceUnavailable."""

IDLE_TIMEOUT_S: Final = 86_400
"""The server keeps an idle connection for so long, whatever its own setting."""

RIGHTS_HINT: Final = "headrace capture check names each right that is missing, as the GRANT that gives it."

_SETTINGS: Final = (
    # What a consistent snapshot needs; whatever the server's default is.
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET SESSION TRANSACTION READ ONLY",
    "SET SESSION time_zone = '+00:00'",
    # No mode may change what a literal, a name or a CHAR's text looks like.
    "SET SESSION sql_mode = ''",
    "SET SESSION sql_quote_show_create = 1",
    f"SET SESSION lock_wait_timeout = {LOCK_TIMEOUT_S}",
    f"SET SESSION wait_timeout = {IDLE_TIMEOUT_S}",
)
_SLAVE_SAME_ID: Final = 4052  # MariaDB's ER_SLAVE_SAME_ID
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
_PURGED: Final = ("Could not find GTID state", "have been purged", "Could not find first log file")
_REPLACED: Final = ("not in the master's binlog", "is missing the GTID")


def connect(dsn: Dsn, answer_timeout_s: int = ANSWER_TIMEOUT_S) -> Source:
    """Open a session for questions: autocommit, read-only, in UTC, utf8mb4. The DSN may name a database or none.

    Raises DsnInvalid (malformed, unknown database), SourceForbidden, SourceUnavailable, SourceUnfit (it is no MariaDB).
    """
    address = read_mysql_address(dsn, answer_timeout_s, database=False)
    with source_errors():
        try:
            connection = MysqlConnection(**address, charset="utf8mb4", autocommit=True)
        except OSError as error:  # the driver's own errors are none: it reads the file before it connects
            raise DsnInvalid(
                f"ssl-ca can't be used: {error.strerror or error}", hint=MYSQL_DSN_HINT
            ) from None
        except UnicodeError:
            raise DsnInvalid("the DSN's host is no host name", hint=MYSQL_DSN_HINT) from None
        try:
            ((version,),) = fetch(connection, "SELECT VERSION()")
            if "mariadb" not in str(version).lower():
                raise SourceUnfit(
                    f"the server is no MariaDB but {version}: capture reads MariaDB's binlog alone",
                    hint="Capture from MariaDB 10.11 or newer; MySQL's GTIDs and events are others.",
                )
            for setting in _SETTINGS:
                execute(connection, setting)
        except BaseException:
            connection.close()
            raise
    return connection


def execute(connection: Source, query: str, values: Sequence[Any] = ()) -> None:
    """Run one statement. The driver's errors come as they are: see :func:`source_errors`."""
    with closing(connection.cursor(Cursor)) as cursor:
        cursor.execute(query, values or None)


def fetch(connection: Source, query: str, values: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
    """Run one query and return all its rows. The driver's errors come as they are: see :func:`source_errors`."""
    with closing(connection.cursor(Cursor)) as cursor:
        cursor.execute(query, values or None)
        return cursor.fetchall()


def definition_of(connection: Source, table: str) -> str:
    """Return the CREATE statement of a table, given as quoted SQL; bytes of a default that are no UTF-8 are replaced."""
    encoding, connection.encoding = connection.encoding, "latin1"  # which has a letter for each byte
    try:
        with closing(connection.cursor(Cursor)) as cursor:
            statement: Any = f"SHOW CREATE TABLE {table}".encode()  # the driver takes bytes too
            cursor.execute(statement)
            ((_, definition, *_),) = cursor.fetchall()
    finally:
        connection.encoding = encoding
    return str(definition).encode("latin1").decode(errors="replace")


@contextmanager
def transaction(connection: Source, opening: str) -> Iterator[None]:
    """Begin with ``opening``, and end whatever happens: nothing is ever written. The driver's errors come as they are."""
    execute(connection, opening)
    try:
        yield
    finally:
        if connection.open:
            connection.rollback()


@contextmanager
def held(connection: Source, table: str, *, wait_s: int = LOCK_TIMEOUT_S) -> Iterator[None]:
    """Let a table, given as quoted SQL, keep its shape, as every reader does. The driver's errors come as they are."""
    with transaction(connection, "START TRANSACTION READ ONLY"):
        select = f"SELECT 1 FROM {table} LIMIT 0"  # noqa: S608 - every name in it is quoted
        fetch(connection, f"SET STATEMENT lock_wait_timeout = {wait_s} FOR {select}")
        yield


@contextmanager
def source_errors() -> Iterator[None]:
    """Turn the driver's errors into ours. What may pass is SourceUnavailable: no answer, a lock, too many connections."""
    try:
        yield
    except pymysql.err.MySQLError as error:
        number = error.args[0] if error.args else 0
        text = str(error.args[1]) if len(error.args) > 1 else type(error).__name__
        raise as_ours(number, text) from error


def as_ours(number: int, text: str) -> HeadraceError:
    """Return our error for one of the server's or the driver's: its number and its text."""
    if number == ER.MASTER_FATAL_ERROR_READING_BINLOG:
        return _binlog_error(text)
    if number in _FORBIDDEN:
        return SourceForbidden(text, hint=RIGHTS_HINT)
    if number == ER.BAD_DB_ERROR:
        return DsnInvalid(text, hint=MYSQL_DSN_HINT)
    if number == ER.NO_SUCH_TABLE:
        return TableNotFound(text, hint="It was dropped or renamed meanwhile, or the name is wrong.")
    if number == ER.LOCK_WAIT_TIMEOUT:
        return SourceLocked(f"the database: {text}")
    if number == _SLAVE_SAME_ID:
        return SourceUnavailable(
            "another replica, or another capture, has connected with this replica-server-id, and the server keeps the newer",
            hint="Give each capture of a server, and each of its replicas, an id of its own: replica-server-id.",
        )
    if number == CR.CR_SERVER_LOST:
        text = "the connection was lost"
    return SourceUnavailable(f"the database: {text}")


def _binlog_error(text: str) -> HeadraceError:
    """One number stands for all that can be wrong with a place in the binlog: the text alone tells which."""
    if any(words in text for words in _PURGED):
        return PositionPurged(f"the server no longer has the binlog that comes next: {text}")
    if any(words in text for words in _REPLACED):
        return SourceReplaced(
            f"the server never had what the feed holds, or has gone another way since: {text}"
        )
    return BinlogInvalid(f"the server can't send its binlog: {text}")
