"""A base, two restores and a drill of an archive: jobs of :mod:`tests.integration.pipeline.cluster.cluster_job`.

Every path of the plan is relative to the folder of the program: on workers it would be another one.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from pyspark.sql import SparkSession

from headrace.archive.moments.target import Asked
from headrace.entries.lsn import Lsn
from headrace.pipeline.bases.making import create_base
from headrace.pipeline.drill.job import Report, drill
from headrace.pipeline.restore.job import Kind, Request, restore
from headrace.pipeline.restore.outcome import Outcome
from headrace.wire.base_manifest import BaseManifest

SEED = 5


class BackupPlan(msgspec.Struct, frozen=True, kw_only=True):
    """``base`` and ``target``: LSNs. ``tables``: the feed whose tables are restored."""

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
    return restore(spark, _request(plan, Kind.TABLES)._replace(feeds=(plan.tables,), entries_max=100))


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
