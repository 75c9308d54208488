"""The file that Spark prints into begins anew under the Java that has it open."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace.pipeline.spark_log import keep_small
from tests.waiting import wait_until


def test_sparks_java_goes_on_at_the_beginning_of_its_log(spark: SparkSession) -> None:
    warehouse = str(spark.conf.get("spark.sql.warehouse.dir"))
    log = Path(warehouse.removeprefix("file:")).parent / "spark.log"
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
