"""A SparkSession with the settings that a change feed wants. Called by commands, tests and the demo.

Everything else in this room takes the session it is given, so users may bring their own.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from headrace.errors import SetupMissing
from headrace.pipeline.jars import DELTA, KAFKA, jars_folder, require
from headrace.pipeline.java import find_java
from headrace.pipeline.source.feed import register
from headrace.pipeline.tables.merge import EXACT_WRITES

SHUFFLE_PARTITIONS_MAX: Final = 8
"""More would be too small to be worth a task on one machine."""

ARROW_BATCH_BYTES_MAX: Final = 64 << 20
"""Bytes of rows that Spark hands a Python worker at once."""

SHORT_LIVED: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings that spend nothing on becoming quick later: they halve the time to the first results, and cost throughput."""

CHECKPOINT_MANAGER: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""Four times as quick on a local disk as the default; not for object stores."""


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is made of. ``log_file`` takes all that Spark and Python workers print."""

    log_file: Path
    name: str = "headrace"
    master: str = "local[*]"
    memory: str = "2g"
    kafka: bool = False
    short_lived: bool = False
    more: Mapping[str, str] = {}


def open_session(settings: SessionSettings) -> SparkSession:
    """Return a new session with ``format("headrace")`` and Delta Lake. Stop it with ``spark.stop()``.

    SetupMissing, naming what to run, if Java or a jar is not there: nothing is fetched here.
    """
    java = find_java()
    jars = require(jars_folder(), DELTA + (KAFKA if settings.kafka else ()))
    os.environ["JAVA_HOME"] = str(java.home)
    # Without it workers are the first `python3` on PATH, which need not have our packages.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    conf = SparkConf(loadDefaults=False).setMaster(settings.master).setAppName(settings.name)
    conf.setAll(list(_configuration(settings, [str(jar) for jar in jars]).items()))
    settings.log_file.parent.mkdir(parents=True, exist_ok=True)
    with settings.log_file.open("ab") as log:
        # The JVM and its Python workers keep this file as their stdout and stderr.
        try:
            gateway = launch_gateway(  # type: ignore[no-untyped-call]  # pyspark ships no types for it
                conf, popen_kwargs={"stdout": log, "stderr": log}
            )
        except PySparkRuntimeError as error:
            raise SetupMissing(
                f"Spark's Java ({java.home}) did not start: {error}",
                hint=f"Its own account is at the end of {settings.log_file}.",
            ) from None
    spark = SparkSession(SparkContext(conf=conf, gateway=gateway))
    register(spark)
    return spark


def _configuration(settings: SessionSettings, jars: list[str]) -> dict[str, str]:
    sockets = tempfile.mkdtemp(prefix="hr-")  # a socket's path may have some 100 characters
    atexit.register(shutil.rmtree, sockets, ignore_errors=True)
    partitions = min(SHUFFLE_PARTITIONS_MAX, max(2, os.cpu_count() or 2))
    found = {
        "spark.jars": ",".join(jars),
        "spark.driver.memory": settings.memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": sockets,
        "spark.python.daemon.module": "headrace.pipeline.daemon",
        "spark.sql.session.timeZone": "UTC",
        # Otherwise what a filter on dates and timestamps is given goes through a calendar that lacks ten days of 1582
        # and has no place for the least values: rows would be missed, or the query fail.
        "spark.sql.datetime.java8API.enabled": "true",
        # Rows may have a MiB each, and Arrow's offsets 31 bits.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BATCH_BYTES_MAX),
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_MANAGER,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Delta's default of 50 tasks to read a table's log makes each small merge ten times as slow.
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    if settings.master.startswith("local"):
        found |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if settings.short_lived:
        found |= SHORT_LIVED
    return found | EXACT_WRITES | dict(settings.more)
