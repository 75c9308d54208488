"""The folder of a backup: KWAL segments, their manifests and base snapshots, at any address that fsspec knows.

:mod:`~headrace.archive.files` are what stands in it, :mod:`~headrace.archive.rights` who may touch it, and
:mod:`~headrace.archive.moments` what can be rebuilt from it. Who writes it (:mod:`headrace.backup`) and who reads it
(:mod:`headrace.pipeline`) both stand above this room. It needs fsspec, numpy and pyarrow, which the core does not, and no
Spark.
"""
