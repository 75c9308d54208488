"""What it costs appends that consumers' progress is written down for ``headrace trace``.

Batches of 1,000 entries with values of 256 bytes over gRPC, while a subscriber follows and acks each batch. Two servers on
the same disk take turns: one that writes nothing down, which is the limit, and one as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from contextlib import ExitStack, aclosing
from pathlib import Path

from bench.support.harness import DURABILITY, Bench, Figures, arguments, publish
from bench.support.journal import VALUE_BYTES
from bench.support.producing import append_batches
from headrace.client.wal_stream import WalClient
from headrace.entries.lsn import ZERO
from headrace.wire.batch import ReceivedBatch
from tests.servers import ServerProcess

ARMS = ("unrecorded", "recorded")
BATCH = 1000
BATCHES_AHEAD = 8
"""Batches that the producer sends before the first is acknowledged."""


async def measure(server: ServerProcess, feed: str, seconds: float) -> Figures:
    """Append for so long beside a subscriber; entries a second, acknowledged."""
    values = [os.urandom(VALUE_BYTES) for _ in range(BATCH)]
    following = asyncio.create_task(_follow(server))
    begun = time.perf_counter()
    batches = await append_batches(server, [feed], values, begun + seconds, BATCHES_AHEAD)
    took = time.perf_counter() - begun
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following
    return {"entries/s": batches * BATCH / took}


async def _follow(server: ServerProcess) -> None:
    async with WalClient(server.grpc_address, subscriber_id="bench") as wal:
        head, _ = await wal.bounds()
        async with aclosing(wal.subscribe(head if head != ZERO else None)) as items:
            async for item in items:
                if isinstance(item, ReceivedBatch):
                    await wal.ack(item.last_lsn)


def main() -> None:
    """Start both servers, measure by turns, and print what was found."""
    given = arguments(__doc__, seconds=5, rounds=9).parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        servers = {arm: ServerProcess(folder / arm, grpc=True) for arm in ARMS}
        servers["unrecorded"].program = (sys.executable, "-m", "bench.support.unrecorded")
        for server in servers.values():
            server.start()
            stack.callback(server.kill)
        conditions = {"durability": DURABILITY, "batch": BATCH, "value-bytes": VALUE_BYTES}
        bench = Bench("trace_cost", ARMS, {**conditions, "seconds": given.seconds})
        number = 0

        def run(arm: str) -> Figures:
            nonlocal number
            number += 1
            return asyncio.run(measure(servers[arm], f"bench-{number}", given.seconds))

        bench.run(run, given.rounds)
    publish([bench], ["entries/s"], given.json)


if __name__ == "__main__":
    main()
