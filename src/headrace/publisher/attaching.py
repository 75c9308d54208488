"""Attaching and copying as one call each, for the commands: open the source, do it, drive the copies to their end, close."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from headrace.errors import SourceUnavailable, Usage
from headrace.publisher.attach.finding import Attached
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.copies import CopyStanding, CopyState
from headrace.publisher.databases import open_source
from headrace.publisher.source import AttachedTable, Source
from headrace.runtime.backoff import Backoff
from headrace.runtime.dsn import Dsn

Progress = Callable[[CopyStanding], None]

PAUSE_S_MAX: Final = 1.0
"""How long a driver waits at once: it must notice soon that its copy was paused, or given another rate."""

TELL_EVERY_S: Final = 0.5
"""How often progress is told."""

TRIES_MAX: Final = 8
"""How often in a row a step may find the database away before the driver leaves the copy to the agent."""


@contextmanager
def opened_source(dsn: Dsn) -> Iterator[Source]:
    """Give the source that ``dsn`` names, and close it."""
    source = open_source(dsn)
    try:
        yield source
    finally:
        source.close()


def attach_tables(
    dsn: Dsn, request: AttachRequest, progress: Progress = lambda standing: None
) -> list[tuple[AttachedTable, Attached]]:
    """Attach the tables of ``request``, copy their rows to the end, and return each with how it then stands.

    ``progress`` is told of a copy from time to time. Safe to repeat: tables attached just so are left alone, a copy that was
    cut goes on. Errors: see :meth:`~headrace.publisher.source.Source.attach`.
    """
    with opened_source(dsn) as source:
        attached = source.attach(request)
        names = {table.table for table in attached}
        copies = [one for one in source.copies() if one.table in names and one.feed == request.feed]
    for copy in copies:
        if copy.state is CopyState.RUNNING:
            drive_copy(dsn, copy.number, progress)
    with opened_source(dsn) as source:
        standing = {one.table: one for one in source.check([request.feed])}
    return [(table, standing[table.table]) for table in attached]


def drive_copy(dsn: Dsn, number: int, progress: Progress = lambda standing: None) -> CopyStanding:
    """Take the steps of the copy ``number`` until it does not run any more, and return how it stands.

    An agent, or another driver, may be at work on it too: then they take turns. Raises SourceUnavailable if the database is
    away for long; the copy goes on from its last chunk with whoever comes next.
    """
    backoff = Backoff()
    rows = -1
    while True:
        try:
            with opened_source(dsn) as source:
                for standing in _steps(source, number):
                    progress(standing)
                    if standing.rows > rows:
                        backoff.reset()
                    rows = standing.rows
                return standing_of(source, number)
        except SourceUnavailable:
            if backoff.failures == TRIES_MAX:
                raise
            time.sleep(backoff.next_delay())


def _steps(source: Source, number: int) -> Iterator[CopyStanding]:
    """Take steps until there are none; give how the copy stands from time to time, and at the end."""
    told_at = -TELL_EVERY_S
    while (step := source.copy_chunk(number)) is not None:
        if time.monotonic() - told_at >= TELL_EVERY_S:
            yield standing_of(source, number)
            told_at = time.monotonic()
        if step.wait_s:
            time.sleep(min(step.wait_s, PAUSE_S_MAX))
    yield standing_of(source, number)


def standing_of(source: Source, number: int) -> CopyStanding:
    """Return how the copy ``number`` stands; Usage if it is gone with its table."""
    for copy in source.copies():
        if copy.number == number:
            return copy
    raise Usage(
        f"the copy {number} is gone: its table was detached",
        hint="headrace publisher check says what is attached.",
    )
