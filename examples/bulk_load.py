"""A bulk load larger than memory that can be killed at any moment and goes on where it was.

    python examples/bulk_load.py --feed archive --rows 10000000

Row n of the source becomes entry n of the feed. So the feed's own end says how far the load has come: nothing is remembered
anywhere else, and nothing is loaded twice. The rows are a stream; one batch of them is in memory at a time.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from headrace.client.http import FeedClient
from headrace.client.producer import Producer


@dataclass(frozen=True)
class Source:
    """Any source will do that gives the same rows in the same order each time."""

    row_count: int
    payload_bytes: int

    def rows(self, first: int) -> Iterator[dict[str, Any]]:
        """The rows from number ``first`` on, one after another."""
        for number in range(first, self.row_count + 1):
            yield {"uuid": f"row-{number}", "payload": "x" * self.payload_bytes}


async def load(server: str, feed: str, agent_id: str, source: Source, batch: int) -> None:
    """Append the rows that the feed does not hold yet."""
    async with FeedClient(server, timeout_s=10.0) as client:
        producer = await Producer.register(client, feed, agent_id)
        first = producer.next_sequence_id
        print(f"going on at row {first} of {source.row_count}", flush=True)
        left = source.rows(first)
        while part := list(islice(left, batch)):
            appended = await producer.append(part)
            print(f"loaded up to row {appended.last_sequence_id}", flush=True)
    print("loaded all", flush=True)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", default="http://127.0.0.1:8470")
    parser.add_argument("--feed", default="archive")
    parser.add_argument("--agent-id", default="loader")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--payload-bytes", type=int, default=64)
    given = parser.parse_args()
    source = Source(given.rows, given.payload_bytes)
    asyncio.run(load(given.server, given.feed, given.agent_id, source, given.batch))


if __name__ == "__main__":
    main()
