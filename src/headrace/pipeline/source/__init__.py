"""A feed as a Spark data source: ``spark.read`` and ``spark.readStream`` with ``format("headrace")``.

In: a server's stored frames. Out: record batches, made by Spark's workers. ``planner`` says where batches end and how they
are split, ``reading`` is what a worker does with its part.
"""
