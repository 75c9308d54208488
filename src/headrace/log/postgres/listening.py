"""The one connection that LISTENs: a commit of any server moves this one's view at once, and wakes who waits for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Final

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from headrace.errors import HeadraceError
from headrace.log.postgres.connection import Address, one_line
from headrace.log.postgres.group import CHANNEL
from headrace.log.postgres.pool import Watch, connect_again, hang_up
from headrace.runtime.backoff import Backoff
from headrace.runtime.logs import get_logger

logger = get_logger("log")

HEARTBEAT_S: Final = 5.0
"""An idle line is asked this often whether it still stands; what it then finds is taken as if it had been told."""
ANSWER_S_MAX: Final = 5.0
"""How long one look may take before the line is taken for dead."""
DOWN_DELAY_S_MAX: Final = 2.0
"""While the connection is down the journal is looked at at least this often, over another one if there is one to be had."""


class Listening:
    """A thread with a connection of its own; it comes back by itself, with backoff."""

    def __init__(
        self,
        address: Address,
        watch: Watch,
        *,
        look: Callable[[Connection[TupleRow]], None],
        is_known: Callable[[int, int], bool],
        poll: Callable[[], None],
    ) -> None:
        """``look`` moves the view by what it finds over a connection, ``poll`` by any other way.

        ``is_known(end, oldest)`` tells whether a notification says anything new.
        """
        self._address = address
        self._watch = watch
        self._look = look
        self._is_known = is_known
        self._poll = poll
        self._stopping = threading.Event()
        self._connection: Connection[TupleRow] | None = None
        self.down: str | None = None
        """Why the connection is down, or None."""
        self._thread = threading.Thread(target=self._run, name="headrace-store-listen", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def close(self) -> None:
        """End the thread and its connection."""
        self._stopping.set()
        if self._connection is not None:
            hang_up(self._connection)
        self._thread.join()

    def _run(self) -> None:
        backoff = Backoff(first_s=0.1, delay_s_max=DOWN_DELAY_S_MAX)
        while not self._stopping.is_set():
            try:
                with contextlib.closing(connect_again(self._address)) as connection:
                    self._connection = connection
                    self._follow(connection, backoff)
            except (HeadraceError, psycopg.Error) as error:
                self._went_down(error)
            except Exception as error:
                logger.exception("the listening connection failed")
                self._went_down(error)
            finally:
                self._connection = None
            if not self._stopping.is_set():
                self._poll()
                self._stopping.wait(backoff.next_delay())

    def _went_down(self, error: Exception) -> None:
        if self._stopping.is_set():
            return
        reason = one_line(error) if isinstance(error, psycopg.Error) else str(error)
        if self.down is None:
            logger.warning("the connection that tells of other servers' appends is down", reason=reason)
        self.down = reason

    def _follow(self, connection: Connection[TupleRow], backoff: Backoff) -> None:
        with self._watch.within(connection, ANSWER_S_MAX):
            connection.execute(f"LISTEN {CHANNEL}")
        is_news = True  # whatever came before LISTEN
        while not self._stopping.is_set():
            if is_news:
                with self._watch.within(connection, ANSWER_S_MAX):
                    self._look(connection)
                if self.down is not None:
                    logger.info("the connection that tells of other servers' appends is up")
                    self.down = None
                backoff.reset()
            notices = list(connection.notifies(timeout=HEARTBEAT_S, stop_after=1))
            is_news = not notices or any(self._is_news(notice.payload) for notice in notices)

    def _is_news(self, payload: str) -> bool:
        """The server's own commits are told to it as well, and so is what it met while it appended."""
        end, _, oldest = payload.partition(":")
        return not (end.isdecimal() and oldest.isdecimal() and self._is_known(int(end), int(oldest)))
