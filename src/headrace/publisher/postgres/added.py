"""Which feeds have ever had rows of ``Outbox.add``: kept when those rows are swept, for they are in no attached table."""

from __future__ import annotations

from typing import Final

import psycopg

from headrace.errors import SourceUnavailable
from headrace.publisher.outbox.postgres import create_added, has_added
from headrace.publisher.postgres.connection import Source

_WAS_ADDED: Final = "SELECT FROM headrace.headrace_added_feed WHERE feed = %s"
_NOTE: Final = "INSERT INTO headrace.headrace_added_feed (feed) VALUES (%s) ON CONFLICT (feed) DO NOTHING"
_ATTACHED: Final = "SELECT FROM headrace.headrace_attached WHERE feed = %s LIMIT 1"


def was_added(connection: Source, feed: str) -> bool:
    """Return whether rows of ``Outbox.add`` were swept from ``feed``."""
    return has_added(connection) and connection.execute(_WAS_ADDED, (feed,)).fetchone() is not None


def note_added(connection: Source, feed: str) -> None:
    """Note that rows of ``Outbox.add`` are swept from ``feed``, in the caller's transaction.

    An outbox of the first releases has no place for it, and the agent's role may not be allowed to make one. Then a feed
    with attached tables keeps its rows, or its snapshots would lack those objects: SourceUnavailable. Of another feed no
    snapshot is made without a query, so nothing is lost.
    """
    if not has_added(connection):
        try:
            with connection.transaction():
                create_added(connection)
        except psycopg.errors.InsufficientPrivilege:
            if connection.execute(_ATTACHED, (feed,)).fetchone() is None:
                return
            raise SourceUnavailable(
                f"{feed}: its rows of Outbox.add are not swept, because this role may not make headrace_added_feed",
                hint="Let a role that owns the outbox run headrace publisher attach or Outbox.create once more.",
            ) from None
    connection.execute(_NOTE, (feed,))
