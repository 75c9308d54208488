"""How soon a new entry is with a subscriber of an idle stream: an append at a time over gRPC, on loopback.

``receipt`` counts from the moment the append's answer is with the producer, which is after the entry was durable, to the
subscriber's receipt; below nought where the subscriber was faster. ``append-to-receipt`` counts from before the append was
sent, so it holds the append too. The bare limit is the append alone. Producer and subscriber share a process, as they must
share a clock.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from contextlib import ExitStack, aclosing
from pathlib import Path

from bench.support.harness import DURABILITY, Bench, Figures, arguments, publish
from bench.support.journal import VALUE_BYTES
from bench.support.producing import make_feed
from headrace.client.log_append import LogAppendClient
from headrace.client.wal_stream import WalClient
from headrace.wire.batch import ReceivedBatch
from headrace.wire.halves import join_puts
from tests.servers import ServerProcess

ARMS = ("append-alone", "receipt", "append-to-receipt")


async def measure(
    server: ServerProcess, subscribed: bool, seconds: float, pause_s: float
) -> dict[str, list[float]]:
    """Append one entry after the other, with a pause between; the times of each, in seconds."""
    writes = make_feed(server, f"bench-{time.monotonic_ns()}")
    value = os.urandom(VALUE_BYTES)
    received: asyncio.Queue[float] = asyncio.Queue()

    async def subscribe(wal: WalClient) -> None:
        head, _ = await wal.bounds()
        async with aclosing(wal.subscribe(head)) as items:
            async for item in items:
                now = time.perf_counter()
                if isinstance(item, ReceivedBatch) and item.last_lsn > head:
                    received.put_nowait(now)

    found: dict[str, list[float]] = {arm: [] for arm in ARMS}
    async with LogAppendClient(server.grpc_address) as client, WalClient(server.grpc_address) as wal:
        await client.append(writes, join_puts([(b"key", value)]))
        following = asyncio.create_task(subscribe(wal)) if subscribed else None
        until = time.perf_counter() + seconds
        async with client.append_stream(writes) as stream:
            while time.perf_counter() < until:
                await asyncio.sleep(pause_s)
                put = join_puts([(b"key", value)])
                begun = time.perf_counter()
                await (await stream.send(put))
                answered = time.perf_counter()
                found["append-alone"].append(answered - begun)
                if subscribed:
                    at = await received.get()
                    found["receipt"].append(at - answered)
                    found["append-to-receipt"].append(at - begun)
        if following is not None:
            following.cancel()
            await asyncio.wait({following})
    return found


def _figures(took: list[float]) -> Figures:
    return {"p50-ms": statistics.median(took) * 1000, "p99-ms": statistics.quantiles(took, n=100)[98] * 1000}


def main() -> None:
    """Start a server, measure by turns, and print what was found."""
    parser = arguments(__doc__, seconds=3, rounds=5)
    parser.add_argument(
        "--pause-ms", type=float, default=5, help="between two appends (default: %(default)s)"
    )
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        server = ServerProcess(folder, grpc=True)
        server.start()
        stack.callback(server.kill)

        def run(arm: str) -> Figures:
            found = asyncio.run(measure(server, arm != "append-alone", given.seconds, given.pause_ms / 1000))
            return _figures(found[arm])

        bench = Bench("log_live", ARMS, {"durability": DURABILITY, "pause-ms": given.pause_ms})
        bench.run(run, given.rounds)
    publish([bench], ["p50-ms", "p99-ms"], given.json)


if __name__ == "__main__":
    main()
