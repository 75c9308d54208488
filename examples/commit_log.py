"""A process whose state is a feed: it reads the feed, then writes each of its decisions to the end of the same feed.

    python examples/commit_log.py --agent-id till-1 --seats 20 &
    python examples/commit_log.py --agent-id till-2 --seats 20

Two tills sell the seats of one hall. Each decides by what it has read, and appends its decision right behind that. Where the
append is taken, nothing had come in between: the till had seen everything, and the seat is sold. Where it is refused,
another till was first; it reads on and decides again. No lock is held, no seat is sold twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json

from headrace.client.http import FeedClient
from headrace.client.producer import Producer
from headrace.errors import OffsetMismatch


class Till:
    """Sells the seats 1 … ``seats`` in order. ``sold`` is the state, made of the feed's entries alone."""

    def __init__(self, client: FeedClient, producer: Producer, seats: int) -> None:
        self.client = client
        self.producer = producer
        self.seats = seats
        self.sold: dict[int, str] = {}

    async def catch_up(self) -> None:
        """Read what is new and apply it; the next append is judged against exactly that."""
        while True:
            read = await self.client.read(self.producer.feed, self.producer.next_sequence_id)
            for entry in read.changes_list:
                sale = entry.values()
                self.sold[sale["seat"]] = sale["till"]
                self.producer.next_sequence_id = entry.sequence_id + 1
            if self.producer.next_sequence_id > read.head_sequence_id:
                return

    async def sell(self) -> bool:
        """Sell the next free seat; False once the hall is full."""
        free = len(self.sold) + 1
        if free > self.seats:
            return False
        try:
            await self.producer.append(
                [{"uuid": f"seat-{free}", "seat": free, "till": self.producer.agent_id}]
            )
        except OffsetMismatch:
            print("another till was first; reading on", flush=True)
            await self.catch_up()
        else:
            self.sold[free] = self.producer.agent_id
            print(f"sold seat {free}", flush=True)
        return True


async def run(server: str, feed: str, agent_id: str, seats: int) -> None:
    """Bootstrap from the feed, then sell until the hall is full."""
    async with FeedClient(server, timeout_s=5.0) as client:
        producer = await Producer.register(client, feed, agent_id, shared=True)
        producer.next_sequence_id = 1  # nothing is known yet: the whole feed is read
        till = Till(client, producer, seats)
        await till.catch_up()
        while await till.sell():
            pass
    own = sorted(seat for seat, name in till.sold.items() if name == agent_id)
    print(json.dumps({"till": agent_id, "sold": own}), flush=True)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", default="http://127.0.0.1:8470")
    parser.add_argument("--feed", default="hall")
    parser.add_argument("--agent-id", default="till-1")
    parser.add_argument("--seats", type=int, default=20)
    given = parser.parse_args()
    asyncio.run(run(given.server, given.feed, given.agent_id, given.seats))


if __name__ == "__main__":
    main()
