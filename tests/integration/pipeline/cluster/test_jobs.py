"""Jobs on a real cluster of two workers, which die in the middle of them: what they make is whole.

All but the command share one session (:class:`tests.integration.pipeline.cluster.programs.Program`).
"""

from __future__ import annotations

import json
import os
import random
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.backup.verifying.archive_check import verify
from headrace.pipeline.audit.verdicts import Audit
from headrace.pipeline.connection import Endpoint
from headrace.pipeline.restore.out import OUTCOME
from headrace.pipeline.tables.reader import iter_rows
from tests import forks
from tests.identities import age_identity
from tests.identity import Issuer
from tests.integration.pipeline.cluster.backup_history import long_history, put_archive
from tests.integration.pipeline.cluster.backup_job import STEPS, BackupPlan
from tests.integration.pipeline.cluster.captured_history import (
    BULK_ROW_BYTES,
    BULK_ROWS,
    bulk_history,
    captured_history,
    rows_by_table,
)
from tests.integration.pipeline.cluster.cluster_job import LATE_BATCH, Plan
from tests.integration.pipeline.cluster.programs import (
    END_S_MAX,
    Program,
    account,
    published_up_to,
    running,
)
from tests.integration.pipeline.kafka.topic_reader import (
    Rebuilt,
    check_first_sendings,
    read_topic,
)
from tests.integration.pipeline.restore.history import VM, State
from tests.integration.pipeline.restore.restoring import keys_in
from tests.integration.pipeline.sink.folder_job import FolderJob
from tests.integration.pipeline.source.queries import archived, oldest, post
from tests.kafka import Broker
from tests.scale import SEED, chosen
from tests.secured import secured
from tests.servers import Feed, ServerProcess, serving
from tests.spark_cluster import SECOND_EXECUTOR_MEMORY
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(3 * END_S_MAX)

BATCHES, ROWS = 4, 20
TOPIC = "cluster"
PARTITIONS = 8
BEGUN_BYTES = 20 * BULK_ROW_BYTES
BY_KEY = "[sink]\ndispatchers = [{matcher = ['*.*'], partition = 'index-value'}]"
RESTORES = dict(chosen([("kv", ("keys", 0)), ("tables", ("*/*/_delta_log", 1))]))
"""Kind of a restore -> the files that tell that it is in its middle, and the worker that dies then."""


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("open"), grpc=True) as started:
        yield started


def test_a_sink_while_a_worker_dies(program: Program, open_server: ServerProcess) -> None:
    """A task has two attempts at once in another batch."""
    written = Feed(open_server, "written")
    job = FolderJob(program.folder / "sink", open_server.url, open_server.grpc_address, written.name)
    for number in range(BATCHES):
        job.batch(*range(number * ROWS, (number + 1) * ROWS))
    plan = Plan(jobs=("sink",), server=open_server.url, grpc=open_server.grpc_address, written=written.name)
    program.start(plan)
    # Behind the batch whose task is tried twice.
    program.comes(lambda: head(written) > ROWS * (LATE_BATCH + 1), what="batches of the sink")
    assert head(written) < ROWS * BATCHES
    program.kill_worker(0, before="sink")
    program.done()
    assert [entry["changes"]["n"] for entry in written.entries()] == list(range(BATCHES * ROWS))
    assert {file.name for file in (program.folder / "sink" / "attempts").iterdir()} >= {"0", "1"}


def head(feed: Feed) -> int:
    answer = feed.server.http.get(f"{feed.path}/tail")
    return int(answer.json()["next-sequence-id"]) - 1 if answer.status_code == 200 else 0


def passed_feed(folder: Path, feed: Feed, endpoint: Endpoint) -> int:
    """Fill a feed, archive it, and let retention drop some of it; returns how many entries it had."""
    assert feed.register().status_code == 200
    for first in range(1, 45, 4):
        post(feed, first, 4)
    archived(feed, folder, 1, 44, endpoint)
    feed.server.args += ["--retention", "1ms", "--retention-every", "100ms"]
    feed.server.restart()
    assert feed.register().status_code == 200
    wait_until(lambda: oldest(feed) > 20, what="retention to drop what is archived")
    return 44


def test_a_feed_and_its_archive_are_read_by_relative_paths(program: Program) -> None:
    folder, issuer = program.folder, Issuer()
    (folder / "token").write_text(issuer.token())
    with secured(folder / "secured", issuer, args=("--segment-size", "4k"), tls=True) as server:
        assert server.authority is not None
        kept = Feed(server, "kept")
        endpoint = Endpoint(server.url, str(folder / "token"), str(server.authority.file))
        count = passed_feed(folder / "archive", kept, endpoint)
        source = {
            "endpoint": server.url,
            "feeds": kept.name,
            "token-file": "token",
            "ca-file": str(server.authority.file.relative_to(folder)),
            "partition-entries": "15",
        }
        program.start(Plan(jobs=("reads",), source=source, archive="archive"))
        done = program.done()
    wanted = [[number, f'{{"n":{number}}}'] for number in range(1, count + 1)]
    assert done["reads"] == {"feed": wanted, "segments": wanted}


