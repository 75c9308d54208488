"""Where Spark finds ``format("headrace.tables")`` by itself; ``pyspark_headrace`` says how."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """Stands in for :class:`headrace.pipeline.tables.reader.HeadraceTables`, which is imported when the format is used."""

    def __new__(cls, options: MutableMapping[str, str]) -> DataSource:  # type: ignore[misc]  # another class, on purpose
        from headrace.pipeline.tables.reader import HeadraceTables  # noqa: PLC0415  # see pyspark_headrace

        return HeadraceTables(options)

    @classmethod
    def name(cls) -> str:
        return "headrace.tables"
