"""Feeds as a Spark data source: ``spark.read`` and ``spark.readStream`` with ``format("headrace")``.

In: a server's stored frames, and KWAL segments for what it no longer retains. Out: record batches, made by Spark's workers.

::

    feed, readers       what Spark calls; ``options`` and ``pushdown`` read what it was given
    planner, ends       where a batch ends in each feed, and how it is split
    offset, starts      where a query is, as it is stored; the words for where to begin
    reading, archive    what a worker does with its part
    acking              who holds retention for a stream
"""
