"""The file that Spark prints into begins anew under the Java that has it open, and takes what would be in a caller's way."""

from __future__ import annotations

import logging
import threading
from io import StringIO
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace.pipeline.spark_log import keep_small
from tests.waiting import wait_until


def log_of(spark: SparkSession) -> Path:
    """Where the session's output goes."""
    warehouse = str(spark.conf.get("spark.sql.warehouse.dir"))
    return Path(warehouse.removeprefix("file:")).parent / "spark.log"


def test_what_py4j_logs_is_printed_nowhere_else(spark: SparkSession) -> None:
    """A batch that Java's end cuts off is told there with a traceback."""
    printed = StringIO()
    others = logging.StreamHandler(printed)  # such a one is there once anything was logged on the root logger
    logging.getLogger().addHandler(others)
    try:
        logging.getLogger("py4j.clientserver").error("of a batch that was cut off")
    finally:
        logging.getLogger().removeHandler(others)
    assert printed.getvalue() == ""
    assert b"of a batch that was cut off\n" in log_of(spark).read_bytes()


def test_sparks_java_goes_on_at_the_beginning_of_its_log(spark: SparkSession) -> None:
    log = log_of(spark)
    jvm: Any = spark.sparkContext._jvm
    jvm.System.err.println("before")
    wait_until(lambda: b"before\n" in log.read_bytes())
    assert keep_small(log, 0)
    jvm.System.err.println("behind")
    wait_until(lambda: b"behind\n" in log.read_bytes())
    assert b"before\n" not in log.read_bytes()
    assert b"\0" not in log.read_bytes()
    assert b"before\n" in log.with_name("spark.log.1").read_bytes()
    assert "spark-log" in {one.name for one in threading.enumerate()}
