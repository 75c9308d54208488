"""Sessions beside one another in the one Spark that a process has."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from headrace.pipeline.session import session_apart


class OnlyHere(DataSource):
    """A format that one session knows and others do not."""

    @classmethod
    def name(cls) -> str:
        return "only-here"

    def schema(self) -> str:
        return "n INT"


def test_a_session_apart_changes_nothing_of_the_caller_s(spark: SparkSession) -> None:
    spark.dataSource.register(OnlyHere)
    before = SparkSession.getActiveSession()
    with session_apart(spark) as own:
        own.conf.set("spark.sql.shuffle.partitions", "3")
        assert own.createDataFrame([(1,)], "n INT").count() == 1
        assert SparkSession.getActiveSession() is own
    assert SparkSession.getActiveSession() is before
    assert spark.conf.get("spark.sql.shuffle.partitions") != "3"
    assert spark.read.format("only-here").load().columns == ["n"]
