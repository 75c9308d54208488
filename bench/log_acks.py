"""Acks of subscribers of the stream over all feeds, inside the process: from one, from 64 at once, and beside 20,000 others.

An ack is answered once the subscriber's row is on disk; those that come while a transaction is under way share the next. The
bare limit is the same transactions on SQLite without anything around it: as many rows replaced in each as subscribers ack.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing, closing
from pathlib import Path

from bench.support.harness import Bench, Figures, arguments, publish
from headrace.entries.lsn import Lsn
from headrace.log.log import Log, LogSettings
from headrace.log.metadata.rows import SUBSCRIBER, SubscriberRow
from headrace.log.metadata.sqlite import METADATA_NAME
from headrace.server.streams.subscriptions import Subscriber, Subscriptions
from headrace.wire.batch import Batch
from tests.bench import append, register

ARMS = ("bare-sqlite", "headrace")


async def measure(arm: str, acking: int, known: int, seconds: float) -> Figures:
    """Ack from so many subscribers for so long, while the table knows so many others."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        at = await _fill(folder, known)
        rows = [SubscriberRow("bench", f"acks-{number}", str(at), 1) for number in range(acking)]
        took = await _ack(folder, rows, seconds) if arm == "headrace" else _commit(folder, rows, seconds)
    return {"acks/s": len(took) / seconds, "p50-ms": statistics.median(took) * 1000}


async def _fill(folder: Path, known: int) -> Lsn:
    """Make a log with one entry, whose LSN is returned, and the rows of those that are known already."""
    log = Log.open(folder, settings=LogSettings(disk_reserve_bytes=0))
    await log.start()
    await log.register(register("f"))
    at = (await log.append(append("f", "x"))).last_lsn
    await log.close()
    now_ms = time.time_ns() // 1_000_000
    with closing(sqlite3.connect(folder / METADATA_NAME)) as database, database:
        _replace(
            database, [SubscriberRow("bench", f"known-{number}", str(at), now_ms) for number in range(known)]
        )
    return at


def _replace(database: sqlite3.Connection, rows: Sequence[SubscriberRow]) -> None:
    database.executemany(
        "REPLACE INTO subscriber (subject, subscriber_id, lsn, seen_at_ms, crc) VALUES (?, ?, ?, ?, ?)",
        [SUBSCRIBER.stamped(row) for row in rows],
    )


async def _ack(folder: Path, rows: Sequence[SubscriberRow], seconds: float) -> list[float]:
    log = Log.open(folder, settings=LogSettings(disk_reserve_bytes=0))
    await log.start()
    subscriptions = Subscriptions(log)
    await subscriptions.start()
    took: list[float] = []
    async with AsyncExitStack() as stack:
        stack.push_async_callback(log.close)
        stack.push_async_callback(subscriptions.close)
        ready: list[tuple[Subscriber, Lsn]] = []
        for row in rows:
            who = Subscriber(row.subject, row.subscriber_id)
            items = await stack.enter_async_context(aclosing(subscriptions.subscribe(who)))
            batch = await anext(items)
            if not isinstance(batch, Batch):
                raise TypeError("the log has an entry, so a stream begins with a batch")
            ready.append((who, batch.last_lsn))
        end = time.perf_counter() + seconds

        async def go_on(who: Subscriber, lsn: Lsn) -> None:
            while (begun := time.perf_counter()) < end:
                await subscriptions.ack(who, lsn)
                took.append(time.perf_counter() - begun)

        await asyncio.gather(*(go_on(*one) for one in ready))
    return took


def _commit(folder: Path, rows: Sequence[SubscriberRow], seconds: float) -> list[float]:
    took: list[float] = []
    with closing(sqlite3.connect(folder / METADATA_NAME, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = PERSIST")
        database.execute("PRAGMA synchronous = FULL")
        end = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end:
            database.execute("BEGIN IMMEDIATE")
            with database:
                _replace(database, rows)
            took += [time.perf_counter() - begun] * len(rows)
    return took


def main() -> None:
    """Measure by turns, and print what was found."""
    parser = arguments(__doc__, seconds=3, rounds=5)
    parser.add_argument("--known", type=int, default=20_000, help="other subscribers (default: %(default)s)")
    given = parser.parse_args()
    benches = []
    for acking, known in ((1, 0), (64, 0), (1, given.known), (64, given.known)):
        bench = Bench(
            "log_acks",
            ARMS,
            {"durability": "a commit before each answer", "acking": acking, "known": known},
        )
        bench.run(
            lambda arm, acking=acking, known=known: asyncio.run(  # type: ignore[misc]  # mypy knows no default in a lambda
                measure(arm, acking, known, given.seconds)
            ),
            given.rounds,
        )
        benches.append(bench)
    publish(benches, ["acks/s", "p50-ms"], given.json)


if __name__ == "__main__":
    main()
