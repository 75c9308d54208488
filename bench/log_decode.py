"""Decoding a stream: received batches into Arrow columns, every checksum verified, receiving not counted.

The bare limit is the protobuf runtime: each batch as one message, each entry's attributes read into lists, and those made
into the same columns; without checksums. One thread; processor time is what counts.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import grpc
import pyarrow as pa

from bench.support.harness import Bench, Figures, arguments, publish
from bench.support.journal import write_journal
from headrace.client.channel import open_channel
from headrace.client.wal_columns import record_batch
from headrace.entries.entry import WireOp
from headrace.wire.batch import ReceivedBatch, decode_response
from headrace.wire.generated import wal_pb2
from tests.servers import ServerProcess

ARMS = ("protobuf", "lengths", "without-lengths", "lengths-unchecked")
TOGETHER = 16
"""Batches that are decoded at once."""
COLUMNS = ("lsn", "committed_at", "tenant_id", "key_prefix", "op", "key", "value", "hlc_ts")
"""The fields of RFC-010, but for the checksum."""


async def _received(address: str, *, want_lengths: bool) -> list[bytes]:
    """Every message of the journal's entries as it comes from the server."""
    ask = wal_pb2.SubscribeRequest(want_lengths=want_lengths)
    found: list[bytes] = []
    async with open_channel(address) as channel:
        head_of = channel.unary_unary("/kdb.wal.v1.WalStream/GetLSN")
        head = wal_pb2.GetLSNResponse.FromString(await head_of(b"")).head_lsn
        call = channel.unary_stream("/kdb.wal.v1.WalStream/Subscribe")(ask.SerializeToString())
        while (data := await call.read()) is not grpc.aio.EOF:
            found.append(data)
            batch = decode_response(data)
            if isinstance(batch, ReceivedBatch) and str(batch.last_lsn) >= head:
                break
        call.cancel()
    return found


def _by_protobuf(messages: Sequence[bytes]) -> int:
    count = 0
    ops = [op.name.lower() for op in WireOp]
    for data in messages:
        entries = wal_pb2.WalResponse.FromString(data).batch.entries
        columns = [
            pa.array([one.lsn for one in entries], pa.string()),
            pa.array([one.committed_at_ms * 1000 for one in entries], pa.timestamp("us", tz="UTC")),
            pa.array([one.tenant_id for one in entries], pa.string()),
            pa.array([one.key_prefix for one in entries], pa.string()),
            pa.array([ops[one.op_type] for one in entries], pa.string()),
            pa.array([one.key for one in entries], pa.binary()),
            pa.array([one.value for one in entries], pa.binary()),
            pa.array([one.hlc_ts for one in entries], pa.uint64()),
        ]
        count += pa.RecordBatch.from_arrays(columns, names=COLUMNS).num_rows
    return count


def _by_arrays(messages: Sequence[bytes], *, verify: bool) -> int:
    count, waiting = 0, list[ReceivedBatch]()
    for data in messages:
        batch = decode_response(data)
        if isinstance(batch, ReceivedBatch):
            waiting.append(batch)
        if len(waiting) == TOGETHER:
            count += record_batch(waiting, names=COLUMNS, verify=verify).num_rows
            waiting = []
    return count + (record_batch(waiting, names=COLUMNS, verify=verify).num_rows if waiting else 0)


def main() -> None:
    """Write a journal, receive it once with lengths and once without, decode it by turns, and print what was found."""
    parser = arguments(__doc__, seconds=0, rounds=7)
    parser.add_argument("--entries", type=int, default=200_000, help="entries (default: %(default)s)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as temporary:
        folder = Path(temporary)
        write_journal(folder / "data", given.entries, 1000)
        server = ServerProcess(folder, data_dir=folder / "data", grpc=True)
        server.start()
        try:
            messages = {
                want: asyncio.run(_received(server.grpc_address, want_lengths=want)) for want in (True, False)
            }
        finally:
            server.kill()

    def measure(arm: str) -> Figures:
        data = messages[arm in {"lengths", "lengths-unchecked"}]
        begun, begun_cpu = time.perf_counter(), time.thread_time()
        if arm == "protobuf":
            count = _by_protobuf(data)
        else:
            count = _by_arrays(data, verify=arm != "lengths-unchecked")
        cpu_s, took_s = time.thread_time() - begun_cpu, time.perf_counter() - begun
        return {"entries/cpu-s": count / cpu_s, "entries/s": count / took_s}

    bench = Bench("log_decode", ARMS, {"entries": given.entries, "batches-at-once": TOGETHER})
    bench.run(measure, given.rounds)
    publish([bench], ["entries/cpu-s", "entries/s"], given.json)


if __name__ == "__main__":
    main()
