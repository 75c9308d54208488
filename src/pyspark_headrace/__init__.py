"""Where Spark finds ``format("headrace")`` by itself: it imports all modules named ``pyspark_…``, for their DefaultSource.

There is one such module for each format. Spark does this in every session, whoever's it is, so it must neither take time
nor fail where a package is missing: what the format needs is imported when it is used.
"""

from headrace.pipeline.source.feed import HeadraceSource as DefaultSource

__all__ = ["DefaultSource"]
