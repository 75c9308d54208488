"""The files of an archive, at any address that fsspec knows: listed, read, and put there whole or not at all.

:mod:`~headrace.archive.files.folder` reads, :mod:`~headrace.archive.files.writing` puts, the others say what a name or a
document means. Nothing here knows why a file is there.
"""
