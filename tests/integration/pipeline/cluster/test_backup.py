"""Restores and a drill on a real cluster of two workers, each of which dies once: what they make is what the log says."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from headrace.backup.verifying.archive_check import verify
from headrace.pipeline.restore.out import OUTCOME
from headrace.pipeline.tables.job import read_tables
from tests.identities import age_identity
from tests.integration.pipeline.cluster import backup_job
from tests.integration.pipeline.cluster.backup_history import long_history, put_archive
from tests.integration.pipeline.cluster.programs import END_S_MAX, ROOT, account, running
from tests.integration.pipeline.restore.history import VM
from tests.integration.pipeline.restore.restoring import keys_in
from tests.s3 import S3Server
from tests.spark_cluster import EXECUTOR_MEMORY, SparkCluster
from tests.waiting import wait_until


@pytest.mark.timeout(2 * END_S_MAX)
def test_restores_and_a_drill_of_an_archive_in_s3_while_workers_die(
    spark: SparkSession, cluster: SparkCluster, s3: S3Server, s3_url: str, tmp_path: Path
) -> None:
    """One worker dies while keys are restored, the other one while tables are: nothing of the result differs."""
    history, base, target = long_history()
    put_archive(history, s3_url, age_identity(tmp_path / "key.txt"))
    (tmp_path / "fsspec").mkdir()
    (tmp_path / "fsspec" / "s3.json").write_text(json.dumps({"s3": s3.config}))
    plan = backup_job.BackupPlan(
        master=cluster.url,
        executor_memory=EXECUTOR_MEMORY,
        fsspec=str(tmp_path / "fsspec"),
        archive=s3_url,
        identity="key.txt",
        base=str(base),
        target=str(target),
        tables=VM,
    )
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(plan))
    words = [sys.executable, "-m", "tests.integration.pipeline.cluster.backup_job", "plan.json"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with running(words, tmp_path, **s3.env | {"PYTHONPATH": path}) as process:

        def restored(kind: str, begun: str, worker: int) -> None:
            """Kill a worker once ``begun`` is below the folder that is written, and wait for the end of this restore."""
            out, done = tmp_path / f"out-{kind}", tmp_path / f"{kind}.json"
            wait_until(
                lambda: list(out.glob(f"_restoring-*/{begun}")) or process.poll() is not None,
                END_S_MAX,
                what=f"the middle of a restore of {kind}",
            )
            assert process.poll() is None, account(cluster, tmp_path)
            cluster.kill_worker(worker)
            assert not (out / OUTCOME).exists()
            wait_until(
                lambda: done.exists() or process.poll() is not None, END_S_MAX, what=f"a restore of {kind}"
            )

        restored("kv", "keys", 0)
        cluster.restart_worker(0)
        restored("tables", "*/*/_delta_log", 1)
        wait_until(lambda: process.poll() is not None, END_S_MAX, what="the steps to end")
        assert process.returncode == 0, account(cluster, tmp_path)
    done = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in backup_job.STEPS}
    assert (tmp_path / "spark.log").read_text().count("Lost executor") >= 2
    assert [done[kind]["plan"]["base"]["lsn"] for kind in ("kv", "tables")] == [str(base)] * 2
    wanted = history.at(target)
    assert keys_in(spark, tmp_path / "out-kv") == wanted
    (feed,) = done["tables"]["feeds"]
    rows = read_tables(spark, str(tmp_path / "out-tables" / feed["folder"]))[()].collect()
    assert {row["key"]: row["value"] for row in rows} == {
        key.decode(): row[0].decode() for (name, key), row in wanted.items() if name == VM
    }
    assert (done["drill"]["equal"], done["drill"]["left-out"]) == (True, [])
    assert list(tmp_path.glob("headrace-drill-*")) == []
    assert verify(s3_url, identity=str(tmp_path / "key.txt")).findings == []
