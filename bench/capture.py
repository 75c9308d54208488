"""Capture: draining a MariaDB binlog that was written beforehand, the initial snapshot, a live sysbench, memory.

Everything is real: MariaDB, ``headrace serve`` with fsync, ``headrace capture run``. ``sysbench`` is the table and the
transactions of its ``oltp_write_only``: four columns, four changes of one row each a transaction. ``bulk`` is a table of ten
columns, written by INSERT … SELECT, 4,000 rows a statement.

The bare limits: the same binlog received and not looked at (``payloads``), and for the snapshot a SELECT whose rows are
thrown away. ``mysql-replication`` is the library of that name, which makes dicts of the same rows and keeps none.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pymysql.cursors import SSCursor
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from bench.support.capturing import Capture, Captured, Drain, Sample, capturing
from bench.support.harness import DURABILITY, Bench, Figures, arguments, cpu_seconds, publish
from headrace.capture.mariadb.connection import connect
from headrace.capture.mariadb.dump import BinlogDump
from headrace.capture.mariadb.server import current_moment, current_place, read_server
from headrace.client.log_append import LogAppendClient
from headrace.runtime.dsn import parse_dsn
from tests import sysbench
from tests.mariadb import CAPTURE_OPTIONS, Database, Server
from tests.servers import ServerProcess

DRAINED = ("payloads", "mysql-replication", "capture")
COPIED = ("select", "capture")
LIVE = ("alone", "captured")
SIZES = ("small-transactions", "one-transaction")

OPTIONS = ("--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=256M")
"""How durable the source is, is not at stake: its binlog is to be written soon."""
THREADS = 4
BULK_ROWS = 4_000
SYSBENCH_CHANGES = 4
"""Rows that a transaction of oltp_write_only changes."""
LOOK_S = 0.05
"""How often it is looked how far the feed is behind the source."""
_REPLICA_ID = 7_777
_TEN_COLUMNS = """CREATE TABLE bulk (
    id BIGINT PRIMARY KEY, name VARCHAR(255), email VARCHAR(255), active TINYINT, balance DECIMAL(12, 2), born DATE,
    changed TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), note TEXT NULL, score DOUBLE, visits INT UNSIGNED
) CHARSET utf8mb4"""
_TEN_VALUES = """INSERT INTO bulk SELECT seq, CONCAT('Customer number ', seq), CONCAT('customer', seq, '@example.org'),
    seq % 2, seq / 4, DATE_ADD('1950-01-01', INTERVAL seq % 20000 DAY),
    TIMESTAMPADD(MICROSECOND, seq * 1234567, '2024-02-26 05:00:00'), NULL, seq / 8, seq % 1000 FROM seq_{first}_to_{last}"""


class Written:
    """A stretch of a binlog that was written beforehand, and a capture for each round that stands before it."""

    def __init__(
        self, captured: Captured, rounds: int, rows: int, write: Callable[[Database], object]
    ) -> None:
        """``write`` makes the changes of so many ``rows``."""
        self.captured = captured
        self._rows = rows
        name = captured.database.name
        self._captures = [captured.begin(f"{name}-{number}") for number in range(rounds)]
        self._dsn = parse_dsn(captured.database.dsn)
        with closing(connect(self._dsn)) as source:
            self._server_id = read_server(source).server_id
            self._begin = current_moment(source).gtids
            write(captured.database)
            self._end = current_place(source)
        self._sequence = captured.sequence()

    def measure(self, arm: str) -> Figures:
        """Read the stretch once: rows a second of the clock, and of processor time of the process that reads."""
        if arm == "capture":
            return drained(
                self.captured.run(self._captures.pop(), lambda found: found.sequence >= self._sequence)
            )
        return read_by(self._receive if arm == "payloads" else self._replicate, self._rows)

    def _receive(self) -> None:
        dump = BinlogDump.open(self._dsn, self._begin, _REPLICA_ID, server_id=self._server_id)
        file = ""
        for event in dump.payloads():
            if event[4] == 4:  # ROTATE: its body is an offset of 8 bytes, and the file's name
                file = event[27:].decode("ascii", "replace")
            if file.startswith(self._end.file) and int.from_bytes(event[13:17], "little") >= self._end.offset:
                break
        dump.release()

    def _replicate(self) -> None:
        address = urlsplit(self.captured.database.dsn)
        stream = BinLogStreamReader(
            connection_settings={
                "host": address.hostname,
                "port": address.port,
                "user": address.username,
                "passwd": unquote(address.password or ""),
            },
            server_id=_REPLICA_ID,
            is_mariadb=True,
            auto_position=str(self._begin),
            blocking=True,  # else it connects again and again where the binlog ends
            only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
            only_schemas=[self.captured.database.name],
        )
        rows = 0
        with closing(stream):
            for event in stream:
                rows += len(event.rows)
                if rows >= self._rows:
                    break


class Copied:
    """A table that is there before anything is captured."""

    def __init__(self, captured: Captured, table: str, rows: int) -> None:
        self.captured = captured
        self._select = f"SELECT * FROM {table}"  # noqa: S608  # a name of this file
        self._rows = rows
        self._number = 0

    def measure(self, arm: str) -> Figures:
        """Read all rows once."""
        if arm == "select":
            return read_by(self._read, self._rows)
        self._number += 1
        capture = self.captured.capture(f"copy-{self._number}")
        return drained(self.captured.run(capture, lambda found: found.entries >= self._rows))

    def _read(self) -> None:
        with self.captured.database.connect() as app, app.cursor(SSCursor) as cursor:
            cursor.execute(self._select)
            for _ in cursor:
                pass


class Live:
    """sysbench for some seconds, alone and under a capture."""

    def __init__(self, captured: Captured, table_rows: int, seconds: float) -> None:
        self.captured = captured
        self._words = ("--tables=4", f"--table-size={table_rows}", "oltp_read_write")
        self._seconds = seconds
        self._number = 0
        sysbench.run(captured.database, *self._words, "prepare")

    def measure(self, arm: str) -> Figures:
        """Transactions a second; if it is captured, how far the feed is behind the source, in seconds."""
        if arm == "alone":
            return {"tx/s": asyncio.run(self._follow(None))[0]}
        self._number += 1
        capture = self.captured.begin(f"live-{self._number}")
        watch = self.captured.watch(capture)
        stopped = watch.now()
        with capturing(capture) as process:
            # A WATERMARK says that it is at work.
            before = watch.until(lambda found: found.entries > stopped.entries, process)
            cpu = cpu_seconds(process.pid)
            speed, lags = asyncio.run(self._follow(capture))
            ended, sequence = time.perf_counter(), self.captured.sequence()
            last = watch.until(lambda found: found.sequence >= sequence, process)
            rows = last.entries - before.entries
            return {
                "tx/s": speed,
                "rows/s": rows / (last.at - ended + self._seconds),
                "rows/cpu-s": rows / (cpu_seconds(process.pid) - cpu),
                "lag-p50-s": statistics.median(lags),
                "lag-max-s": max(lags),
                "drain-s": last.at - ended,
            }

    async def _follow(self, capture: Capture | None) -> tuple[float, list[float]]:
        """Run sysbench, and look meanwhile how old the newest transaction is that the feed has."""
        first = self.captured.sequence()
        load = await asyncio.create_subprocess_exec(
            *sysbench.command(
                self.captured.database,
                *self._words,
                f"--threads={THREADS}",
                f"--time={self._seconds:g}",
                "run",
            ),
            stdout=subprocess.DEVNULL,
        )
        ending = asyncio.create_task(load.wait())
        lags: list[float] = []
        source: list[Sample] = []
        async with LogAppendClient(self.captured.server.grpc_address) as client:
            while not ending.done():
                await asyncio.wait({ending}, timeout=LOOK_S)
                source.append(Sample(time.perf_counter(), 0, self.captured.sequence()))
                if capture is not None:
                    held = (await self.captured.watch(capture).sample(client)).sequence
                    # The first look at which the source had more than the feed has now.
                    after = bisect_right(source, held, key=lambda one: one.sequence)
                    lags.append(source[-1].at - source[after].at if after < len(source) else 0.0)
        assert ending.result() == 0, "sysbench failed"
        return (self.captured.sequence() - first) / self._seconds, lags


def drained(drain: Drain) -> Figures:
    """What a run of a capture says."""
    return {
        "rows/s": drain.rows / drain.seconds,
        "rows/cpu-s": drain.rows / drain.cpu_s,
        "server-rows/cpu-s": drain.rows / drain.server_cpu_s,
        "rss-mb": drain.rss_mb,
    }


def read_by(read: Callable[[], None], rows: int) -> Figures:
    """What this process says when it reads so many rows."""
    begun, cpu = time.perf_counter(), time.process_time()
    read()
    return {
        "rows/s": rows / (time.perf_counter() - begun),
        "rows/cpu-s": rows / (time.process_time() - cpu),
    }


def fill(database: Database, rows: int, at_once: int) -> None:
    """Write the table of ten columns, so many rows a transaction."""
    database.sql(_TEN_COLUMNS)
    for first in range(1, rows + 1, at_once):
        database.sql(_TEN_VALUES.format(first=first, last=min(first + at_once - 1, rows)))


def drains(captured: Callable[[str], Captured], given: argparse.Namespace) -> list[Bench]:
    """Drain what sysbench wrote, and what was written in bulk."""
    conditions = {"rows": given.rows, "durability": DURABILITY}
    words = ("--tables=1", "--table-size=20000", "oltp_write_only")
    transactions = given.rows // SYSBENCH_CHANGES
    load = (*words, f"--threads={THREADS}", "--time=0", f"--events={transactions}", "run")
    source = captured("sysbench")
    sysbench.run(source.database, *words, "prepare")
    written = [
        Written(
            source,
            given.rounds,
            transactions * SYSBENCH_CHANGES,
            lambda database: sysbench.run(database, *load),
        ),
        Written(
            captured("bulk"),
            given.rounds,
            given.rows,
            lambda database: fill(database, given.rows, BULK_ROWS),
        ),
    ]
    found = []
    for one in written:
        bench = Bench("capture_drain", DRAINED, {"workload": one.captured.database.name, **conditions})
        bench.run(one.measure, given.rounds)
        found.append(bench)
    return found


def copies(captured: Callable[[str], Captured], given: argparse.Namespace) -> list[Bench]:
    """Copy the table of ten columns."""
    source = captured("copied")
    fill(source.database, given.rows, BULK_ROWS)
    bench = Bench("capture_snapshot", COPIED, {"rows": given.rows, "durability": DURABILITY})
    bench.run(Copied(source, "bulk", given.rows).measure, given.rounds)
    return [bench]


def lives(captured: Callable[[str], Captured], given: argparse.Namespace) -> list[Bench]:
    """Follow sysbench."""
    conditions = {"workload": "oltp_read_write", "threads": THREADS, "seconds": given.seconds}
    bench = Bench("capture_live", LIVE, conditions)
    bench.run(Live(captured("live"), 10_000, given.seconds).measure, given.rounds)
    return [bench]


def memory(captured: Callable[[str], Captured], given: argparse.Namespace) -> list[Bench]:
    """Drain the same rows in small transactions, and in a single one."""

    def measure(arm: str) -> Figures:
        source = captured(arm.replace("-", "_"))
        capture = source.begin(arm)
        fill(source.database, given.memory_rows, BULK_ROWS if arm == SIZES[0] else given.memory_rows)
        sequence = source.sequence()
        return drained(source.run(capture, lambda found: found.sequence >= sequence))

    bench = Bench("capture_memory", SIZES, {"rows": given.memory_rows})
    bench.run(measure, 1)
    return [bench]


PARTS = {"drain": drains, "snapshot": copies, "live": lives, "memory": memory}


def main() -> None:
    """Start MariaDB and the server, measure, and print what was found."""
    parser = arguments(__doc__, seconds=10, rounds=3)
    parser.add_argument("--rows", type=int, default=200_000, help="to drain or copy (default: %(default)s)")
    parser.add_argument(
        "--memory-rows", type=int, default=1_000_000, help="of one transaction (default: %(default)s)"
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="default: all")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        mariadb = stack.enter_context(Server(*CAPTURE_OPTIONS, *OPTIONS))
        server = ServerProcess(folder / "server", grpc=True)
        server.start()
        stack.callback(server.kill)

        def captured(name: str) -> Captured:
            return Captured(folder, mariadb.create_captured(name), server)

        benches = [bench for part in given.parts for bench in PARTS[part](captured, given)]
    publish(benches, ["rows/s", "rows/cpu-s", "rss-mb", "tx/s"], given.json)


if __name__ == "__main__":
    main()
