"""A process that appends to a journal as fast as it can until it is killed, and prints each acknowledged range.

``python -m tests.fault.appender FOLDER SEED``: one line ``feed first last`` for each answer, after the answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
from pathlib import Path

from headrace.log.log import Log, LogSettings
from headrace.log.requests import Register
from tests.bench import AGENT, INCARNATION, append

FEEDS = ("a", "b", "c")
SEGMENT_BYTES = 30_000


def value_of(feed: str, sequence_id: int) -> bytes:
    """What stands at a place: known from the place alone, so that a reader can check it."""
    digest = hashlib.blake2b(f"{feed}/{sequence_id}".encode()).hexdigest()
    return (digest * (1 + sequence_id % 7)).encode()


async def feed_on(log: Log, feed: str, rng: random.Random) -> None:
    """Append to one feed, several appends in flight, each naming its place."""
    tail = await log.register(Register(feed, AGENT, AGENT, "", INCARNATION))
    at = tail.next_sequence_id
    while True:
        sent = []
        for _ in range(rng.randint(1, 6)):
            count = rng.randint(1, 5)
            values = [value_of(feed, number) for number in range(at, at + count)]
            sent.append(log.append(append(feed, *values, expected_offsets=range(at, at + count))))
            at += count
        for appended in await asyncio.gather(*sent):
            line = f"{feed} {appended.first_sequence_id} {appended.last_sequence_id}\n"
            sys.stdout.write(line)
            sys.stdout.flush()


async def main(folder: Path, seed: int) -> None:
    """Open the log and append to all feeds for ever."""
    log = Log.open(folder, settings=LogSettings(segment_bytes=SEGMENT_BYTES))
    await log.start()
    await asyncio.gather(*(feed_on(log, feed, random.Random(f"{seed}{feed}")) for feed in FEEDS))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
