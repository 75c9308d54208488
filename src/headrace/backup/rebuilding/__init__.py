"""A server's data folder, made anew from an archive: ``headrace wal restore --as server``.

A plan's segments -> the journal of a data folder that ``headrace serve`` starts on. :func:`~.rebuild.rebuild` does it;
:mod:`~.feeds` (pure) says which history of which feed goes in, :mod:`~.appends` (pure) finds the appends in segments,
:mod:`~.journal` writes them.
"""
