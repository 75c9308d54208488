"""Connections to the application's database, their settings, and the driver's errors as ours. Every transaction is short."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psycopg
from psycopg import Connection, IsolationLevel, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from headrace.errors import DsnInvalid, SourceForbidden, SourceUnavailable
from headrace.runtime.dsn import Dsn

T = TypeVar("T")


class Source(Connection[TupleRow]):
    """A connection to the source. ``pooled``: a pooler stands in between, so no setting outlives a transaction."""

    pooled: bool = False


CONNECT_TIMEOUT_S: Final = 10
"""How long a connection attempt may take before the caller backs off and tries again, unless the DSN says it."""

UNANSWERED_MS_MAX: Final = 25_000
"""How long what we sent may stay without the network's acknowledgement. Keep-alives find a dead line only where it is
idle: a statement on its way would be sent again for a quarter of an hour."""

DDL_LOCK_MS: Final = 200
"""How long DDL waits for a table at once: so long at most do the application's writers queue behind it."""

DDL_PATIENCE_S: Final = 60.0
"""How long DDL is tried again before it gives up, naming the session in its way."""

DDL_PAUSE_S: Final = (0.2, 1.5)
"""How long it leaves the table alone between two tries, drawn anew each time."""

STATEMENT_LOCK_MS: Final = 5_000
"""How long any other statement of ours waits for a lock. Only our own tables are ever waited for."""

