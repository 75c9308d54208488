"""Following a log with ``pg_recvlogical -f /dev/null``: a feed over ``--pg``, and the same rows of a PostgreSQL table.

The bare limit is a real PostgreSQL that decodes its own log with ``test_decoding``, the plugin that does least. Both get
the same rows in transactions of the same size while the slots are there already; then the same program reads them, to the
end of the log, one slot a run. ``rendering`` is our output alone, in this process, over the same frames.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.support.harness import Bench, Figures, arguments, publish
from bench.support.process_tree import cpu_s_of_tree
from bench.support.producing import make_feed
from headrace.client.log_append import LogAppendClient, Stored
from headrace.entries.entry import Change
from headrace.server.pg.output.registry import OUTPUTS
from headrace.wire.halves import join_puts
from tests.pg import PROGRAMS, create_slot, dsn_of, query
from tests.pg_pieces import GivenSchemas, Place, frame_of, piece_of
from tests.ports import free_port
from tests.postgres import Cluster
from tests.servers import ServerProcess

ARMS: Final = ("test_decoding", "headrace", "rendering")
BATCH: Final = 1_000
"""Rows of a transaction, entries of an append."""
AHEAD: Final = 8
"""Appends on their way at once."""
ROW: Final = '{"id":%d,"note":"%s"}'
FEED: Final = "bench"
RUN_S_MAX: Final = 600.0
SETTINGS: Final = {
    "wal_level": "logical",
    "max_replication_slots": "64",
    "max_wal_size": "8GB",
    "shared_buffers": "512MB",
}


def _value(number: int) -> bytes:
    """A row as JSON, of 256 bytes."""
    bare = len(ROW % (number, ""))
    return (ROW % (number, "x" * (256 - bare))).encode()


def _receive(dsn: str, slot: str, end: str) -> float:
    """Read a slot up to a position, and return the seconds that it took."""
    command = [
        str(PROGRAMS / "pg_recvlogical"), "-d", dsn, "--slot", slot, "--start", "--no-loop", "-f", "/dev/null",
        "--endpos", end,
    ]  # fmt: skip
    begun = time.perf_counter()
    subprocess.run(command, check=True, timeout=RUN_S_MAX)
    return time.perf_counter() - begun


class Real:
    """PostgreSQL with a table, and a slot for each run."""

    def __init__(self, cluster: Cluster, rows: int, slots: int) -> None:
        self.cluster, self.rows = cluster, rows
        with cluster.connect() as app:
            app.execute("CREATE TABLE bench (id bigint PRIMARY KEY, note text)")
            for number in range(slots):
                app.execute("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", (f"s{number}",))
            for first in range(0, rows, BATCH):
                app.execute(
                    "INSERT INTO bench SELECT n, repeat('x', 230) FROM generate_series(%s::bigint, %s) AS n",
                    (first, min(first + BATCH, rows) - 1),
                )
            self.end = str(app.execute("SELECT pg_current_wal_lsn()").fetchone()[0])  # type: ignore[index]  # one row

    def run(self, number: int) -> Figures:
        """Read all rows from one of the slots."""
        used = cpu_s_of_tree(self.cluster.pid)
        took = _receive(self.cluster.dsn(), f"s{number}", self.end)
        used = cpu_s_of_tree(self.cluster.pid) - used
        return {"entries/s": self.rows / took, "entries/cpu-s": self.rows / max(used, 0.01)}


class Ours:
    """A server with ``--pg`` and a feed, and a slot for each run."""

    def __init__(self, server: ServerProcess, rows: int, slots: int) -> None:
        self.server, self.rows = server, rows
        for number in range(slots):
            create_slot(server, f"s{number}")
        asyncio.run(self._fill())
        ((self.end,),) = query(server, "SELECT pg_current_wal_lsn()")

    async def _fill(self) -> None:
        waiting: deque[asyncio.Future[Stored]] = deque()
        writes = make_feed(self.server, FEED)
        async with (
            LogAppendClient(self.server.grpc_address) as client,
            client.append_stream(writes) as stream,
        ):
            for first in range(0, self.rows, BATCH):
                numbers = range(first, min(first + BATCH, self.rows))
                puts = join_puts((b"%d" % number, _value(number)) for number in numbers)
                waiting.append(await stream.send(puts, expected_offset=first + 1))
                if len(waiting) >= AHEAD:
                    await waiting.popleft()
            await asyncio.gather(*waiting)

    def run(self, number: int) -> Figures:
        """Read all entries from one of the slots."""
        assert self.server.process is not None
        pid = self.server.process.pid
        used = cpu_s_of_tree(pid)
        took = _receive(dsn_of(self.server), f"s{number}", self.end)
        used = cpu_s_of_tree(pid) - used
        return {"entries/s": self.rows / took, "entries/cpu-s": self.rows / max(used, 0.01)}


def _render(rows: int) -> Figures:
    """Render as many entries, frame by frame."""
    pieces = [
        piece_of(
            frame_of([Change(_value(at), key=b"%d" % at) for at in range(first, first + BATCH)], Place(first))
        )
        for first in range(BATCH, 21 * BATCH, BATCH)
    ]
    output = OUTPUTS["headrace"]({}, GivenSchemas({}))
    begun, used, done = time.perf_counter(), time.process_time(), 0
    while done < rows:
        for piece in pieces:
            done += len(output.render(piece).payloads)
    took, used = time.perf_counter() - begun, time.process_time() - used
    return {"entries/s": done / took, "entries/cpu-s": done / used}


def main() -> None:
    """Fill both logs, read them by turns, and print what was found."""
    parser = arguments(__doc__, seconds=0, rounds=5)
    parser.add_argument(
        "--entries", type=int, default=1_000_000, help="rows in each log (default: %(default)s)"
    )
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        real = Real(stack.enter_context(Cluster(settings=SETTINGS)), given.entries, given.rounds)
        server = ServerProcess(folder, grpc=True, args=["--pg", f"127.0.0.1:{free_port()}"])
        server.start()
        stack.callback(server.kill)
        ours = Ours(server, given.entries, given.rounds)
        turns = {"test_decoding": iter(range(given.rounds)), "headrace": iter(range(given.rounds))}

        def measure(arm: str) -> Figures:
            if arm == "rendering":
                return _render(given.entries)
            side = real if arm == "test_decoding" else ours
            return side.run(next(turns[arm]))

        bench = Bench("pg_replication", ARMS, {"entries": given.entries, "per-transaction": BATCH})
        bench.run(measure, given.rounds)
    publish([bench], ["entries/s", "entries/cpu-s"], given.json)


if __name__ == "__main__":
    main()
