"""A bounded pool of connections, and a watch that ends calls which a dead line would keep waiting for ever."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import psycopg
from psycopg import Connection
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from headrace.errors import Stopped, StoreUnavailable
from headrace.log.postgres.connection import STATEMENT_MS, Address, connect, unavailable

T = TypeVar("T")

CONNECTIONS_MAX: Final = 8
"""Connections for reading and for metadata. With the writer's and the listening one a server has two more."""
WAIT_S_MAX: Final = 5.0
"""How long a caller waits for a connection of the pool."""
CALL_S_MAX: Final = STATEMENT_MS / 1000 + 10
"""After so long without an answer the line is taken for dead: PostgreSQL itself ends a statement earlier."""
_WATCH_EVERY_S: Final = 0.5


class Watch:
    """Shuts the socket of a connection whose call takes too long, so that the call fails instead of hanging."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._due: dict[int, tuple[float, Connection[TupleRow]]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-store-watch", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def within(self, connection: Connection[TupleRow], seconds: float = CALL_S_MAX) -> Iterator[None]:
        """Bound the calls that the body makes on ``connection``."""
        with self._guard:
            self._due[id(connection)] = (time.monotonic() + seconds, connection)
        try:
            yield
        finally:
            with self._guard:
                self._due.pop(id(connection), None)

    def close(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_WATCH_EVERY_S):
            now = time.monotonic()
            with self._guard:
                for due, connection in self._due.values():
                    if due < now:
                        hang_up(connection)


def hang_up(connection: Connection[TupleRow]) -> None:
    """Shut the connection's socket from any thread: a call that waits on it fails at once."""
    with (
        contextlib.suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.pgconn.socket)) as end,
    ):
        end.shutdown(socket.SHUT_RDWR)


class Pool:
    """Connections that are made when they are needed and kept for the next caller."""

    def __init__(self, address: Address, watch: Watch, *, connections_max: int = CONNECTIONS_MAX) -> None:
        self._address = address
        self._watch = watch
        self._free = threading.BoundedSemaphore(connections_max)
        self._guard = threading.Lock()
        self._idle: list[Connection[TupleRow]] = []
        self._closed = False

    def run(self, work: Callable[[Connection[TupleRow]], T]) -> T:
        """Return what ``work`` makes of a connection in autocommit mode; StoreUnavailable if PostgreSQL can't do it.

        ``work`` may be called twice, because an idle connection may have died unnoticed: it must be repeatable.
        """
        if not self._free.acquire(timeout=WAIT_S_MAX):
            raise StoreUnavailable("all connections to PostgreSQL are in use")
        try:
            idle = self._take_idle()
            if idle is not None:
                try:
                    return self._use(idle, work)
                except psycopg.OperationalError:
                    if not idle.closed:
                        raise
                    self._drop_idle()  # they are most likely as dead as this one
            return self._use(connect_again(self._address), work)
        except psycopg.Error as error:
            raise unavailable(error) from error
        finally:
            self._free.release()

    def close(self) -> None:
        """Close what is idle now, and what is in use as soon as it is given back."""
        self._closed = True
        self._drop_idle()

    def _take_idle(self) -> Connection[TupleRow] | None:
        with self._guard:
            return self._idle.pop() if self._idle else None

    def _drop_idle(self) -> None:
        with self._guard:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _use(self, connection: Connection[TupleRow], work: Callable[[Connection[TupleRow]], T]) -> T:
        try:
            with self._watch.within(connection):
                return work(connection)
        finally:
            if not self._keep(connection):
                connection.close()

    def _keep(self, connection: Connection[TupleRow]) -> bool:
        """One that is in the middle of something would hand its transaction to the next caller."""
        with self._guard:
            fit = not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE
            if fit and not self._closed:
                self._idle.append(connection)
            return fit and not self._closed


def connect_again(address: Address) -> Connection[TupleRow]:
    """Connect while the server runs: what would have kept it from starting is now a store that is away."""
    try:
        return connect(address)
    except Stopped as error:
        raise StoreUnavailable(error.detail, hint=error.advice) from error
