"""The log in PostgreSQL as a whole: its journal, and the metadata in the same schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psycopg

from headrace.errors import FeedNotFound, JournalCorrupt, StoreUnavailable
from headrace.log.damage import Damage, DamageKind, Verdict
from headrace.log.metadata.postgres import PostgresMetadata, damaged_rows, remove_damaged
from headrace.log.metadata.rows import RowDamage
from headrace.log.postgres.connection import connect, parse_address, refused
from headrace.log.postgres.examine import examine_tables, frames_of_feed, looking
from headrace.log.postgres.store import PostgresStore
from headrace.runtime.clock import SystemClock
from headrace.runtime.logs import get_logger
from headrace.wire.frame import Frame

logger = get_logger("log")

UNNAMED: Final = "(unnamed)"
"""In an alarm about a feed that nobody can name: one about no feed at all is cleared when every frame can be read."""


def open_store(text: str, segment_bytes: int) -> tuple[PostgresStore, PostgresMetadata]:
    """Open the log at the address ``text``; raises as :class:`PostgresStore` does.

    A feed whose row is damaged is an alarm, from now on whenever one is met.
    """
    store = PostgresStore(parse_address(text), segment_bytes=segment_bytes)
    metadata, clock = PostgresMetadata(store.pool), SystemClock()

    def tell(feed: str, what: str) -> None:
        try:
            metadata.raise_alarm(JournalCorrupt.code, what, clock.wall_ms(), feed=feed or UNNAMED)
        except StoreUnavailable as error:
            logger.error("the metadata database can't be written", detail=error.detail)

    store.on_damaged(tell)
    return store, metadata


def examine_store(text: str, feed: str | None, progress: Callable[[int, int], None] | None) -> Verdict:
    """Look at every row of the log at the address ``text``; with ``feed`` frames of other feeds are passed over.

    Raises FeedNotFound, and as ``looking`` does.
    """
    address = parse_address(text)
    with looking(address) as connection:
        found = examine_tables(connection, str(address), feed=feed, progress=progress)
        if feed is not None and feed not in found.names.values():
            raise FeedNotFound(f"there is no feed {feed} in {address}")
        found.damages += [
            Damage(DamageKind.METADATA, Path(f"headrace_log.{damage.table}"), 0, damage.detail)
            for damage in damaged_rows(connection)
        ]
    return found


def frames_of_store(text: str, feed: str, first: int) -> Iterator[Frame]:
    """Yield a feed's frames from ``first`` on: see ``postgres.examine.frames_of_feed``."""
    with looking(parse_address(text)) as connection:
        yield from frames_of_feed(connection, feed, first)


def damaged_rows_of_store(text: str, *, remove: bool) -> list[RowDamage]:
    """Return the metadata rows that fail their checksum, and remove them if asked to; servers may be at work."""
    address = parse_address(text)
    if not remove:
        with looking(address) as connection:
            return damaged_rows(connection)
    with connect(address) as connection:
        try:
            return remove_damaged(connection)
        except psycopg.Error as error:
            raise refused(error) from error
