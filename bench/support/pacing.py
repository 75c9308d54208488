"""A load that a schedule paces, in a process of its own: so many commits a second, however slow the answers are.

``python -m bench.support.pacing DSN STATEMENT RATE SECONDS`` prints ``ready``, and begins when a line comes on stdin. The
statement gets the commit's number and is a transaction by itself. At the end it prints one JSON line, a list for each
commit: its number, when it was due, and when the database had answered it, in ``time.monotonic_ns()``.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterator
from typing import Final

import psycopg

CLIENTS: Final = 32
"""Connections. At 500 commits a second each has 64 ms for one before the next is late."""


async def main(dsn: str, statement: str, rate: float, seconds: float) -> None:
    """Connect, wait for the word, commit by the schedule, tell."""
    clients = [await psycopg.AsyncConnection.connect(dsn, autocommit=True) for _ in range(CLIENTS)]
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    begun = time.monotonic_ns()
    numbers = iter(range(round(rate * seconds)))
    due = (begun + round(number * 1e9 / rate) for number in itertools.count())
    schedule = zip(numbers, due, strict=False)
    done: list[tuple[int, int, int]] = []
    await asyncio.gather(*(_work(client, statement, schedule, done) for client in clients))
    for client in clients:
        await client.close()
    print(json.dumps(done), flush=True)


async def _work(
    client: psycopg.AsyncConnection,
    statement: str,
    schedule: Iterator[tuple[int, int]],
    done: list[tuple[int, int, int]],
) -> None:
    """Take the next number that nobody has, wait until it is due, commit it."""
    query = statement.encode()
    for number, due in schedule:
        await asyncio.sleep((due - time.monotonic_ns()) / 1e9)
        await client.execute(query, (number,), prepare=True)
        done.append((number, due, time.monotonic_ns()))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])))
