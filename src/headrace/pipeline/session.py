"""A SparkSession with the settings that a change feed wants. Called by commands, tests and the demo.

Everything else in this room takes the session it is given, so users may bring their own.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from headrace.errors import SetupMissing, Usage
from headrace.pipeline.checkpoint_folder import MANAGER, manager_of
from headrace.pipeline.jars import DELTA, KAFKA, jars_folder, require
from headrace.pipeline.java import find_java
from headrace.pipeline.source.feed import register
from headrace.pipeline.spark_home import MASTERS, spark_home
from headrace.pipeline.spark_log import watch
from headrace.pipeline.tables.merge import EXACT_WRITES

SHUFFLE_PARTITIONS_MAX: Final = 8
"""More would be too small to be worth a task on one machine."""

ARROW_BATCH_BYTES_MAX: Final = 64 << 20
"""Bytes of rows that Spark hands a Python worker at once."""

SECRETS: Final = "(?i)secret|password|token|access[.]?key|keystore|jaas"
"""Settings and options that plans and event logs show without their values: Spark's own, and Kafka's keys as text."""

SHORT_LIVED: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings that spend nothing on becoming quick later: they halve the time to the first results, and cost throughput."""

_PYTHON: Final = "spark.pyspark.python"


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is made of. ``log_file`` takes all that Spark and Python workers print; it is kept small.

    ``memory``: of the driver, and with a local master of all. ``executor_memory`` (of each executor) and ``cores_max`` (of
    all executors together; None: all that the cluster has) are for a cluster. ``checkpoint``: the folder of the session's
    queries, if it is one; on a local disk it is kept in a quicker way. ``more``: Spark's own settings, which win.
    """

    log_file: Path
    name: str = "headrace"
    master: str = "local[*]"
    memory: str = "2g"
    executor_memory: str = "1g"
    cores_max: int | None = None
    checkpoint: str = ""
    kafka: bool = False
    short_lived: bool = False
    more: Mapping[str, str] = {}


def open_session(settings: SessionSettings) -> SparkSession:
    """Return a new session with ``format("headrace")`` and Delta Lake. Stop it with :func:`stop_session`.

    SetupMissing, naming what to run, if Java or a jar is not there: nothing is fetched here. Usage if the log file can't be
    written.
    """
    java = find_java()
    jars = require(jars_folder(), DELTA + (KAFKA if settings.kafka else ()))
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["PYSPARK_PYTHON"] = python_of_workers(settings)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    home = home_for(settings)
    if home is not None:
        os.environ["SPARK_HOME"] = home
    else:
        os.environ.pop("SPARK_HOME", None)  # one of ours, of a session before
    conf = SparkConf(loadDefaults=False).setMaster(settings.master).setAppName(settings.name)
    conf.setAll(list(configuration(settings, [str(jar) for jar in jars]).items()))
    with _opened(settings.log_file) as log:
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
    watch(settings.log_file, lambda: gateway.proc.poll() is not None)
    spark = SparkSession(SparkContext(conf=conf, gateway=gateway))
    _keep_out_of_the_way(spark, settings.log_file)
    register(spark)
    return spark


def _opened(log_file: Path) -> BinaryIO:
    """Open the file that takes Spark's own output. Usage, naming it, if that can't be."""
    try:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        return log_file.open("ab")
    except OSError as error:
        raise Usage(
            f"{log_file}, for Spark's own output, can't be written: {error}",
            hint="Name another one: --log-file FILE.",
        ) from None


def python_of_workers(settings: SessionSettings, environment: Mapping[str, str] = os.environ) -> str:
    """Return the Python that workers run: the one of ``spark.pyspark.python``, else this one.

    On a cluster PYSPARK_PYTHON names it too. On this machine it does not: what other jobs take need not have our packages.
    Without a name Spark would take the first ``python3`` on PATH.
    """
    named = settings.more.get(_PYTHON, "")
    if not named and not settings.master.startswith("local"):
        named = environment.get("PYSPARK_PYTHON", "")
    return named or sys.executable


def home_for(settings: SessionSettings, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the SPARK_HOME of a session: as the environment names it, else ours; None: PySpark's own.

    Ours needs workers whose Python has our packages, and a master that does without a zip of PySpark.
    """
    ours = spark_home(environment)
    named = environment.get("SPARK_HOME")
    if named is not None and named != str(ours):
        return named
    fits = settings.master.startswith(MASTERS) and python_of_workers(settings, environment) == sys.executable
    return str(ours) if fits and ours is not None else None


def stop_session(spark: SparkSession) -> None:
    """Stop a session, also one whose Java has ended already: then there is nothing left to stop."""
    with warnings.catch_warnings(), suppress(OSError, Py4JError):
        warnings.simplefilter("ignore")  # that it could not be stopped in order
        spark.stop()