def test_rows_are_written_to_kafka_while_a_worker_dies(program: Program, open_server: ServerProcess) -> None:
    topical = Feed(open_server, "topical")
    assert topical.register().status_code == 200
    wanted = bulk_history(topical)
    with Broker() as broker:
        plan = Plan(
            jobs=("kafka",),
            server=open_server.url,
            topical=topical.name,
            sink=f"kafka://{broker.address}/{TOPIC}?partition-num={PARTITIONS}",
            changefeed=BY_KEY,
        )
        program.start(plan)
        # Its files tell it sooner than a consumer would.
        program.comes(lambda: broker.written(TOPIC) > BEGUN_BYTES, what="rows in the topic")
        broker.pause()  # nothing is written to its end
        try:
            program.kill_worker(program.busy_worker(), before="kafka")
        finally:
            broker.resume()
        done = program.done()
        partitions = read_topic(broker.address, TOPIC)
    assert done["kafka"]["batches"] == 1
    assert done["kafka"]["rows"] > BULK_ROWS
    assert len(partitions) == PARTITIONS
    assert all(partitions)
    check_first_sendings(partitions)
    rebuilt = Rebuilt().read(partitions, random.Random(SEED))
    assert rebuilt.waiting == 0
    assert rebuilt.tables == wanted


def test_restores_and_a_drill_of_an_archive_in_s3_while_workers_die(program: Program, s3_url: str) -> None:
    """Another worker dies in each kind of restore, and nothing of the result differs; a short run has one kind of them."""
    history, base, target = long_history()
    put_archive(history, s3_url, age_identity(program.folder / "key.txt"))
    backup = BackupPlan(archive=s3_url, identity="key.txt", base=str(base), target=str(target), tables=VM)
    jobs = tuple(name for name in STEPS if name in {"base", "drill", *RESTORES})
    program.start(Plan(jobs=jobs, backup=backup))
    for kind, (begun, worker) in RESTORES.items():
        out = program.folder / f"out-{kind}"
        program.comes(
            lambda: list(out.glob(f"_restoring-*/{begun}")),  # noqa: B023  # called at once
            what=f"the middle of a restore of {kind}",
        )
        program.kill_worker(worker, before=kind)
        assert not (out / OUTCOME).exists()
        program.cluster.restart_worker(worker)
        program.comes(lambda: program.is_done(kind), what=f"a restore of {kind}")  # noqa: B023  # called at once
    done = program.done()
    wanted = history.at(target)
    for kind in RESTORES:
        assert done[kind]["plan"]["base"]["lsn"] == str(base)
        check_restored(program.folder / f"out-{kind}", kind, done[kind]["feeds"], wanted)
    assert (done["drill"]["equal"], done["drill"]["left-out"]) == (True, [])
    assert list(program.folder.glob("headrace-drill-*")) == []
    assert verify(s3_url, identity=str(program.folder / "key.txt")).findings == []


def check_restored(out: Path, kind: str, feeds: list[dict[str, Any]], wanted: State) -> None:
    """Compare what was restored with what the history has."""
    if kind == "kv":
        assert keys_in(out) == wanted
        return
    (feed,) = feeds
    rows = {row["key"]: row["value"] for _, row in iter_rows(str(out / feed["folder"]))}
    assert rows == {key.decode(): row[0].decode() for (name, key), row in wanted.items() if name == VM}


def own_python(folder: Path) -> Path:
    """A Python under another name, which leaves a mark where it ran."""
    program = folder / "their-python"
    program.write_text(f'#!/bin/sh\necho ran >> "{folder}/marks"\nexec {shlex.quote(sys.executable)} "$@"\n')
    program.chmod(0o755)
    return program


def test_the_command_for_tables_on_workers_with_a_python_of_their_own_while_one_dies_then_an_audit(
    program: Program, open_server: ServerProcess, tmp_path: Path
) -> None:
    """What the command keeps is audited in the other session, by a relative path."""
    cluster, captured = program.cluster, Feed(open_server, "captured")
    assert captured.register().status_code == 200
    history = captured_history(captured)
    to = str(program.folder / "there")
    words = [*forks.HEADRACE, "pipeline", "tables", "--feed", captured.name]
    words += ["--to", to, "--server", open_server.url, "--once", "--max-entries", "10", "--json"]
    words += ["--log-file", "spark.log"]
    words += ["--master", cluster.url, "--memory", "1g", "--executor-memory", SECOND_EXECUTOR_MEMORY]
    # The name of this machine need not be one that it knows.
    words += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]
    words += ["--conf", "spark.sql.shuffle.partitions=2"]
    before = set(cluster.executors())
    env = os.environ | {"PYSPARK_PYTHON": str(own_python(tmp_path))}
    with running(words, tmp_path, env=env) as job:
        wait_until(lambda: published_up_to(to) > 0 or job.poll() is not None, END_S_MAX, what="a first batch")
        assert job.poll() is None, account(cluster, tmp_path)
        assert len(set(cluster.executors()) - before) >= 2
        cluster.kill_worker(0)
        assert published_up_to(to) < head(captured)
        wait_until(lambda: job.poll() is not None, END_S_MAX, what="the job to end")
    assert job.returncode == 1, account(cluster, tmp_path)
    said = json.loads((tmp_path / "output").read_text())
    assert [one["table"][1] for one in said["stopped"]] == ["odd"]
    assert said["batches"] >= 2
    assert "Lost executor" in (tmp_path / "spark.log").read_text()
    assert "ran" in (tmp_path / "marks").read_text()
    assert published_up_to(to) == head(captured)
    rows = {name: found for name, found in history.tables.items() if found}
    assert rows_by_table(to) == rows
    program.start(Plan(jobs=("audit",), server=open_server.url, tables="there"))
    audit = msgspec.convert(program.done()["audit"]["audit"], Audit)
    assert audit.equal, audit
    assert {one.table[-1] for one in audit.tables if one.stopped_after is not None} == {"odd"}
    assert {
        one.table[-1]: one.feed.rows for one in audit.tables if one.feed is not None and one.feed.rows
    } == {name: len(found) for name, found in rows.items()}
