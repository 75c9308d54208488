"""Where Spark finds ``format("headrace.wal")`` by itself; ``pyspark_headrace`` says how."""

from headrace.pipeline.wal.source import WalSource as DefaultSource

__all__ = ["DefaultSource"]
