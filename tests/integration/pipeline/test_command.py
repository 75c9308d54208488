"""``headrace pipeline tables`` as a process: killed with SIGKILL in the middle, and gone on with by another one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.ledger import read_published
from headrace.pipeline.tables import iter_rows, run_tables
from tests.integration.pipeline.source_tables import ID, SourceTables, column
from tests.waiting import wait_until


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "headrace.cli.app", "pipeline", *words]


def published_up_to(to: str) -> int:
    found = read_published(Path(to))
    return found.sequence_id if found is not None else 0


@pytest.mark.timeout(600)
def test_a_job_that_is_killed_is_gone_on_with(
    spark: SparkSession, source: SourceTables, to: str, tmp_path: Path
) -> None:
    source.schema("accounts", ID, column("balance", "int64"))
    for number in range(10):
        source.put("accounts", {"id": number, "balance": 100})
    first = source.commit()
    words = command(
        "tables", "--feed", source.feed.name, "--to", to, "--master", "local[2]", "--memory", "1g"
    )
    errors = tmp_path / "stderr"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [*words, "--server", source.feed.server.url], stderr=stderr, stdout=stderr, start_new_session=True
        )
    try:
        wait_until(lambda: published_up_to(to) >= first or process.poll() is not None, 300, what="tables")
        assert process.poll() is None, errors.read_text()
        rounds = 0
        while published_up_to(to) < first + 4:  # each round moves money between two rows
            rounds += 1
            assert rounds < 20_000
            source.put("accounts", {"id": rounds % 10, "balance": 100 - rounds})
            source.put("accounts", {"id": (rounds + 1) % 10, "balance": 100 + rounds})
            source.commit()
            shown = [row for _, row in iter_rows(spark, to)]
            assert len(shown) == 10
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert errors.read_text() == ""
    run_tables(spark, feed=source.feed.name, to=to, server=source.feed.server.url, once=True)
    assert {row["id"]: row for _, row in iter_rows(spark, to)} == source.rows["accounts"]


def test_mistakes_are_three_lines_and_cost_no_spark(source: SourceTables, to: str, tmp_path: Path) -> None:
    url = source.feed.server.url
    for words, code, exit_code in (
        (["--feed", "no::such", "--to", to, "--server", url], "feed-not-found", 1),
        (["--feed", source.feed.name, "--to", "s3a://bucket/x", "--server", url], "config-invalid", 2),
        (["--feed", "a feed", "--to", to], "invalid-request", 2),
    ):
        done = subprocess.run(
            command("tables", *words, "--json"), capture_output=True, text=True, check=False
        )
        assert done.returncode == exit_code, done.stderr
        assert json.loads(done.stdout)["code"] == code
        assert "Traceback" not in done.stderr
    environment = os.environ | {"HEADRACE_JARS": str(tmp_path / "none")}
    words = command("tables", "--feed", source.feed.name, "--to", to, "--server", url)
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert done.stderr.splitlines()[1] == "code: setup-missing"
    assert "headrace pipeline setup" in done.stderr
    assert not (Path(to) / "_headrace" / "tables.json").exists()
