"""``format("headrace")`` on local[2], with the server on the same processors: entries a second, latency, cost of a batch.

- ``throughput``: a whole feed of 256-byte values to noop. The bare limit is Spark that reads the same rows from Parquet.
  ``entries/cpu-s`` counts the server, Spark's Java and all Python workers: it hardly depends on what else runs.
- ``batches``: the same feed as a stream of small batches, drained to noop. The bare limit is Spark's own rate source.
- ``latency``: from the durable append to what hears of it. The bare limit is a long poll over HTTP; the arm is foreachBatch
  called, with the rows collected in ``collected-ms``.

``session-s`` is how long opening the session took, ``first-read-s`` the first read in it.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from bench.support.harness import Bench, Figures, arguments, publish
from bench.support.journal import FEED, VALUE_BYTES, write_journal
from bench.support.process_tree import cpu_s_of_tree
from headrace.pipeline.session import SessionSettings, open_session
from tests.servers import Feed, ServerProcess

PER_FRAME: Final = 1_000
WAIT_S_MAX: Final = 60.0
LIVE: Final = "live"


class Subject:
    """The server, its feed, the session, and Parquet files of the same rows."""

    def __init__(self, folder: Path, entries: int) -> None:
        self.folder = folder
        write_journal(folder / "data", entries, PER_FRAME)
        self.server = ServerProcess(folder, data_dir=folder / "data")
        self.server.start()
        self.entries = int(self.server.http.get(Feed(self.server, FEED).path).json()["head-sequence-id"])
        begun = time.perf_counter()
        checkpoints = str(folder / "checkpoints")
        settings = SessionSettings(log_file=folder / "spark.log", master="local[2]", checkpoint=checkpoints)
        self.spark = open_session(settings)
        self.session_s = time.perf_counter() - begun
        begun = time.perf_counter()
        self.read(1).count()
        self.first_read_s = time.perf_counter() - begun
        self.parquet = str(folder / "rows.parquet")
        self.read().write.option("compression", "none").parquet(self.parquet)

    def read(self, last: int | None = None) -> DataFrame:
        """A batch read of the feed."""
        given = {"endpoint": self.server.url, "feeds": FEED} | ({"end": str(last)} if last else {})
        return self.spark.read.format("headrace").options(**given).load()

    def cpu_s(self) -> float:
        """Processor time that Spark with its workers and the server have used so far."""
        gateway = self.spark.sparkContext._gateway
        assert gateway is not None
        return cpu_s_of_tree(gateway.proc.pid) + cpu_s_of_tree(self.server.pid)

    def close(self) -> None:
        """Stop both."""
        self.spark.stop()
        self.server.kill()


def throughput(subject: Subject, arm: str) -> Figures:
    """Read all rows once, to noop."""
    rows = subject.read() if arm == "headrace" else subject.spark.read.parquet(subject.parquet)
    begun, begun_cpu = time.perf_counter(), subject.cpu_s()
    rows.write.format("noop").mode("overwrite").save()
    took, cpu_s = time.perf_counter() - begun, subject.cpu_s() - begun_cpu
    return {
        "entries/s": subject.entries / took,
        "mb/s": subject.entries * VALUE_BYTES / took / 1e6,
        "entries/cpu-s": subject.entries / cpu_s,
    }


def batches(subject: Subject, arm: str, count: int, rows: int) -> Figures:
    """Stream ``count`` batches of ``rows`` rows to noop; the first, which plans and compiles, is not counted."""
    if arm == "headrace":
        last = count * rows
        given = {"endpoint": subject.server.url, "feeds": FEED, "max-entries": str(rows)}
        given["start"] = str(subject.entries - last + 1)
    else:
        given = {"rowsPerBatch": str(rows), "numPartitions": "1"}
    stream = subject.spark.readStream.format(arm).options(**given).load()
    with tempfile.TemporaryDirectory(dir=subject.folder) as folder:
        writer = stream.writeStream.format("noop").option("checkpointLocation", folder)
        query = writer.start()
        _wait(lambda: _batch(query) >= 0)
        begun, first = time.perf_counter(), _batch(query)
        _wait(lambda: _batch(query) >= count - 1)
        took, done = time.perf_counter() - begun, _batch(query) - first
        query.stop()
    return {"batch-ms": took / done * 1000}


def _batch(query: StreamingQuery) -> int:
    if (error := query.exception()) is not None:
        raise error
    progress = query.lastProgress
    return -1 if progress is None else int(progress.batchId)


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + WAIT_S_MAX
    while not condition():
        if time.perf_counter() > deadline:
            raise TimeoutError("what was waited for did not come")
        time.sleep(0.002)


class Heard:
    """When the newest entry was heard of: by a long poll, or by a foreachBatch function."""

    def __init__(self) -> None:
        self.called = self.collected = 0.0
        self._some = threading.Event()

    def note(self, called: float, collected: float) -> None:
        """Note that entries were heard of."""
        self.called, self.collected = called, collected
        self._some.set()

    def wait(self) -> None:
        """Wait until something was heard of since the last call."""
        if not self._some.wait(WAIT_S_MAX):
            raise TimeoutError("nothing was heard of an append")
        self._some.clear()


def latency(subject: Subject, arm: str, seconds: float) -> Figures:
    """Append an entry every half second, and take the time from the answer to whoever waits for it."""
    feed, heard, stop = Feed(subject.server, LIVE), Heard(), threading.Event()
    feed.register().raise_for_status()
    end = _by_stream(subject, heard) if arm == "foreachBatch" else _by_poll(feed, heard, stop)
    called, collected = [], []
    until = time.perf_counter() + seconds
    for number in range(10**6):
        feed.post({"changes": {"value": "x" * VALUE_BYTES}}).raise_for_status()
        durable = time.perf_counter()
        heard.wait()
        if number >= 3:  # the first ones compile
            called.append((heard.called - durable) * 1000)
            collected.append((heard.collected - durable) * 1000)
        if durable > until:
            break
        time.sleep(0.5)
    stop.set()
    end()
    return {
        "called-p50-ms": statistics.median(called),
        "called-max-ms": max(called),
        "collected-p50-ms": statistics.median(collected),
    }


def _by_stream(subject: Subject, heard: Heard) -> Callable[[], None]:
    def take(frame: DataFrame, _: int) -> None:
        called = time.perf_counter()
        if frame.collect():
            heard.note(called, time.perf_counter())

    given = {"endpoint": subject.server.url, "feeds": LIVE, "start": "head"}
    stream = subject.spark.readStream.format("headrace").options(**given).load()
    folder = tempfile.mkdtemp(dir=subject.folder)
    query = stream.writeStream.foreachBatch(take).option("checkpointLocation", folder).start()
    _wait(lambda: _batch(query) >= 0)
    return query.stop


def _by_poll(feed: Feed, heard: Heard, stop: threading.Event) -> Callable[[], None]:
    feed.listener("bare").raise_for_status()
    head = feed.server.http.get(feed.path).json()["head-sequence-id"]

    def poll() -> None:
        after = head
        with httpx.Client(base_url=feed.server.url, timeout=70, trust_env=False) as client:
            while not stop.is_set():
                params = {"listener-id": "bare", "after-sequence-id": after, "timeout-ms": 1000}
                answer = client.get(f"/feeds/{quote(feed.name)}/poll", params=params).json()
                if answer["changes-list"]:
                    now = time.perf_counter()
                    heard.note(now, now)
                after = answer["last-sequence-id"] or after

    thread = threading.Thread(target=poll)
    thread.start()
    return thread.join


def main() -> None:
    """Measure all three by turns, and print what was found."""
    parser = arguments(__doc__, seconds=20, rounds=5)
    parser.add_argument(
        "--entries", type=int, default=4_000_000, help="entries of the feed (default: %(default)s)"
    )
    parser.add_argument(
        "--batches", type=int, default=50, help="small batches of one run (default: %(default)s)"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as temporary:
        subject = Subject(Path(temporary), given.entries)
        conditions = {
            "entries": subject.entries,
            "session-s": round(subject.session_s, 2),
            "first-read-s": round(subject.first_read_s, 2),
        }
        read = Bench("pipeline_source throughput", ("parquet", "headrace"), conditions)
        read.run(lambda arm: throughput(subject, arm), given.rounds)
        small = {"batches": given.batches, "rows": PER_FRAME}
        stream = Bench("pipeline_source batches", ("rate-micro-batch", "headrace"), small)
        stream.run(lambda arm: batches(subject, arm, given.batches, PER_FRAME), given.rounds)
        live = Bench("pipeline_source latency", ("long-poll", "foreachBatch"), {"seconds": given.seconds})
        live.run(lambda arm: latency(subject, arm, given.seconds), given.rounds)
        subject.close()
        figures = [
            "entries/s",
            "mb/s",
            "entries/cpu-s",
            "batch-ms",
            "called-p50-ms",
            "called-max-ms",
            "collected-p50-ms",
        ]
        publish([read, stream, live], figures, given.json)


if __name__ == "__main__":
    main()
