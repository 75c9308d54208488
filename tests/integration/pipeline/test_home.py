"""What Spark's Python processes import: the packages that are installed, with their bytecode, and no more than they need."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from headrace.pipeline.spark_home import spark_home
from tests.servers import Feed, changes

SCHEMA = "process string, pyspark string, pandas boolean"


class Place(InputPartition):
    """What the process that planned had imported."""

    def __init__(self, pyspark: str, pandas: bool) -> None:
        super().__init__(0)
        self.pyspark, self.pandas = pyspark, pandas


class Telling(DataSource):
    """A source whose rows tell what the processes have imported that plan and read."""

    @classmethod
    def name(cls) -> str:
        return "telling"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: object) -> DataSourceReader:
        return TellingReader()


class TellingReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [Place(pyspark.__file__, "pandas" in sys.modules)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, str, bool]]:
        assert isinstance(partition, Place)
        yield "plan", partition.pyspark, partition.pandas
        yield "task", pyspark.__file__, "pandas" in sys.modules


def test_processes_import_what_is_installed_and_not_the_zip(spark: SparkSession) -> None:
    installed = pyspark.__file__
    spark.dataSource.register(Telling)
    rows = {row["process"]: row["pyspark"] for row in spark.read.format("telling").load().collect()}
    assert rows == {"plan": installed, "task": installed}
    home = spark_home()
    assert home is not None
    assert not (home / "python").exists()
    assert (home / "jars").resolve() == Path(installed).parent / "jars"


READING = """
import sys
from headrace.pipeline.source.readers import FeedReader
from headrace.wire.columns import SCHEMA
from pyspark.sql.pandas.types import from_arrow_schema
reader = FeedReader({"endpoint": sys.argv[1], "feeds": sys.argv[2]}, from_arrow_schema(SCHEMA))
print(sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)), "pandas" in sys.modules)
"""


def test_what_plans_and_reads_a_feed_loads_no_pandas(feed: Feed) -> None:
    assert feed.post(*({"changes": changes(number)} for number in range(3))).status_code == 200
    words = [sys.executable, "-c", READING, feed.server.url, feed.name]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "3 False\n"
