"""When the agent is asleep, and what wakes it.

A NOTIFY in every transaction would make the application's commits wait for each other. So, awake, the agent polls. With
nothing to do it says in the database until when it sleeps (a sequence: everyone sees its value at once, committed or not),
and only then do commits notify. The trap: a transaction that wrote its rows *before* that will not notify when it commits.
So the agent remembers which transactions were open just after it said so, and goes on polling until they are over.
An agent that dies asleep stops costing anything when its time is over.

A transaction that has notified can't be prepared (two-phase commit). Where the database allows that, the agent never sleeps.
"""

from __future__ import annotations

import time
import uuid
from typing import Final

from headrace.publisher.postgres.connection import Source, connect, fetch_one, postgres_errors
from headrace.publisher.postgres.look import NOWHERE, may_wait
from headrace.publisher.postgres.looking import poll
from headrace.runtime.dsn import Dsn
from headrace.runtime.logs import get_logger

CHANNEL: Final = "headrace"

ASLEEP_FOR_S: Final = 30
"""For how long the agent says that it sleeps: so long at most do commits notify an agent that died."""

SAY_AGAIN_S: Final = 10.0
"""How often it says so again."""

PROBE_S: Final = 2.0
"""How long a notification may take to come before LISTEN counts as not holding."""

_SLEEP: Final = """
SELECT setval('headrace.headrace_asleep_until', extract(epoch FROM clock_timestamp())::bigint + %s)"""
_WAKE: Final = "SELECT setval('headrace.headrace_asleep_until', 1, false)"  # it has no last value then


class Sleeper:
    """The sleep of one agent. All calls come from the thread that uses ``connection``."""

    def __init__(self, connection: Source, dsn: Dsn) -> None:
        self._connection = connection
        self._dsn = dsn
        self._listens: bool | None = None
        self._asleep = False
        self._said_at = 0.0
        self._still_open = NOWHERE
        self._log = get_logger("publisher")
        reason = why_polling(connection)
        if reason:
            self._listens = False
            self._tell_polling(reason)

    @property
    def is_asleep(self) -> bool:
        """Whether commits notify."""
        return self._asleep

    @property
    def listens(self) -> bool | None:
        """Whether notifications reach this connection; None while that was not tried."""
        return self._listens

    def fall_asleep(self) -> bool:
        """Say that the agent sleeps; False if it can't, because notifications don't reach it."""
        if self._listens is None:
            self._listens = self._probe()
        if not self._listens:
            return False
        self._say()
        self._still_open = poll(self._connection).still_open
        self._asleep = True
        return True

    def wake(self) -> None:
        """Say that the agent is awake; nothing if it is."""
        if self._asleep:
            self._asleep = False
            self._still_open = NOWHERE
            with postgres_errors():
                self._connection.execute(_WAKE)

    def is_called(self) -> bool:
        """Return whether something was committed since the agent fell asleep; asks the database only while it must."""
        with postgres_errors():
            called = any(True for _ in self._connection.notifies(timeout=0))
            if self._still_open.late or self._still_open.open_from < self._still_open.open_to:
                now = poll(self._connection)
                called = called or may_wait(self._still_open, 0, now.snapshot)
            if time.monotonic() - self._said_at >= SAY_AGAIN_S:
                self._say()
        return called

    def _say(self) -> None:
        with postgres_errors():
            fetch_one(self._connection, _SLEEP, (ASLEEP_FOR_S,))
        self._said_at = time.monotonic()

    def _probe(self) -> bool:
        """Return whether a notification that another connection sends arrives here while this one is idle."""
        token = str(uuid.uuid4())
        with postgres_errors():
            self._connection.execute(f"LISTEN {CHANNEL}")
            with connect(self._dsn, application_name="headrace probe") as other:
                other.execute("SELECT pg_notify(%s, %s)", (CHANNEL, token))
            for notification in self._connection.notifies(timeout=PROBE_S):
                if notification.payload == token:
                    return True
        self._tell_polling("LISTEN does not hold: a notification did not arrive")
        return False

    def _tell_polling(self, why: str) -> None:
        self._log.warning(
            "the agent polls, and commits never notify",
            reason=why,
        )


def why_polling(connection: Source) -> str:
    """Return why an agent on this connection can't sleep, as far as that is known beforehand; empty if it may."""
    if connection.pooled:
        return "LISTEN does not hold: a pooler stands between agent and database"
    with postgres_errors():
        allowed = fetch_one(connection, "SELECT current_setting('max_prepared_transactions')::integer")[0]
    return (
        ""
        if allowed == 0
        else "two-phase commit is allowed there, and a transaction that notified can't be prepared"
    )
