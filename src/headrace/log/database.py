"""The log in PostgreSQL as a whole: its journal, and the metadata in the same schema."""

from __future__ import annotations

from headrace.log.metadata.postgres import PostgresMetadata
from headrace.log.postgres.connection import parse_address
from headrace.log.postgres.store import PostgresStore


def open_store(text: str, segment_bytes: int) -> tuple[PostgresStore, PostgresMetadata]:
    """Open the log at the address ``text``; raises as :class:`PostgresStore` does."""
    store = PostgresStore(parse_address(text), segment_bytes=segment_bytes)
    return store, PostgresMetadata(store.pool)
