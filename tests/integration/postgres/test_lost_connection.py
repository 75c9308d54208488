"""The session is ended before each single statement that the agent's calls send: every one of them says so in our terms."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from headrace.errors import SourceUnavailable
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.copies import CopyRequest
from headrace.publisher.marked import RowPlace
from headrace.publisher.owner import FeedPlace
from headrace.publisher.postgres.source import PostgresSource
from headrace.runtime.dsn import parse_dsn
from tests.postgres import Database
from tests.scale import chosen

FEED, AGENT = "shop", "shop-1"
FAR_FUTURE_MS = 4_102_444_800_000


def relay(source: PostgresSource) -> None:
    """Mark, read and process all rows, then sweep them away."""
    source.claim(FEED, AGENT, FeedPlace("A", 1, 1), 0)
    source.advance(FEED, AGENT, 1, None, 0)
    rows = source.batch(FEED, AGENT)
    source.advance(FEED, AGENT, 1, RowPlace(rows[-1].id, rows[-1].sequence_id), 0)
    source.sweep(FEED, FAR_FUTURE_MS)
    source.sweep(FEED, FAR_FUTURE_MS)


def look_around(source: PostgresSource) -> None:
    """Ask whatever the agent asks besides."""
    source.check_outbox()
    source.has_changed(busy=True)
    source.has_changed(busy=False)
    source.has_changed(busy=False)
    source.schema_version()
    source.mend(FEED)
    source.check()
    source.advice()
    source.standing()
    source.holders()
    source.alarm_of(FEED)
    source.set_alarm(FEED, None)


def copy(source: PostgresSource) -> None:
    """Copy a table's rows."""
    number = source.begin_copy(CopyRequest("item"))
    source.copies()
    while source.copy_chunk(number) is not None:
        source.copy_pending(FEED)


class EndsBefore:
    """Ends the session of ``source`` before its statement number ``at``; counts them."""

    def __init__(self, app: psycopg.Connection[TupleRow], source: PostgresSource, at: int) -> None:
        self.count = 0
        self._at = at
        self._app = app
        self._pid = source.connection.info.backend_pid
        self._execute = source.connection.execute
        source.connection.execute = self.execute  # type: ignore[method-assign]  # the statement is to meet a dead session

    def execute(self, *given: Any, **named: Any) -> Any:
        """Send the statement, to nobody if it is the one."""
        self.count += 1
        if self.count == self._at:
            self._app.execute("SELECT pg_terminate_backend(%s, 10000)", (self._pid,))
        return self._execute(*given, **named)


@pytest.mark.parametrize("calls", chosen([relay, look_around, copy]))
def test_every_statement_may_find_the_session_gone(
    database: Database, calls: Callable[[PostgresSource], None]
) -> None:
    with database.connect() as app:
        app.execute("CREATE TABLE item (id int PRIMARY KEY, n int)")
        app.execute("INSERT INTO item VALUES (1, 1), (2, 2)")
        with closing(PostgresSource(parse_dsn(database.dsn))) as other:
            other.attach(AttachRequest(feed=FEED, tables=("item",), copy=False))
        at, ended = 0, False
        while not ended:
            at += 1
            with closing(PostgresSource(parse_dsn(database.dsn))) as source:
                app.execute("UPDATE item SET n = n + 1")
                ends = EndsBefore(app, source, at)
                try:
                    calls(source)
                    ended = ends.count < at
                except SourceUnavailable:
                    assert ends.count >= at
    assert at > 8
