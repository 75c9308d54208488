"""Captures of benches: a real MariaDB, a real server, and ``headrace capture run`` between them, watched from outside."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.support.harness import cpu_seconds
from headrace.capture.feed import position_of
from headrace.client.log_append import LogAppendClient
from headrace.errors import FeedNotFound
from tests.mariadb import Database
from tests.servers import Feed, ServerProcess

WAIT_S_MAX = 600.0
"""Longest wait for a capture to get somewhere."""

_AGENT = "capture"
_SAMPLE_S = 0.02
_STOP_S_MAX = 60.0


class Sample(NamedTuple):
    """Where a feed stood at a moment (``time.perf_counter()``): entries, and the last sequence number of its GTIDs."""

    at: float
    entries: int
    sequence: int


class Capture(NamedTuple):
    """A feed, and the settings of the capture that fills it."""

    feed: str
    config: Path

    def start(self) -> subprocess.Popen[str]:
        """Start ``headrace capture run``."""
        words = (sys.executable, "-m", "headrace.cli.app", "capture", "run", "--config", str(self.config))
        with self.config.with_suffix(".log").open("ab") as log:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True)

    def log(self) -> str:
        """What it wrote so far."""
        return self.config.with_suffix(".log").read_text("utf-8")


class Watch:
    """What a feed says of itself over gRPC."""

    def __init__(self, server: ServerProcess, feed: str) -> None:
        self._server = server
        self._feed = feed

    def now(self) -> Sample:
        """Where the feed stands now."""
        return self.until(lambda _: True)

    def until(
        self, reached: Callable[[Sample], bool], process: subprocess.Popen[str] | None = None
    ) -> Sample:
        """The first sample of which ``reached`` says so; fails if ``process`` ends before."""
        return asyncio.run(self._until(reached, process))

    async def _until(
        self, reached: Callable[[Sample], bool], process: subprocess.Popen[str] | None
    ) -> Sample:
        deadline = time.perf_counter() + WAIT_S_MAX
        async with LogAppendClient(self._server.grpc_address) as client:
            while not reached(found := await self.sample(client)):
                assert process is None or process.poll() is None, f"the capture of {self._feed} ended"
                assert time.perf_counter() < deadline, f"{self._feed} stands at {found}"
                await asyncio.sleep(_SAMPLE_S)
        return found

    async def sample(self, client: LogAppendClient) -> Sample:
        """Where the feed stands now."""
        try:
            end = await client.tail(self._feed, _AGENT)
        except FeedNotFound:
            return Sample(time.perf_counter(), 0, 0)
        position = position_of(end, self._feed, _AGENT)
        sequence = int(position.gtid.rpartition("-")[2]) if position is not None else 0
        return Sample(time.perf_counter(), end.next_sequence_id - 1, sequence)


class Drain(NamedTuple):
    """One run of a capture, from one moment at which it was at work to another.

    ``rows``: that went into the feed meanwhile. ``cpu_s`` and ``server_cpu_s``: processor time of the capture and of the
    server meanwhile. ``rss_mb``: the most memory that the capture had until the second one.
    """

    rows: int
    seconds: float
    cpu_s: float
    server_cpu_s: float
    rss_mb: float


@contextmanager
def capturing(capture: Capture) -> Iterator[subprocess.Popen[str]]:
    """A capture that runs; it is stopped at the end, as it should end."""
    process = capture.start()
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        process.wait(_STOP_S_MAX)
    finally:
        process.kill()
        process.wait(_STOP_S_MAX)
    assert process.returncode == 0, capture.log()


class Captured:
    """A database that is captured into one feed after the other, each by a capture of its own."""

    def __init__(self, folder: Path, database: Database, server: ServerProcess) -> None:
        self.folder = folder
        self.database = database
        self.server = server
        self._source = database.server.connect_as_root()

    def capture(self, feed: str) -> Capture:
        """A capture of the database into ``feed``."""
        config = self.folder / f"{feed}.toml"
        settings = {
            "feed": feed,
            "server": self.server.url,
            "grpc": self.server.grpc_address,
            "dsn": self.database.dsn,
            "state-dir": str(self.folder / feed),
        }
        text = [f'{name} = "{value}"' for name, value in settings.items()]
        text.append(f'tables = ["{self.database.name}.*"]')
        config.write_text("\n".join(text))
        return Capture(feed, config)

    def begin(self, feed: str) -> Capture:
        """A capture that was stopped behind its initial snapshot, so that it has to drain what comes."""
        capture = self.capture(feed)
        held = Feed(self.server, feed)

        def is_whole(found: Sample) -> bool:
            # No WATERMARK comes before the snapshot is whole; in a quiet source nothing else comes then.
            return found.entries > 0 and held.entries(found.entries)[-1].get("control") == "watermark"

        with capturing(capture) as process:
            self.watch(capture).until(is_whole, process)
        return capture

    def watch(self, capture: Capture) -> Watch:
        """What the capture's feed says of itself."""
        return Watch(self.server, capture.feed)

    def sequence(self) -> int:
        """The sequence number of the source's last GTID."""
        with self._source.cursor() as cursor:
            cursor.execute("SELECT @@GLOBAL.gtid_binlog_pos")
            ((text,),) = cursor.fetchall()
        return int(text.rpartition("-")[2])

    def run(self, capture: Capture, reached: Callable[[Sample], bool]) -> Drain:
        """Run a capture until the feed's place is ``reached``; what it did is counted from its first append on."""
        watch = self.watch(capture)
        before = watch.now()
        with capturing(capture) as process:
            moved = watch.until(lambda found: found.entries > before.entries, process)
            cpu, server_cpu = cpu_seconds(process.pid), cpu_seconds(self.server.pid)
            last = watch.until(reached, process)
            return Drain(
                last.entries - moved.entries,
                last.at - moved.at,
                cpu_seconds(process.pid) - cpu,
                cpu_seconds(self.server.pid) - server_cpu,
                rss_mb_max(process.pid),
            )


def rss_mb_max(pid: int) -> float:
    """The most memory that a process has had at once, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise AssertionError(f"/proc/{pid}/status does not say VmHWM")
