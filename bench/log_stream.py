"""Catching up over gRPC: a subscriber that reads the whole journal, and takes from each batch no more than its size.

The bare limit is a gRPC server that streams ready bytes, in messages as large as a batch of 1,000 entries.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import ExitStack, aclosing
from pathlib import Path

from bench.support.bare_server import STREAM, bare_server
from bench.support.harness import Bench, Figures, arguments, publish
from bench.support.journal import write_journal
from headrace.client.channel import open_channel
from headrace.client.wal_stream import WalClient
from headrace.wire.batch import ReceivedBatch
from tests.servers import ServerProcess

ARMS = ("ready-bytes", "headrace")


async def _stream_bytes(address: str, wanted: int) -> int:
    count = 0
    async with open_channel(address) as channel:
        call = channel.unary_stream(STREAM)(b"")
        while count < wanted:
            count += len(await call.read())
        call.cancel()
    return count


async def _subscribe(address: str) -> int:
    count = 0
    async with WalClient(address) as client:
        head, _ = await client.bounds()
        async with aclosing(client.subscribe()) as stream:
            async for item in stream:
                if isinstance(item, ReceivedBatch):
                    count += len(item.body)
                    if item.last_lsn >= head:
                        break
    return count


def main() -> None:
    """Write a journal for each frame size, serve it, read it by turns, and print what was found."""
    parser = arguments(__doc__, seconds=0, rounds=5)
    parser.add_argument(
        "--megabytes", type=int, default=512, help="size of each journal (default: %(default)s)"
    )
    given = parser.parse_args()
    benches = []
    for per_frame in (1000, 1):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
            write_journal(folder / "data", given.megabytes * 1_000_000 // 360, per_frame)
            address = stack.enter_context(bare_server(folder))
            server = ServerProcess(folder, data_dir=folder / "data", grpc=True)
            server.start()
            stack.callback(server.kill)

            def measure(arm: str, address: str = address, server: ServerProcess = server) -> Figures:
                begun = time.perf_counter()
                if arm == "headrace":
                    count = asyncio.run(_subscribe(server.grpc_address))
                else:
                    count = asyncio.run(_stream_bytes(address, given.megabytes * 1_000_000))
                return {"mb/s": count / (time.perf_counter() - begun) / 1e6}

            bench = Bench("log_stream", ARMS, {"entries-per-frame": per_frame, "megabytes": given.megabytes})
            bench.run(measure, given.rounds)
            benches.append(bench)
    publish(benches, ["mb/s"], given.json)


if __name__ == "__main__":
    main()
