"""A base, two restores and a drill of an archive in one session on a cluster: what a test runs as a program.

``python -m tests.integration.pipeline.cluster.backup_job PLAN.json`` writes ``NAME.json`` beside the plan when a step is
done. Every path of the plan is relative to its folder: on workers it would be another one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from headrace.archive.moments.target import Asked
from headrace.entries.lsn import Lsn
from headrace.pipeline.bases.making import create_base
from headrace.pipeline.drill.job import Report, drill
from headrace.pipeline.restore.job import Kind, Request, restore
from headrace.pipeline.restore.outcome import Outcome
from headrace.pipeline.session import SessionSettings, open_session, stop_session
from headrace.wire.base_manifest import BaseManifest

SEED = 5


class BackupPlan(msgspec.Struct, frozen=True, kw_only=True):
    """``base`` and ``target``: LSNs. ``tables``: the feed whose tables are restored. ``fsspec``: how workers find S3."""

    master: str
    executor_memory: str
    fsspec: str
    archive: str
    identity: str
    base: str
    target: str
    tables: str


def run_base(spark: SparkSession, plan: BackupPlan) -> BaseManifest:
    """Make a base in the archive."""
    return create_base(spark, plan.archive, at=Lsn.parse(plan.base), identity=plan.identity, buckets=4)


def run_kv(spark: SparkSession, plan: BackupPlan) -> Outcome:
    """Restore keys and values."""
    return restore(spark, _request(plan, Kind.KV))


def run_tables(spark: SparkSession, plan: BackupPlan) -> Outcome:
    """Restore tables, in several batches."""
    return restore(spark, _request(plan, Kind.TABLES)._replace(feeds=(plan.tables,), entries_max=200))


def run_drill(spark: SparkSession, plan: BackupPlan) -> Report:
    """Drill."""
    return drill(spark, plan.archive, seed=SEED, scratch=".", identity=plan.identity)


def _request(plan: BackupPlan, kind: Kind) -> Request:
    return Request(
        archive=plan.archive,
        asked=Asked(to_lsn=Lsn.parse(plan.target)),
        out=f"out-{kind.value}",
        kind=kind,
        identity=plan.identity,
    )


Step = Callable[[SparkSession, BackupPlan], msgspec.Struct]
STEPS: dict[str, Step] = {"base": run_base, "kv": run_kv, "tables": run_tables, "drill": run_drill}


def main(file: str) -> None:
    """Run the steps in their order."""
    plan = msgspec.json.decode(Path(file).read_bytes(), type=BackupPlan)
    settings = SessionSettings(
        log_file=Path("spark.log"),
        master=plan.master,
        memory="1g",
        executor_memory=plan.executor_memory,
        short_lived=True,
        more={
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executorEnv.FSSPEC_CONFIG_DIR": plan.fsspec,
        },
    )
    spark = open_session(settings)
    for name, run in STEPS.items():
        done = Path(f"{name}.json.new")
        done.write_bytes(msgspec.json.encode(run(spark, plan)))
        done.rename(f"{name}.json")
    stop_session(spark)


if __name__ == "__main__":
    main(sys.argv[1])
