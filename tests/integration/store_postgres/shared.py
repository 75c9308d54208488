"""Stores and logs on one PostgreSQL, as several servers would have them; and what their journal holds in the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from headrace.log.log import Log
from headrace.log.opening import parse_store
from headrace.log.postgres.connection import parse_address
from headrace.log.postgres.store import PostgresStore
from tests.bench import Bench
from tests.postgres import Database

SEGMENT_BYTES = 1 << 20


@contextmanager
def opened(address: str, *, segment_bytes: int = SEGMENT_BYTES) -> Iterator[Bench]:
    """A store on the bench, closed at the end."""
    store = PostgresStore(parse_address(address), segment_bytes=segment_bytes)
    try:
        yield Bench(store)
    finally:
        store.close()


@asynccontextmanager
async def started(address: str) -> AsyncIterator[Log]:
    """A started log, as a server has it."""
    log = Log.open(Path("unused"), store=parse_store(address))
    await log.start()
    try:
        yield log
    finally:
        await log.close()


def through(address: str, port: int) -> str:
    """The same database by way of ``port`` of this machine: a proxy's."""
    parts = urlsplit(address)
    return address.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{port}")


def deafen(store: PostgresStore) -> None:
    """Let a store hear of nothing any more: what it knows of others' appends is then as old as it gets."""
    store._listening.close()
    store._listening.down = None


def connections(database: Database) -> int:
    """How many connections Headrace has to the database."""
    ((found,),) = database.cluster.sql(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'headrace log'"
        f" AND datname = '{database.name}'"
    )
    return int(found)
