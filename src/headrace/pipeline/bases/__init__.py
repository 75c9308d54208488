"""Base snapshots: the log up to an LSN, less all that was overwritten, as Parquet files in the archive.

In: the base before it, and the segments behind that one. Out: a folder of the archive (``docs/formats/base-snapshot.md``),
whose rows are entries: followed by the segments behind its LSN they come to what the whole log comes to.
"""
