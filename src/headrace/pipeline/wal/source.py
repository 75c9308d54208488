"""The data source ``headrace.wal``: ``spark.read.format("headrace.wal").load(URL)`` over a folder of KWAL segments.

Columns: :data:`headrace.wire.kwal_columns.DDL`, or those of them that ``.schema(...)`` names. Options::

    path         URL of the folder, as fsspec takes it; a path of the local machine by default. Workers must reach it too
    from-lsn     LSN of the first entry wanted (default: the folder's first)
    to-lsn       LSN of the last entry wanted (default: the folder's last)
    feeds        names with commas between; default: all
    gaps         refuse (default): fail if entries of the range are missing, or may be. accept: read what is there
    pushdown     off (default), or once: leave out what a filter rules out. Only for a DataFrame that is used once, in one
                 place of one query: see headrace.pipeline.pushing
    task-bytes   bytes of segments that one task reads at least (67108864)
    identity     file with the age identity that encrypted segments are read with; at the same path on all workers

Batch reads only. This module stays small: Spark imports it to find out what data sources there are, in every session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource, DataSourceReader

from headrace.pipeline.wal import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def register(spark: SparkSession) -> None:
    """Make ``format("headrace.wal")`` known to a session; idempotent."""
    try:
        spark.dataSource.register(WalSource)
    except AnalysisException as error:
        # Spark has found it by itself, and takes no other of that name.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


class WalSource(DataSource):
    """The data source ``headrace.wal``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        from headrace.wire.kwal_columns import DDL

        return DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        from headrace.pipeline.pushing import offered
        from headrace.pipeline.wal.options import Options
        from headrace.pipeline.wal.readers import FilteredWalReader, WalReader

        options = Options(self.options)
        kind = FilteredWalReader if options.pushdown and offered() else WalReader
        return kind(options, schema.fieldNames())
