"""Backing a log up: a journal of 256-byte values drained by the agent into segments of 128 MB, acked.

The bare limit is the same bytes written into files of that size, each synced. ``segments`` is the agent's own part: batches
that are there already become segments with manifests, synced under their names. ``agent`` is all of it: server, stream,
every entry's checksum, segments, acks. ``cpu-s/gb`` is this process's processor time, without the server's.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

from bench.support.harness import Bench, Figures, arguments, publish
from bench.support.journal import write_journal
from headrace.backup.deposits import Deposits, Given, surveyed
from headrace.backup.gathering import Finished, Gatherer
from headrace.backup.process import run_backup
from headrace.backup.settings import BackupSettings
from headrace.client.wal_stream import WalClient
from headrace.runtime.logs import configure_logs
from headrace.wire.batch import ReceivedBatch
from tests.servers import ServerProcess

ARMS = ("synced-files", "segments", "agent")
STORED_BYTES = 360
"""Of an entry with a value of 256 bytes."""


async def _batches(address: str) -> list[ReceivedBatch]:
    found: list[ReceivedBatch] = []
    async with WalClient(address, subscriber_id="bench") as client:
        head, _ = await client.bounds()
        async with aclosing(client.subscribe(want_lengths=True)) as items:
            async for item in items:
                if isinstance(item, ReceivedBatch):
                    found.append(item)
                    if item.last_lsn >= head:
                        break
    return found


def _write_files(folder: Path, batches: list[ReceivedBatch], segment_bytes: int) -> int:
    """Write the batches' bytes, synced every ``segment_bytes``; returns how many."""
    folder.mkdir()
    written, size, number = 0, 0, 0
    file = (folder / "0").open("wb", buffering=0)
    for batch in batches:
        file.write(batch.body)
        size += len(batch.body)
        if size >= segment_bytes or batch is batches[-1]:
            os.fsync(file.fileno())
            file.close()
            written, size, number = written + size, 0, number + 1
            file = (folder / str(number)).open("wb", buffering=0)
    file.close()
    return written


def _write_segments(folder: Path, batches: list[ReceivedBatch], segment_bytes: int) -> int:
    written = 0
    with Deposits.open(str(folder)) as deposits:
        gatherer = Gatherer(segment_bytes)

        def put(finished: Finished) -> int:
            files = deposits.files_of(
                finished, surveyed(finished, deposits.histories), Given({1: "bench"}, {})
            )
            deposits.put(files)
            return finished.sealed.size

        for batch in batches:
            written += sum(map(put, gatherer.add(batch)))
        if gatherer.entries:
            written += put(gatherer.seal())
    return written


def _back_up(folder: Path, server: ServerProcess, segment_bytes: int) -> int:
    settings = BackupSettings(
        archive=str(folder),
        server=server.url,
        grpc=server.grpc_address,
        segment_bytes=segment_bytes,
        once=True,
    )

    async def run() -> int:
        return (await run_backup(settings, asyncio.Event())).bytes

    return asyncio.run(run())


def _bench(folder: Path, per_frame: int, given: argparse.Namespace) -> Bench:
    """Write a journal with that frame size, serve it, and back it up by turns."""
    write_journal(folder / "data", given.megabytes * 1_000_000 // STORED_BYTES, per_frame)
    server = ServerProcess(folder, data_dir=folder / "data", grpc=True)
    out, size = folder / "out", given.segment_mb << 20

    def measure(arm: str) -> Figures:
        begun, cpu = time.perf_counter(), time.process_time()
        if arm == "synced-files":
            count = _write_files(out, batches, size)
        elif arm == "segments":
            count = _write_segments(out, batches, size)
        else:
            count = _back_up(out, server, size)
        took, used = time.perf_counter() - begun, time.process_time() - cpu
        shutil.rmtree(out)
        return {"mb/s": count / took / 1e6, "entries/s": entries / took, "cpu-s/gb": used / count * 1e9}

    try:
        server.start()
        batches = asyncio.run(_batches(server.grpc_address))
        entries = sum(len(batch.sizes) for batch in batches)
        conditions = {
            "entries-per-frame": per_frame,
            "megabytes": given.megabytes,
            "segment-mb": given.segment_mb,
        }
        bench = Bench("backup", ARMS, conditions)
        bench.run(measure, given.rounds)
    finally:
        server.kill()
    return bench


def main() -> None:
    """Measure journals of large frames and of small ones, and print what was found."""
    parser = arguments(__doc__, seconds=0, rounds=3)
    parser.add_argument(
        "--megabytes", type=int, default=1024, help="size of the journal (default: %(default)s)"
    )
    parser.add_argument(
        "--segment-mb", type=int, default=128, help="size of a segment (default: %(default)s)"
    )
    given = parser.parse_args()
    configure_logs(level="warning")
    benches = []
    for per_frame in (1000, 10):
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
            benches.append(_bench(Path(folder), per_frame, given))
    publish(benches, ["mb/s", "entries/s", "cpu-s/gb"], given.json)


if __name__ == "__main__":
    main()
