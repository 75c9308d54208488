"""Which moments an archive can rebuild, and from what: files -> windows, points, a plan. Nothing is written.

:mod:`~headrace.archive.moments.catalogue` reads an archive once; :mod:`~headrace.archive.moments.chain` (pure) joins what it
found into windows and gaps; :mod:`~headrace.archive.moments.points` finds where a log may be cut without tearing anything;
:mod:`~headrace.archive.moments.planning` makes of a moment a plan that every restore follows.
"""
