"""Verifying an archive: every byte of every file, and whether all together leave nothing out. Nothing is written.

:mod:`~headrace.backup.verifying.archive_check` looks at the folder as a whole and hands files out to processes, which read
segments (:mod:`~headrace.backup.verifying.segment_check`) and files of bases (:mod:`~headrace.backup.verifying.base_check`).
"""
