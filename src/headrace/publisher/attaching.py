"""Attaching as one call, for the commands: open the source, put the triggers on, copy the rows, close."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.publisher.attach.finding import Attached
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.databases import open_source
from headrace.publisher.dsn import Dsn
from headrace.publisher.source import AttachedTable, Source


@contextmanager
def opened_source(dsn: Dsn) -> Iterator[Source]:
    """Give the source that ``dsn`` names, and close it."""
    source = open_source(dsn)
    try:
        yield source
    finally:
        source.close()


def attach_tables(
    dsn: Dsn, request: AttachRequest, progress: Callable[[str], None] = lambda table: None
) -> list[tuple[AttachedTable, Attached]]:
    """Attach the tables of ``request``, copy their rows to the end, and return each with how it then stands.

    ``progress`` is called with the table's name after each copied chunk. Safe to repeat: tables attached just so are left
    alone, a copy that was cut goes on. Errors: see :meth:`~headrace.publisher.source.Source.attach`.
    """
    with opened_source(dsn) as source:
        attached = source.attach(request)
        for table in attached:
            while source.copy_chunk(table.number):
                progress(table.table)
        standing = {one.table: one for one in source.check([request.feed])}
        return [(table, standing[table.table]) for table in attached]
