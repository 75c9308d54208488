"""A producer that retries for ever, and whose every entry is in the feed exactly once.

    python examples/idempotent_producer.py --feed readings --count 1000

Each append names the place where it must stand. Kill the server in the middle, cut the network, start it again: a try whose
answer was lost is sent again at the same place. If it had been stored, the server says so and writes nothing.
"""

from __future__ import annotations

import argparse
import asyncio

from headrace.client.http import FeedClient
from headrace.client.producer import Producer


async def produce(server: str, feed: str, agent_id: str, count: int) -> None:
    """Append ``count`` readings, one at a time."""
    async with FeedClient(server, timeout_s=5.0) as client:
        producer = await Producer.register(client, feed, agent_id)
        for number in range(1, count + 1):
            appended = await producer.append([{"uuid": f"reading-{number}", "value": number}])
            found = "found again" if appended.duplicate else "stored"
            print(f"reading {number} {found} at {appended.first_sequence_id}", flush=True)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", default="http://127.0.0.1:8470")
    parser.add_argument("--feed", default="readings")
    parser.add_argument("--agent-id", default="sensor-1")
    parser.add_argument("--count", type=int, default=1000)
    given = parser.parse_args()
    asyncio.run(produce(given.server, given.feed, given.agent_id, given.count))


if __name__ == "__main__":
    main()
