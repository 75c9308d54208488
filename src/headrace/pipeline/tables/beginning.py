"""Where the tables of a folder begin: with whatever reaches the beginning of their feed, or not at all.

Decided at the first start, and kept: the feed itself, else an archive, else the publisher's snapshot. A captured feed may
also begin in the middle: tables whose first rows retention has dropped are stopped from the start, each with a reason,
rather than shown with a part of their rows. A copy, a TRUNCATE or a CREATE that the feed has later brings them in whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from headrace.errors import CheckpointNotFound, CheckpointUnfit, ConfigInvalid, SequenceNotAvailable
from headrace.pipeline.checkpoint import places_in, read_checkpoint
from headrace.pipeline.connection import Connection
from headrace.pipeline.source.offset import Place
from headrace.pipeline.tables.ledger import Ledger, free_folder
from headrace.pipeline.tables.origins import ARCHIVE, FEED, MIDDLE, SNAPSHOT, check_place
from headrace.pipeline.tables.simple.plan import is_simple
from headrace.pipeline.tables.simple.state import TableState, stopped
from headrace.pipeline.tables.states import UNSEEN, CapturedTable, Start, StopNote
from headrace.runtime.logs import get_logger
from headrace.simple import json_codec
from headrace.simple.message import Bootstrap
from headrace.simple.schema import TableSchema
from headrace.wire.schema_documents import SchemaPlace

logger = get_logger("pipeline")

HINT: Final = (
    "If the table is still there: headrace capture copy; or begin in an empty folder, with an archive (--archive). If it is "
    "gone at the source: headrace pipeline tables forget."
)
UNREACHED_HINT: Final = (
    "Name an archive of KWAL segments that has the feed's beginning (--archive), or let the feed's publisher serve "
    "snapshots, or have the source copied into a new feed."
)


def begin_at(ledger: Ledger, server: Connection, *, archive: bool) -> Start | None:
    """Return where the tables begin, and keep it durably; None for an empty feed, and tables that an older version began.

    Once a batch has begun it stays as it was. SequenceNotAvailable where nothing that is known here reaches the feed's
    beginning: then the publisher's snapshot may.
    """
    if ledger.begun or ledger.published is not None or ledger.merged is not None:
        return ledger.start
    if ledger.start is not None and ledger.start.source == SNAPSHOT:
        # It was cut before all was merged. What there is of it is taken out by a newer one alone.
        raise _unreached(ledger.feed, ledger.start.oldest)
    view = server.feed(ledger.feed)
    oldest = view.oldest_sequence_id
    if not view.head_sequence_id:
        return None  # the first entry may be any; the first batch says it
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    late: list[CapturedTable] = []
    first = view.first_sequence_id
    if oldest <= first if first else not _is_dropped(ledger.feed, server, oldest - 1):
        start = Start(source=FEED, after=oldest - 1, oldest=oldest, at=at)
    elif archive:
        start = Start(source=ARCHIVE, after=max(0, first - 1), oldest=oldest, at=at)
    else:
        known = _captured(ledger.feed, server)
        if not known:
            raise _unreached(ledger.feed, oldest)
        start = Start(source=MIDDLE, after=oldest - 1, oldest=oldest, at=at)
        late = stopped_tables(known, oldest, at)
    ledger.keep(start=start, tables=late)
    for table in late:
        logger.error("a table can't be begun", table=".".join(table.table), hint=HINT)
    return start


def check_checkpoint(ledger: Ledger, place: str) -> None:
    """Raise CheckpointAhead if the query's checkpoint is further than the tables; it need not be there, or be readable."""
    try:
        batches = [one for one in read_checkpoint(place).batches if one.done]
    except (CheckpointNotFound, CheckpointUnfit, ConfigInvalid):
        return  # Spark says what is wrong with it; each batch is looked at, too
    if batches:
        ends = [places_in(end).get(ledger.feed) for end in batches[-1].ends]
        for end in ends:
            if isinstance(end, Place):
                check_place(ledger, end.sequence_id + 1, f"what follows in the checkpoint {place}")


def _unreached(feed: str, oldest: int) -> SequenceNotAvailable:
    return SequenceNotAvailable(
        f"the feed {feed} begins with entry {oldest} now: without what came before no table would be whole",
        hint=UNREACHED_HINT,
        change_feed_id=feed,
    )


def _is_dropped(feed: str, server: Connection, place: int) -> bool:
    """Tell whether the feed had an entry there, by an older server that does not say where the feed began."""
    if place < 1:
        return False
    try:
        server.frames(feed, place, place)
    except SequenceNotAvailable:
        return True
    return False


def _captured(feed: str, server: Connection) -> list[tuple[SchemaPlace, TableSchema | None]]:
    """Return the tables of a captured feed that the server has schemas of; none for another feed."""
    places = server.schemas(feed)
    values = [server.schema(feed, place.database, place.table, place.version) for place in places]
    return [(place, _schema(value)) for place, value in zip(places, values, strict=True) if is_simple(value)]


def _schema(value: bytes) -> TableSchema | None:
    message = json_codec.decode(value)
    return message.table_schema if isinstance(message, Bootstrap) else None


def stopped_tables(
    schemas: Iterable[tuple[SchemaPlace, TableSchema | None]], oldest: int, at: str
) -> list[CapturedTable]:
    """Return the tables of these schemas as they are before the entry ``oldest``: stopped, with nothing in them.

    A table whose newest schema stands above ``oldest`` may have had older ones, so it is one of them. A copy need not tell
    its schema again, so they know theirs. Before an entry of it comes, nobody knows whether it is still there.
    """
    reason = f"the feed begins with entry {oldest} now, which may be after this table's first row"
    found: list[CapturedTable] = []
    for place, schema in sorted(schemas, key=lambda one: one[0].sequence_id):
        name = (place.database, place.table)
        state = stopped(TableState(identity=place.sequence_id, name=name, schema=schema), reason)
        at_start = oldest - 1
        note = StopNote(after=at_start, state=None, code=UNSEEN, reason=reason, hint=HINT, at=at)
        path = free_folder(name, place.sequence_id, [one.path for one in found])
        found.append(
            CapturedTable(
                identity=place.sequence_id,
                table=name,
                path=path,
                state=state,
                place=at_start,
                stopped=note,
                started_from=MIDDLE,
            )
        )
    return found
