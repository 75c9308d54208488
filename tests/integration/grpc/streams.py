"""What the tests of gRPC share: halves to append, and what a stream has given, read with a bound on the wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from headrace.client.log_append import Writes
from headrace.client.wal_stream import WalClient
from headrace.entries.entry import Change
from headrace.entries.lsn import Lsn
from headrace.wire.batch import Heartbeat, ReceivedBatch
from headrace.wire.entry import encode_half
from headrace.wire.generated import wal_pb2
from tests.servers import Feed

WAIT_S_MAX = 60.0


def halves(first: int, last: int, *, value: bytes = b"") -> list[bytes]:
    """Entries ``first`` … ``last``, each with its number in key and value."""
    return [
        encode_half(Change(b'{"number":%d}' % number + value, key=b"key-%d" % number))
        for number in range(first, last + 1)
    ]


def writes(feed: Feed) -> Writes:
    return Writes(feed.name, feed.agent)


async def read_until(
    wal: WalClient, start: Lsn | None, last: Lsn, *, batch_entries: int = 0
) -> list[ReceivedBatch]:
    """The batches of a stream from ``start`` on, up to the one that holds ``last``."""
    found: list[ReceivedBatch] = []
    async with (
        asyncio.timeout(WAIT_S_MAX),
        aclosing(wal.subscribe(start, batch_entries=batch_entries)) as items,
    ):
        async for item in items:
            if isinstance(item, ReceivedBatch):
                found.append(item)
                if item.last_lsn >= last:
                    return found
    raise AssertionError("the stream ended")


async def next_batch(items: AsyncGenerator[ReceivedBatch | Heartbeat, None]) -> ReceivedBatch:
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            item = await anext(items)
            if isinstance(item, ReceivedBatch):
                return item


def entries_of(batches: list[ReceivedBatch], feed: Feed) -> list[wal_pb2.WalEntry]:
    """The entries of one feed."""
    entries = [entry for batch in batches for entry in batch.messages()]
    return [entry for entry in entries if entry.key_prefix.endswith(f":{feed.name}:")]
