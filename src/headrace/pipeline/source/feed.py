"""The data source ``headrace``: ``spark.read`` and ``spark.readStream`` over feeds. Users and the jobs read through it.

Columns: :data:`headrace.wire.columns.DDL`, or those of them that ``.schema(...)`` names. Options::

    endpoint            http://HOST:PORT (default: HEADRACE_SERVER, else http://127.0.0.1:8470)
    feeds               the feed's name, or several with commas between; required
    token-file          a file with a bearer token, at this path on the driver and on all workers
    ca-file             a PEM file of the authorities to trust, likewise
    start               first entry: a sequence id, an LSN, an RFC 3339 time, head, oldest (default; with an archive: the
                        feed's first ever)
    end                 last entry (inclusive), likewise; head by default; batch reads only
    incarnation, lsn    of a bookmark: the only history to read, and the LSN of the entry before ``start``
    pushdown            batch reads: off (default), or once: fetch only what a filter can want. Only for a DataFrame that is
                        used once, in one place of one query: see :mod:`headrace.pipeline.pushing`
    archive             URL of a folder of KWAL segments that hold what the server has no more
    identity            file with the age identity that encrypted segments of the archive are read with
    listener            streams: hold retention under this name, and report what the sink has committed
    max-entries         streams: entries of one micro-batch at most (1000000)
    max-bytes           streams: stored bytes of one micro-batch, about (536870912)
    partition-entries   entries of one partition at most (250000)
    retry-seconds       how long to wait for a server that is away (120)

A micro-batch ends where a source transaction ends, if that is within reach (see :mod:`headrace.pipeline.source.ends`).
This module stays small: Spark imports it to find out what data sources there are, in every session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from headrace.pipeline.source.names import DEFAULT_SERVER, FORMAT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["DEFAULT_SERVER", "FORMAT", "HeadraceSource", "register"]


def register(spark: SparkSession) -> None:
    """Make ``format("headrace")`` known to a session; idempotent. Needed only where Spark doesn't find pyspark_headrace."""
    spark.dataSource.register(HeadraceSource)


class HeadraceSource(DataSource):
    """The data source ``headrace``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        from headrace.wire.columns import DDL

        return DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        from headrace.pipeline.pushing import offered
        from headrace.pipeline.source import readers

        wanted = self.options.get("pushdown", "").lower() == "once"
        kind = readers.FilteredFeedReader if wanted and offered() else readers.FeedReader
        return kind(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from headrace.pipeline.source.readers import FeedStreamReader

        return FeedStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headrace.pipeline.sink.writer import FeedWriter

        return FeedWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from headrace.pipeline.sink.writer import FeedStreamWriter

        return FeedStreamWriter(self.options, schema, overwrite)
