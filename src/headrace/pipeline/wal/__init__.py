"""Folders of KWAL segments as a Spark data source: ``spark.read`` with ``format("headrace.wal")``, and archives of feeds.

In: the files that a backup agent wrote, at any address that fsspec knows. Out: record batches, made by Spark's workers.
``plan`` says which segments hold a range and whether any is missing, ``folder`` is the only module that touches files.
"""

from typing import Final

FORMAT: Final = "headrace.wal"
"""The name of the data source."""
