"""64 feeds appended to at once, against one feed: the same batches, over the same connection, as many on their way.

All feeds share one journal, one writer and its syncs, so that many of them should cost hardly more than one.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from bench.support.harness import DURABILITY, Bench, Figures, arguments, publish
from bench.support.journal import VALUE_BYTES
from bench.support.producing import append_batches
from tests.servers import ServerProcess

ARMS = ("one-feed", "64-feeds")
FEEDS = 64


def measure(arm: str, batch: int, seconds: float, server: ServerProcess) -> Figures:
    """Append batches for so long; entries a second, acknowledged."""
    count = FEEDS if arm == "64-feeds" else 1
    feeds = [f"bench-{time.monotonic_ns()}-{number}" for number in range(count)]
    values = [os.urandom(VALUE_BYTES) for _ in range(batch)]
    begun = time.perf_counter()
    batches = asyncio.run(append_batches(server, feeds, values, begun + seconds, FEEDS // count))
    return {"entries/s": batches * batch / (time.perf_counter() - begun)}


def main() -> None:
    """Start the server, measure by turns with each batch size, and print what was found."""
    parser = arguments(__doc__, seconds=5, rounds=5)
    parser.add_argument(
        "--batch", type=int, nargs="+", default=[100, 1000], help="entries each (default: 100, then 1000)"
    )
    given = parser.parse_args()
    benches = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as temporary:
        server = ServerProcess(Path(temporary), grpc=True)
        server.start()
        try:
            for batch in given.batch:
                bench = Bench(
                    "log_feeds", ARMS, {"durability": DURABILITY, "batch": batch, "seconds": given.seconds}
                )
                bench.run(
                    lambda arm, batch=batch: measure(arm, batch, given.seconds, server),  # type: ignore[misc]  # mypy knows no default in a lambda
                    given.rounds,
                )
                benches.append(bench)
        finally:
            server.kill()
    publish(benches, ["entries/s"], given.json)


if __name__ == "__main__":
    main()
