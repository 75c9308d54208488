"""What is known of a slot beside its row: what it was made with, its place, and whether that can be used. Blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from headrace.entries.lsn import Lsn
from headrace.errors import MetadataCorrupt
from headrace.log.history import position_past
from headrace.log.log import Log
from headrace.log.metadata.contract import SlotRow
from headrace.log.metadata.rows import SUBSCRIBER, slot_subscriber
from headrace.runtime.typed_json import decode_json
from headrace.server.pg.sqlstate import PgError, SqlState
from headrace.server.pg.walking import is_lost

Places = Mapping[tuple[str, str], str]
"""Subject and subscriber -> its place, an LSN."""


class SlotOptions(msgspec.Struct, frozen=True, rename="kebab"):
    """What a slot was made with. ``database``: the ``dbname`` of that session; its streams carry no more than it names.

    ``temporary``: it ends with the session that made it.
    """

    database: str
    temporary: bool = False


class SlotView(NamedTuple):
    """A slot as ``pg_replication_slots`` shows it. ``restart``: from there on it holds; None where its place has gone.

    ``active_pid``: of the session that uses it; None at another server, where it may be ``active`` too. ``lost``: None where
    the row of its place is damaged, so that nobody can say.
    """

    row: SlotRow
    options: SlotOptions
    active: bool
    active_pid: int | None
    restart: int | None
    lost: bool | None


def options_of(row: SlotRow) -> SlotOptions:
    """Return what a slot was made with."""
    return decode_json(row.options, SlotOptions)


def places_of(log: Log) -> Places:
    """Return the places of all subscribers, slots among them, save those whose rows are damaged."""
    return {(row.subject, row.subscriber_id): row.lsn for row in log.metadata.subscribers()}


def usable_place(log: Log, row: SlotRow) -> Lsn:
    """Return a slot's place. PgError (55000) if what it needs was dropped; MetadataCorrupt if its place can't be read."""
    place = _place(log, row, places_of(log))
    if place is None or is_lost(log.store, place):
        raise PgError(
            SqlState.NOT_IN_PREREQUISITE_STATE,
            f'can no longer get changes from replication slot "{row.name}": what it needs was dropped by retention',
            hint="Drop the slot, take a base snapshot, and make the slot anew.",
        )
    return place


def view_of(log: Log, row: SlotRow, places: Places, *, active: bool, active_pid: int | None) -> SlotView:
    """Return a slot as it is shown; one whose place can't be read is shown too, beside all others."""
    options = options_of(row)
    try:
        place = _place(log, row, places)
    except MetadataCorrupt:
        return SlotView(row, options, active, active_pid, None, None)
    if place is None or is_lost(log.store, place):
        return SlotView(row, options, active, active_pid, None, True)
    restart = min(position_past(log.store, place), row.position)
    return SlotView(row, options, active, active_pid, restart, False)


def check_place(log: Log, row: SlotRow) -> None:
    """Raise MetadataCorrupt if the row of a slot's place is known to be damaged."""
    log.metadata.damages.raise_if_damaged(SUBSCRIBER, (row.subject, slot_subscriber(row.name)))


def _place(log: Log, row: SlotRow, places: Places) -> Lsn | None:
    """The place; None where there is none any more, which a damaged row must not pass for: that one holds retention."""
    place = places.get((row.subject, slot_subscriber(row.name)))
    if place is None:
        check_place(log, row)
    return Lsn.parse(place) if place is not None else None