SETTINGS: Final = {
    "application_name": "headrace",
    # What a value's text looks like; the functions in the database set the same.
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lc_monetary": "C",
    "client_encoding": "UTF8",
    # A row may be posted only once it is durable. Our commit flushes every commit before it, also of an application that
    # has synchronous_commit off.
    "synchronous_commit": "on",
    "standard_conforming_strings": "on",
    "lock_timeout": str(STATEMENT_LOCK_MS),
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "60000",
    # All our statements go by an index. A table that was never analysed must not be read whole because of a bad guess.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
"""Settings of each session. Sent as statements, not as start-up options, which poolers refuse."""


def connect(dsn: Dsn, *, application_name: str = "headrace") -> Source:
    """Open the database that ``dsn`` names, in autocommit mode: transactions are begun by name only.

    Raises DsnInvalid (malformed, unknown database), SourceForbidden (the role may not), SourceUnavailable.
    """
    address = f"postgresql://{dsn.rest}"
    given = _read_address(address)
    with postgres_errors(connecting=True):
        # Of several hosts, or of a name that moves with a failover, only the one that takes writes is a source.
        connection = Source.connect(
            make_conninfo(address, target_session_attrs=given.get("target_session_attrs", "read-write")),
            autocommit=True,
            connect_timeout=given.get("connect_timeout", CONNECT_TIMEOUT_S),
            prepare_threshold=None,  # a pooler may give each transaction another session
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=UNANSWERED_MS_MAX,
        )
        try:
            # A pooler hands out process ids of its own.
            pid = fetch_one(connection, "SELECT pg_backend_pid()")[0]
            connection.pooled = pid != connection.info.backend_pid
            if not connection.pooled:  # there they would go on to whoever gets that session next
                connection.execute(_settings("SET", application_name))
        except BaseException:
            connection.close()
            raise
    return connection


def _read_address(address: str) -> Mapping[str, Any]:
    """Return the parts of a DSN; DsnInvalid without any of its text: what is taken for a host may be a password's end."""
    try:
        given = conninfo_to_dict(address)
    except psycopg.ProgrammingError:
        given = {"host": "@"}
    if "@" in str(given.get("host", "")):
        raise DsnInvalid(
            "the DSN can't be read",
            hint="Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE. In a password @ is %40, / is %2F, % is %25.",
        )
    return given


def _settings(verb: str, application_name: str) -> sql.Composed:
    """Return the statements that make our settings; several in one, which need no snapshot."""
    settings = {**SETTINGS, "application_name": application_name}
    return sql.SQL("; ").join(
        sql.SQL("{} {} = {}").format(sql.SQL(verb), sql.Identifier(name), sql.Literal(value))
        for name, value in settings.items()
    )


_IN_THE_WAY: Final = """
SELECT a.pid, a.usename, a.application_name, a.backend_type, a.state,
    round(extract(epoch FROM clock_timestamp() - a.xact_start))::bigint, l.relation::regclass::text, l.mode,
    coalesce(a.query ILIKE 'vacuum%', false)
FROM pg_stat_activity AS a LEFT JOIN LATERAL (
    SELECT k.relation, k.mode FROM pg_locks AS k JOIN pg_class AS c ON c.oid = k.relation AND c.relkind IN ('r', 'p')
    WHERE k.pid = a.pid AND k.granted AND k.locktype = 'relation' AND k.mode NOT IN ('AccessShareLock', 'RowShareLock')
        AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND c.relnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname IN ('pg_catalog', 'headrace'))
    ORDER BY k.relation LIMIT 1
) AS l ON true
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL
    AND (l.relation IS NOT NULL OR a.backend_type = 'client backend')
ORDER BY l.relation IS NULL, a.xact_start LIMIT 1"""


@contextmanager
def transaction(connection: Source, *, repeatable_read: bool = False) -> Iterator[None]:
    """Run the body in one transaction: commits at its end, rolls back if it raises. Raises our errors."""
    with postgres_errors():
        connection.isolation_level = (
            IsolationLevel.REPEATABLE_READ if repeatable_read else IsolationLevel.READ_COMMITTED
        )
        with connection.transaction():
            if connection.pooled:
                connection.execute(_settings("SET LOCAL", "headrace"))
            yield


def run_ddl(connection: Source, body: Callable[[], T], *, patience_s: float = DDL_PATIENCE_S) -> T:
    """Run ``body`` in one transaction whose locks are waited for but shortly, again and again until it goes through.

    An idle transaction of the application holds such a lock for long; waiting for it would queue every later statement on
    the table behind us. So we wait :data:`DDL_LOCK_MS`, give way, and come back. ``body`` must be repeatable. Raises
    SourceUnavailable, naming the session in the way, once ``patience_s`` is over.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            with transaction(connection):
                connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(DDL_LOCK_MS)))
                return body()
        except SourceUnavailable as trouble:
            in_the_way = isinstance(
                trouble.__cause__, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected
            )
            if not in_the_way:
                raise
            if time.monotonic() >= deadline:
                raise SourceUnavailable(
                    f"a table is locked by others for longer than {patience_s:.0f} s; nothing was changed. "
                    f"{describe_in_the_way(connection)}",
                    hint="End that transaction, or try again when it is over.",
                ) from None
            time.sleep(random.uniform(*DDL_PAUSE_S))


def array_of(numbers: Iterable[int | str]) -> str:
    """Return the text of a PostgreSQL array of numbers; cast it in the statement. Far quicker than the driver's lists."""
    return "{" + ",".join(map(str, numbers)) + "}"


def describe_in_the_way(connection: Source) -> str:
    """Return a sentence about the session that has locked a table for longest; empty if there is none.

    Sessions that hold a table lock which DDL or a copy may have to wait for (a writer's, a VACUUM's) come before those that
    merely have a transaction open.
    """
    with postgres_errors():
        row = connection.execute(_IN_THE_WAY).fetchone()
    if row is None:
        return ""
    pid, role, application, backend, state, age, table, mode, vacuums = row
    if backend == "autovacuum worker":
        who = f"the autovacuum worker {pid}"
    else:
        named = f" ({application})" if application else ""
        doing = "runs VACUUM" if vacuums else state or "not to be seen"
        who = f"session {pid}{named}, role {role}, {doing}"
    if table is None:
        return f"The oldest transaction is that of {who}, {age} s old."
    return f"In the way for longest: {who}, which holds {mode} on {table}; its transaction is {age} s old."


@contextmanager
def postgres_errors(*, connecting: bool = False) -> Iterator[None]:
    """Turn the driver's errors into ours: what can pass, what the role may not, what is wrong with the address."""
    try:
        yield
    except psycopg.Error as error:
        raise _ours(error, connecting=connecting) from error


_WRONG_ADDRESS: Final = (
    "does not exist",
    "authentication failed",
    "no password supplied",
    "is not permitted to log in",
)
"""How a server says that no repetition will help: errors of a connection that was not made have no code."""


def _ours(error: psycopg.Error, *, connecting: bool) -> DsnInvalid | SourceForbidden | SourceUnavailable:
    text = " ".join((error.diag.message_primary or str(error)).split())
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return SourceForbidden(
            f"the database refuses this role: {text}",
            hint="headrace publisher grants prints the SQL that is needed.",
        )
    wrong_address = (
        psycopg.errors.InvalidCatalogName,
        psycopg.errors.InvalidPassword,
        psycopg.errors.InvalidAuthorizationSpecification,
    )
    if isinstance(error, wrong_address) or (connecting and any(words in text for words in _WRONG_ADDRESS)):
        return DsnInvalid(
            f"the DSN does not open a database: {text}", hint="Check host, database, role and password."
        )
    return SourceUnavailable(f"the database does not do it: {text}", hint=error.diag.message_hint)


def fetch_one(connection: Source, query: Any, names: Any = None) -> tuple[Any, ...]:
    """Return the one row that ``query`` gives."""
    row = connection.execute(query, names).fetchone()
    assert row is not None  # noqa: S101  # the query gives exactly one row
    return row
