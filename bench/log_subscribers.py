"""Many subscribers of one journal: 100 at once, each at its own place, and one beside 50 that never read.

The bare limit is one subscriber that reads alone. ``hundred`` gives what all of them got together, and how far the slowest
is behind the fastest. ``beside-stalled`` is the lone one again, while 50 others have opened a stream and take nothing;
``rss-mb`` is the server's memory at the end of the arm. Subscribers run in processes of their own and take nothing from a
message but its size.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc

from bench.support.harness import ROOT, Bench, Figures, arguments, publish
from bench.support.journal import write_journal
from headrace.client.channel import open_channel
from headrace.wire.generated import wal_pb2
from tests.servers import ServerProcess

ARMS = ("alone", "beside-stalled", "hundred")
PER_FRAME = 1000
SUBSCRIBERS = 100
STALLED = 50
SUBSCRIBE = "/kdb.wal.v1.WalStream/Subscribe"


async def _read(channel: grpc.aio.Channel, name: str, start: str, until: float) -> int:
    """Read from ``start`` on, again and again, until the time is over; returns the bytes."""
    ask = wal_pb2.SubscribeRequest(start_lsn=start, want_lengths=True).SerializeToString()
    head, got = await _head(channel), 0
    while time.perf_counter() < until:
        call = channel.unary_stream(SUBSCRIBE)(ask, metadata=(("subscriber-id", name),))
        while time.perf_counter() < until:
            data = await call.read()
            got += len(data)
            if head.encode() in data[:128]:
                break
        call.cancel()
    return got


async def _head(channel: grpc.aio.Channel) -> str:
    answer = await channel.unary_unary("/kdb.wal.v1.WalStream/GetLSN")(b"")
    return wal_pb2.GetLSNResponse.FromString(answer).head_lsn


async def read_all(address: str, starts: list[str], seconds: float) -> list[int]:
    """A subscriber from each start, all over one connection; the bytes of each."""
    async with open_channel(address) as channel:
        until = time.perf_counter() + seconds
        readers = (_read(channel, f"reader-{number}", start, until) for number, start in enumerate(starts))
        return list(await asyncio.gather(*readers))


async def stall(address: str, count: int) -> None:
    """Open streams, each over a connection of its own, and take nothing; says so, and stays."""
    channels = [open_channel(address) for _ in range(count)]
    calls = [
        channel.unary_stream(SUBSCRIBE)(b"", metadata=(("subscriber-id", f"stalled-{number}"),))
        for number, channel in enumerate(channels)
    ]
    await asyncio.gather(*(call.initial_metadata() for call in calls), return_exceptions=True)
    print("stalled", flush=True)
    await asyncio.Event().wait()


@contextmanager
def stalled(address: str, count: int) -> Iterator[None]:
    """Run that in a process of its own."""
    words = [sys.executable, "-m", "bench.log_subscribers", "--stall", address, str(count)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "stalled\n"
            yield
        finally:
            process.kill()


def _measure(arm: str, server: ServerProcess, starts: list[str], seconds: float) -> Figures:
    with ExitStack() as stack:
        if arm == "beside-stalled":
            stack.enter_context(stalled(server.grpc_address, STALLED))
        chosen = starts if arm == "hundred" else starts[:1]
        words = [sys.executable, "-m", "bench.log_subscribers", "--read", server.grpc_address, str(seconds)]
        done = subprocess.run(
            [*words, json.dumps(chosen)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        )
        got = json.loads(done.stdout)
        return {
            "mb/s": sum(got) / seconds / 1e6,
            "slowest/fastest": min(got) / max(got),
            "rss-mb": server.memory_bytes() / 1e6,
        }


async def _starts(address: str, count: int) -> list[str]:
    """The LSNs of entries spread over the first half of the journal."""
    async with open_channel(address) as channel:
        call = channel.unary_stream(SUBSCRIBE)(b"")
        found: list[str] = []
        head = await _head(channel)
        while not found or found[-1] < head:
            found.append(wal_pb2.WalResponse.FromString(await call.read()).batch.last_lsn)
        call.cancel()
    step = max(1, len(found) // 2 // count)
    return found[: count * step : step]


def main() -> None:
    """Write a journal, serve it, measure by turns, and print what was found."""
    if sys.argv[1:2] == ["--stall"]:
        asyncio.run(stall(sys.argv[2], int(sys.argv[3])))
    if sys.argv[1:2] == ["--read"]:
        print(json.dumps(asyncio.run(read_all(sys.argv[2], json.loads(sys.argv[4]), float(sys.argv[3])))))
        return
    parser = arguments(__doc__, seconds=5, rounds=3)
    parser.add_argument(
        "--entries", type=int, default=10_000_000, help="in the journal (default: %(default)s)"
    )
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        write_journal(folder / "data", given.entries, PER_FRAME)
        server = ServerProcess(folder, data_dir=folder / "data", grpc=True)
        server.start()
        stack.callback(server.kill)
        starts = asyncio.run(_starts(server.grpc_address, SUBSCRIBERS))
        bench = Bench(
            "log_subscribers",
            ARMS,
            {"entries": given.entries, "entries-per-frame": PER_FRAME, "stalled": STALLED},
        )
        bench.run(lambda arm: _measure(arm, server, starts, given.seconds), given.rounds)
    publish([bench], ["mb/s", "slowest/fastest", "rss-mb"], given.json)


if __name__ == "__main__":
    main()
