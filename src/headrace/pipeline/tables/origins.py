"""What tables began with, and whether a batch goes on where they are: nothing between them and a batch may be missing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from headrace.errors import CheckpointAhead
from headrace.pipeline.tables.ledger import Ledger
from headrace.pipeline.tables.schemas import PlacedSchema
from headrace.pipeline.tables.states import GONE, UNSEEN, CapturedTable, Start, StopNote
from headrace.runtime.logs import get_logger

logger = get_logger("pipeline")

FEED = "feed"
ARCHIVE = "archive"
SNAPSHOT = "snapshot"
MIDDLE = "middle"
COPY = "copy"
"""What a table's first rows came from; ``middle`` is only said of a feed whose beginning is gone (:class:`Start`)."""


def check_place(ledger: Ledger, first: int, what: str = "the batch") -> None:
    """Raise CheckpointAhead where entries before ``first``, the first one of a batch, are not in the tables."""
    there = ledger.merged_to
    if there is not None and first > there + 1:
        raise CheckpointAhead(
            f"{what} begins with entry {first} of {ledger.feed}, the tables in {ledger.to} have it up to {there}: "
            "the checkpoint is another folder's, or a newer one"
        )


def begin_with(ledger: Ledger, first: int) -> None:
    """Note that the tables begin with the entry ``first``, if nobody has said so: the feed was empty at the start."""
    if ledger.start is None and ledger.merged_to is None:
        ledger.keep(start=Start(source=FEED, after=first - 1, oldest=first, at=now_text()))


def now_text() -> str:
    """Return the time as the ledger's files have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def given_of(ledger: Ledger) -> list[PlacedSchema]:
    """Return the schema that an operator gave to entries that name no table, as one that stands before all of them."""
    return [PlacedSchema(0, ledger.given)] if ledger.given is not None else []


def origin_of(first: int, start: Start | None) -> str:
    """Return what a table began with whose first entry is ``first``; empty where an older version began the tables."""
    if start is None:
        return ""
    if first <= start.after:
        return start.source
    return ARCHIVE if start.source == ARCHIVE and first < start.oldest else FEED


def with_origins(
    tables: Iterable[CapturedTable],
    before: Iterable[CapturedTable],
    copied: Iterable[tuple[str, ...]],
    seen: Iterable[tuple[str, ...]],
    start: Start | None,
) -> list[CapturedTable]:
    """Return the tables behind a batch, each with what it began with.

    ``copied``: names of tables of which a copy begins in the batch. ``seen``: of those that the batch has entries of: one
    that began before the feed does now, and of which nothing was seen yet, is there at its source.
    """
    known = {one.identity: one for one in before}
    copies, there = set(copied), set(seen)
    found = []
    for table in tables:
        old = known.get(table.identity)
        names = {table.table, old.table if old is not None else table.table}
        if old is None:
            origin = origin_of(table.identity, start)
        elif old.stopped is not None and table.stopped != old.stopped:
            # It was begun anew in the batch, even where something else has stopped it since.
            origin = COPY if names & copies or table.copying else FEED
        else:
            origin = table.started_from
        note = table.stopped
        if note is not None and note.code == UNSEEN and names & there:
            note = _missed(table, note)
        found.append(msgspec.structs.replace(table, started_from=origin, stopped=note))
    return found


def _missed(table: CapturedTable, note: StopNote) -> StopNote:
    logger.error("a table can't be begun", table=".".join(table.table), reason=note.reason, hint=note.hint)
    return msgspec.structs.replace(note, code=GONE)
