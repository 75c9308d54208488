"""``headrace pipeline tables`` as a process: its Java is killed with SIGKILL in the middle, and another one goes on."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.cli.spark_jobs import stopping
from headrace.pipeline.tables.job import Progress, Summary, run_tables
from headrace.pipeline.tables.ledger import read_published
from headrace.pipeline.tables.reader import iter_rows
from tests import forks
from tests.integration.pipeline.source_tables import ID, SourceTables, column
from tests.scenarios.spark_process import MASTER
from tests.waiting import wait_until


def command(*words: str) -> list[str]:
    return [*forks.HEADRACE, "pipeline", *words]


def published_up_to(to: str) -> int:
    found = read_published(Path(to))
    return found.sequence_id if found is not None else 0


def java_below(pid: int) -> int:
    """The Java that a command has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (java,) = [one for one in children if "java" in Path(f"/proc/{one}/cmdline").read_text()]
    return int(java)


def test_a_job_whose_java_is_killed_says_so_and_is_gone_on_with(
    spark: SparkSession, source: SourceTables, to: str, tmp_path: Path
) -> None:
    source.schema("accounts", ID, column("balance", "int64"))
    for number in range(10):
        source.put("accounts", {"id": number, "balance": 100})
    first = source.commit()
    last = first
    for number in range(200):  # each transaction moves money between two rows
        source.put("accounts", {"id": number % 10, "balance": 100 - number})
        source.put("accounts", {"id": (number + 1) % 10, "balance": 100 + number})
        last = source.commit()
    place = ["--feed", source.feed.name, "--to", to, "--server", source.feed.server.url]
    words = command("tables", *place, *MASTER, "--memory", "1g", "--once", "--max-entries", "12", "--json")
    output = tmp_path / "output"

    with output.open("wb") as file:
        process = forks.start(words, stdout=file, stderr=file, start_new_session=True)
    try:
        wait_until(
            lambda: (
                (published_up_to(to) > first and "progress" in output.read_text())
                or process.poll() is not None
            ),
            240,
            what="two batches",
        )
        assert process.poll() is None, output.read_text()
        os.kill(java_below(process.pid), signal.SIGKILL)
        wait_until(lambda: process.poll() is not None, 120, what="the command to end")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lines = output.read_text().splitlines()
    assert [line for line in lines if not line.startswith("{")] == [], "nothing but documents is said"
    *logged, ended = (json.loads(line) for line in lines)
    assert (process.returncode, ended["code"]) == (1, "spark-ended")
    assert ended["hint"]
    assert {one["event"] for one in logged} == {"tables begin", "progress"}, "nothing else is said"
    told = [one for one in logged if one["event"] == "progress"]
    assert 0 < told[-1]["sequence-id"] <= last
    assert told[-1]["lag"] > 0
    assert told[-1]["lag-seconds"] > 0
    assert [one["batches"] for one in told] == sorted({one["batches"] for one in told})
    assert published_up_to(to) < last
    run_tables(spark, feed=source.feed.name, to=to, server=source.feed.server.url, once=True)
    assert published_up_to(to) == last
    assert {row["id"]: row for _, row in iter_rows(to)} == source.rows["accounts"]


def test_a_job_follows_the_feed_until_it_is_stopped(
    spark: SparkSession, source: SourceTables, to: str
) -> None:
    stop = threading.Event()
    seen: list[Progress] = []
    done: list[Summary] = []
    source.object("put", "k", {"n": 0})
    last = source.commit()
    url = source.feed.server.url
    job = threading.Thread(
        target=lambda: done.append(
            run_tables(spark, feed=source.feed.name, to=to, server=url, stop=stop, progress=seen.append)
        )
    )

    def wait_for(wanted: int) -> None:
        wait_until(lambda: published_up_to(to) == wanted or not job.is_alive(), 120, what="the newest entry")

    job.start()
    try:
        for number in (1, 2):
            wait_for(last)
            assert job.is_alive()
            source.object("put", "k", {"n": number})
            last = source.commit()
        wait_for(last)
    finally:
        stop.set()
        job.join(120)
    assert done[0].batches >= 3
    assert seen[-1].lag is not None
    assert [row["value"] for _, row in iter_rows(to)] == ['{"n":2}']


def test_signals_stop_a_job_in_its_own_order() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stopping() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(10)
    assert signal.getsignal(signal.SIGTERM) is before


def test_mistakes_are_three_lines_and_cost_no_spark(source: SourceTables, to: str, tmp_path: Path) -> None:
    url = source.feed.server.url
    for words, code, exit_code in (
        (["--feed", "no::such", "--to", to, "--server", url], "feed-not-found", 1),
        (["--feed", source.feed.name, "--to", "s3a://bucket/x", "--server", url], "config-invalid", 2),
        (["--feed", "a feed", "--to", to], "invalid-request", 2),
    ):
        done = forks.run(command("tables", *words, "--json"), capture_output=True, text=True, check=False)
        assert done.returncode == exit_code, done.stderr
        assert json.loads(done.stdout)["code"] == code
        assert "Traceback" not in done.stderr
    environment = os.environ | {"HEADRACE_JARS": str(tmp_path / "none")}
    words = command("tables", "--feed", source.feed.name, "--to", to, "--server", url)
    done = forks.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert done.stderr.splitlines()[1] == "code: setup-missing"
    assert "headrace pipeline setup" in done.stderr
    assert not (Path(to) / "_headrace" / "tables.json").exists()
