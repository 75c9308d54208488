"""The store's address, its connections and what each session is held to, and the driver's errors as ours."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from headrace.errors import DsnInvalid, HeadraceError, StoreForbidden, StoreUnavailable, StoreUnsafe
from headrace.runtime.logs import get_logger

logger = get_logger("log")

CONNECT_TIMEOUT_S: Final = 5
"""How long a connection attempt may take."""
IDLE_IN_GROUP_MS: Final = 15_000
"""How long a group may sit between its statements: a server that froze with the journal's end locked loses it then."""
LOCK_MS: Final = 20_000
"""How long a statement waits for the journal's end: longer than whoever froze with it can keep it."""
STATEMENT_MS: Final = 30_000
"""How long any statement may run, save what retention deletes."""
VERSION_MIN: Final = 14

_DURABLE: Final = frozenset({"on", "local", "remote_write", "remote_apply"})
"""Values of ``synchronous_commit`` under which a commit is flushed here before it is answered, or seen by anybody."""

_SETTINGS: Final = {
    # The second statement of a group must see what was committed while the first one waited for the lock.
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "idle_in_transaction_session_timeout": str(IDLE_IN_GROUP_MS),
    "lock_timeout": str(LOCK_MS),
    "statement_timeout": str(STATEMENT_MS),
    "client_encoding": "UTF8",
    "search_path": "pg_catalog",
    "jit": "off",
}

_LOOK: Final = """
SELECT pg_backend_pid(), current_setting('synchronous_commit'), current_setting('fsync'),
    current_setting('full_page_writes'), current_setting('server_version_num')::integer / 10000"""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the store is. ``conninfo`` may hold a password and shows nowhere; ``str()`` is for people."""

    conninfo: str = field(repr=False)
    shown: str

    def __str__(self) -> str:
        return self.shown


def parse_address(text: str) -> Address:
    """Read ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``; DsnInvalid, without any of its text, for anything else."""
    try:
        given = conninfo_to_dict(text)
    except psycopg.ProgrammingError:
        given = {"host": "@"}
    host = str(given.get("host") or "localhost")
    if "@" in host:
        raise DsnInvalid(
            "the store's address can't be read",
            hint="Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE. In a password @ is %40, / is %2F, % is %25.",
        )
    conninfo = make_conninfo(
        text,
        application_name=str(given.get("application_name") or "headrace log"),
        connect_timeout=CONNECT_TIMEOUT_S,
        # Of several hosts, or of a name that moves with a failover, only the one that takes writes is the store.
        target_session_attrs="read-write",
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
    )
    port, name = given.get("port") or 5432, given.get("dbname") or given.get("user") or ""
    return Address(conninfo, f"postgresql://{host}:{port}/{name}")


def connect(address: Address) -> Connection[TupleRow]:
    """Open a session in autocommit mode: transactions are begun by name only.

    Raises DsnInvalid, StoreForbidden, StoreUnsafe (it would not make commits durable), StoreUnavailable.
    """
    try:
        connection = psycopg.connect(address.conninfo, autocommit=True)
    except psycopg.Error as error:
        raise _not_connected(address, error) from error
    try:
        _hold_to_settings(connection)
    except psycopg.Error as error:
        connection.close()
        raise unavailable(error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _hold_to_settings(connection: Connection[TupleRow]) -> None:
    pid, synchronous_commit, _, _, version = fetch_one(connection, _LOOK)
    if synchronous_commit not in _DURABLE:
        raise StoreUnsafe(
            f"synchronous_commit is {synchronous_commit} there: a crash of PostgreSQL could take back what was acknowledged",
            hint="ALTER ROLE ... SET synchronous_commit = on, or take the setting out of where it is turned off.",
        )
    if version < VERSION_MIN:
        raise StoreUnsafe(
            f"the store needs PostgreSQL {VERSION_MIN} or newer; this is {version}", hint="Upgrade it."
        )
    if pid != connection.info.backend_pid:
        raise StoreUnsafe(
            "a connection pooler stands before PostgreSQL: it keeps no session for LISTEN and for settings",
            hint="Give the address of PostgreSQL itself; the server pools its connections by itself.",
        )
    # Set here, the value outlives a later change of the configuration: no session that writes can turn asynchronous.
    settings = {**_SETTINGS, "synchronous_commit": synchronous_commit}
    connection.execute(
        "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS given (name, value)",
        (list(settings), list(settings.values())),
    )


def warn_of_lost_crashes(connection: Connection[TupleRow]) -> None:
    """Say loudly if the whole cluster may lose data in a crash of its machine; PostgreSQL itself is trusted there."""
    _, _, fsync, full_page_writes, _ = fetch_one(connection, _LOOK)
    if fsync == "off":
        logger.error(
            "fsync is off in PostgreSQL: a power failure there can lose or damage everything that was acknowledged"
        )
    if full_page_writes == "off":
        logger.error(
            "full_page_writes is off in PostgreSQL: a power failure there can damage everything that was acknowledged"
        )


_WRONG_ADDRESS: Final = (
    "does not exist", "authentication failed", "no password supplied", "is not permitted to log in", "pg_hba.conf",
)  # fmt: skip
"""How PostgreSQL says that no repetition will help: errors of a connection that was not made have no code."""


def _not_connected(address: Address, error: psycopg.Error) -> HeadraceError:
    text = one_line(error)
    if any(words in text for words in _WRONG_ADDRESS):
        return DsnInvalid(
            f"{address} is not opened: {text}", hint="Check host, database, role and password of --store."
        )
    return StoreUnavailable(f"{address} can't be reached: {text}")


def unavailable(error: psycopg.Error) -> HeadraceError:
    """Return what a failed statement means to who waits for it: nothing was written, and it may pass."""
    return StoreUnavailable(f"PostgreSQL does not do it: {one_line(error)}")


def refused(error: psycopg.Error) -> HeadraceError:
    """Return what a failed statement means while the store is opened."""
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return StoreForbidden(f"PostgreSQL refuses this role: {one_line(error)}")
    return unavailable(error)


def one_line(error: psycopg.Error) -> str:
    """Return the driver's message on one line."""
    return " ".join((error.diag.message_primary or str(error)).split())


def fetch_one(connection: Connection[TupleRow], query: Any, values: Any = None) -> tuple[Any, ...]:
    """Return the one row that ``query`` gives."""
    row = connection.execute(query, values).fetchone()
    assert row is not None  # noqa: S101  # the query gives exactly one row
    return row
