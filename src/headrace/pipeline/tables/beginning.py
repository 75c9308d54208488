"""What a job that begins in the middle of a captured feed can't have: tables whose first rows retention has dropped.

They are stopped from the start, each with a reason, rather than shown with a part of their rows. A copy, a TRUNCATE or a
CREATE that the feed has later brings them in whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from headrace.pipeline.connection import Connection
from headrace.pipeline.tables.ledger import Ledger, free_folder
from headrace.pipeline.tables.simple.plan import is_simple
from headrace.pipeline.tables.simple.state import TableState, stopped
from headrace.pipeline.tables.states import CapturedTable, StopNote
from headrace.runtime.logs import get_logger
from headrace.simple import json_codec
from headrace.simple.message import Bootstrap
from headrace.simple.schema import TableSchema
from headrace.wire.schema_documents import SchemaPlace

logger = get_logger("pipeline")

HINT: Final = "If the table is still there: headrace capture copy; or begin in an empty folder, with an archive (--archive)."


def begin_stopped(ledger: Ledger, server: Connection, *, archive: bool) -> None:
    """Note the tables that began before the feed's oldest entry, if this is the first start; nothing with an archive."""
    if ledger.published is not None or ledger.tables or archive:
        return
    oldest = server.feed(ledger.feed).oldest_sequence_id
    places = server.schemas(ledger.feed) if oldest > 1 else []
    if not places:
        return
    values = [server.schema(ledger.feed, place.database, place.table, place.version) for place in places]
    known = [(place, _schema(value)) for place, value in zip(places, values, strict=True) if is_simple(value)]
    found = stopped_tables(known, oldest, datetime.now(UTC).isoformat(timespec="seconds"))
    if found:
        ledger.keep(tables=found)
    for table in found:
        logger.error("a table can't be begun", table=".".join(table.table), hint=HINT)


def _schema(value: bytes) -> TableSchema | None:
    message = json_codec.decode(value)
    return message.table_schema if isinstance(message, Bootstrap) else None


def stopped_tables(
    schemas: Iterable[tuple[SchemaPlace, TableSchema | None]], oldest: int, at: str
) -> list[CapturedTable]:
    """Return the tables of these schemas as they are before the entry ``oldest``: stopped, with nothing in them.

    A table whose newest schema stands above ``oldest`` may have had older ones, so it is one of them. A copy need not tell
    its schema again, so they know theirs.
    """
    reason = f"the feed begins with entry {oldest} now, which may be after this table's first row"
    found: list[CapturedTable] = []
    for place, schema in sorted(schemas, key=lambda one: one[0].sequence_id):
        name = (place.database, place.table)
        state = stopped(TableState(identity=place.sequence_id, name=name, schema=schema), reason)
        at_start = oldest - 1
        note = StopNote(
            after=at_start, state=None, code="sequence-not-available", reason=reason, hint=HINT, at=at
        )
        path = free_folder(name, place.sequence_id, [one.path for one in found])
        found.append(
            CapturedTable(
                identity=place.sequence_id, table=name, path=path, state=state, place=at_start, stopped=note
            )
        )
    return found