@contextmanager
def session_apart(spark: SparkSession) -> Iterator[SparkSession]:
    """Give a session beside ``spark`` in whose settings nothing of ``spark`` changes.

    Spark makes a session the active one whenever rows of Python's are given to it, and finds registered formats by the
    active one: so the caller's is put back.
    """
    active = SparkSession.getActiveSession()
    try:
        yield spark.newSession()
    finally:
        if active is not None:  # in Python there is no public way
            SparkSession._activeSession = active
            with suppress(OSError, Py4JError):  # Java is gone, which whoever asks it next is told
                SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(active._jsparkSession)


def _keep_out_of_the_way(spark: SparkSession, log_file: Path) -> None:
    """Send to the log file what pyspark and py4j would print on this process's stderr beside the error that they raise."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logger = PySparkLogger.getLogger(name)
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
            handler.close()
        logger.addHandler(logging.FileHandler(log_file, delay=True))
    root = logging.getLogger()
    for before in [one for one in root.filters if isinstance(one, Py4jApart)]:
        root.removeFilter(before)
        before.file.close()
    root.addFilter(Py4jApart(log_file))
    _send_to(log_file, logging.getLogger("py4j"))
    # Its thread prints a traceback when Java ends, which whoever asks Spark next is told in words.
    accumulators: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if accumulators is not None:
        accumulators.handle_error = lambda request, address: None


def _send_to(log_file: Path, logger: logging.Logger) -> None:
    """Have what is logged there or below written into the file alone, in place of the one that it went to before."""
    for before in [one for one in logger.handlers if isinstance(one, logging.FileHandler)]:
        logger.removeHandler(before)
        before.close()
    logger.addHandler(logging.FileHandler(log_file, delay=True))
    logger.propagate = False  # a handler of the root logger's prints it, and py4j itself gives it one


class Py4jApart(logging.Filter):
    """Writes what py4j logs into a file, on the root logger, whose other users must not be in its way."""

    def __init__(self, log_file: Path) -> None:
        super().__init__()
        self.file = logging.FileHandler(log_file, delay=True)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is somebody else's; else write it down."""
        if Path(record.pathname).parent.name != "py4j":
            return True
        self.file.handle(record)
        return False


def configuration(settings: SessionSettings, jars: list[str]) -> dict[str, str]:
    """Return Spark's settings for a session; on this machine with a folder for sockets, which goes with this process."""
    partitions = min(SHUFFLE_PARTITIONS_MAX, max(2, os.cpu_count() or 2))
    found = {
        "spark.jars": ",".join(jars),
        "spark.driver.memory": settings.memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.daemon.module": "headrace.pipeline.daemon",
        "spark.redaction.regex": SECRETS,
        "spark.sql.session.timeZone": "UTC",
        # Otherwise what a filter on dates and timestamps is given goes through a calendar that lacks ten days of 1582
        # and has no place for the least values: rows would be missed, or the query fail.
        "spark.sql.datetime.java8API.enabled": "true",
        # Rows may have a MiB each, and Arrow's offsets 31 bits.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BATCH_BYTES_MAX),
        "spark.sql.shuffle.partitions": str(partitions),
        # Batch reads of a feed fetch only what filters can want.
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Delta's default of 50 tasks to read a table's log makes each small merge ten times as slow.
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    if settings.master.startswith(MASTERS):
        # A path is a folder here, also where Hadoop's own settings name a cluster's file system. YARN needs that one.
        found["spark.hadoop.fs.defaultFS"] = "file:///"
    manager = manager_of(settings.checkpoint) if settings.checkpoint else None
    if manager is not None:
        found[MANAGER] = manager
    found |= _on_this_machine() if settings.master.startswith("local") else _on_a_cluster(settings)
    if settings.short_lived:
        found |= SHORT_LIVED
    return found | EXACT_WRITES | dict(settings.more)


def _on_this_machine() -> dict[str, str]:
    sockets = tempfile.mkdtemp(prefix="hr-")  # a socket's path may have some 100 characters
    atexit.register(shutil.rmtree, sockets, ignore_errors=True)
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.unix.domain.socket.dir": sockets,
    }


def _on_a_cluster(settings: SessionSettings) -> dict[str, str]:
    """Sockets are then where each worker's Java keeps temporary files: a folder of this machine need not be there."""
    # Shuffles are spread over machines, whose cores this one does not know; Spark's own 200 is for large batches.
    partitions = max(SHUFFLE_PARTITIONS_MAX, settings.cores_max or 0)
    found = {
        "spark.executor.memory": settings.executor_memory,
        "spark.sql.shuffle.partitions": str(partitions),
    }
    if settings.cores_max is not None:
        found["spark.cores.max"] = str(settings.cores_max)
    if path := os.environ.get("PYTHONPATH"):
        found["spark.executorEnv.PYTHONPATH"] = path
    return found
