"""Single conditional appends over open gRPC streams: from 64 producers at once, and from one alone.

Each append is one entry with a value of 256 bytes that names its place, on disk before it is acknowledged; a producer sends
the next one after the answer. The bare limit is a gRPC server with an empty handler and one ``fdatasync`` a group, called by
the same client; ``empty-both`` is the same server called by a client that sends ready bytes and looks at no answer.
``write-ms`` is the median of ``write`` + ``fdatasync`` of such an entry without any server.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

from bench.support.bare_server import bare_server
from bench.support.harness import DURABILITY, Bench, Figures, arguments, publish
from bench.support.journal import VALUE_BYTES
from bench.support.producing import PRODUCER, append_singles, call_empty, make_feed
from headrace.client.log_append import Writes
from headrace.entries.entry import Change
from headrace.wire.entry import encode_half
from tests.servers import ServerProcess

ARMS = ("empty-handler", "headrace", "empty-both")


def measure(arm: str, producers: int, seconds: float, address: str, server: ServerProcess) -> Figures:
    """Append from so many producers for so long."""
    value = os.urandom(VALUE_BYTES)
    feeds = [f"bench-{time.monotonic_ns()}-{number}" for number in range(producers)]
    if arm == "empty-both":
        message = encode_half(Change(value, key=b"key-00000000"))
        found = asyncio.run(call_empty(address, producers, message, time.perf_counter() + seconds))
    else:
        own = arm == "headrace"
        writes = [make_feed(server, feed) if own else _nowhere(feed) for feed in feeds]
        to = server.grpc_address if own else address
        found = asyncio.run(append_singles(to, writes, value, time.perf_counter() + seconds))
    took = [one for stream in found for one in stream]
    return {
        "appends/s": len(took) / seconds,
        "p50-ms": statistics.median(took) * 1000,
        "p99-ms": statistics.quantiles(took, n=100)[98] * 1000,
        "write-ms": _write_ms(server.folder, value),
    }


def _nowhere(feed: str) -> Writes:
    """What names a producer to a server that does not look."""
    return Writes(feed, PRODUCER, 1, str(UUID(int=1)))


def _write_ms(folder: Path, value: bytes) -> float:
    took = []
    path = folder / "write"
    with path.open("wb", buffering=0) as file:
        for _ in range(300):
            begun = time.perf_counter()
            file.write(value)
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1000


def main() -> None:
    """Start both servers, measure by turns, and print what was found."""
    parser = arguments(__doc__, seconds=5, rounds=5)
    parser.add_argument(
        "--producers", type=int, nargs="+", default=[64, 1], help="at once (default: 64, then 1)"
    )
    given = parser.parse_args()
    benches = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        address = stack.enter_context(bare_server(folder))
        server = ServerProcess(folder / "server", grpc=True)
        server.start()
        stack.callback(server.kill)
        for producers in given.producers:
            bench = Bench(
                "log_single",
                ARMS,
                {"durability": DURABILITY, "producers": producers, "seconds": given.seconds},
            )
            bench.run(
                lambda arm, producers=producers: measure(arm, producers, given.seconds, address, server),  # type: ignore[misc]  # mypy knows no default in a lambda
                given.rounds,
            )
            benches.append(bench)
    publish(benches, ["appends/s", "p50-ms"], given.json)


if __name__ == "__main__":
    main()
