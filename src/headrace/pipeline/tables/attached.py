"""What the tables job keeps in mind of attached tables: whether all their rows are there, and why one is stopped. Pure.

A table whose rows all come again (it is new, was emptied, or its columns changed so that only a copy tells what old rows
have) is not whole until such a copy has ended. One that a value did not fit, or that can't be followed, stands still where
it was, and goes on whole with the next copy of all rows, or when it is emptied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from headrace.pipeline.tables.schemas import PlacedSchema, TableName, read_cleared, read_schema
from headrace.pipeline.tables.states import NO_VERSION, StopNote

SCHEMA: Final = "schema"
TRUNCATE: Final = "truncate"
COPY_BEGIN: Final = "copy-begin"
COPY_END: Final = "copy-end"
CONTROLS: Final = (SCHEMA, TRUNCATE, COPY_BEGIN, COPY_END)
"""Control entries that say something of attached tables; all others are passed over."""


class AttachedState(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """One attached table.

    ``tx``: the source transaction, in hex, that described or emptied it last: a copy that begins in the same one brings all
    rows. ``copies``: the numbers of such copies, of which one has to end before the table is whole. ``stopped``: why it
    stands still.
    """

    table: tuple[str, ...]
    tx: str = ""
    copies: tuple[str, ...] = ()
    stopped: StopNote | None = None

    @property
    def copying(self) -> bool:
        """Whether its rows are still being copied, so that it is not whole."""
        return self.stopped is None and bool(self.copies)


class Control(NamedTuple):
    """A control entry: ``value`` is its JSON."""

    sequence_id: int
    control: str
    key: bytes
    value: bytes
    source_tx: bytes


class Changes(NamedTuple):
    """What control entries of a batch come to.

    ``states``: the tables behind them. ``cleared``: the last place where each table was emptied. ``recopied``: tables all of
    whose rows come again behind a new schema.
    """

    states: dict[TableName, AttachedState]
    cleared: dict[TableName, int]
    schemas: list[PlacedSchema]
    recopied: dict[TableName, int]


class _AboutCopy(msgspec.Struct, frozen=True):
    """``partial``: the copy is of those rows alone that meet a condition."""

    database: str
    table: str
    partial: bool = False


_ABOUT_COPY: Final = msgspec.json.Decoder(_AboutCopy)


def follow_controls(before: Iterable[AttachedState], controls: Iterable[Control], feed: str) -> Changes:
    """Return what the control entries, in feed order, make of the tables; ValueUnfit for one that can't be read.

    Following some of them twice, up to the same last one, comes to the same.
    """
    changes = Changes({one.table: one for one in before}, {}, [], {})
    for one in controls:
        tx = one.source_tx.hex()
        if one.control == SCHEMA:
            schema = read_schema(one.value, feed=feed, sequence_id=one.sequence_id)
            changes.schemas.append(PlacedSchema(sequence_id=one.sequence_id, schema=schema))
            _set(changes, schema.name, tx=tx)
        elif one.control == TRUNCATE:
            table = read_cleared(one.value, feed=feed, sequence_id=one.sequence_id)
            changes.cleared[table] = one.sequence_id
            _set(changes, table, tx=tx, copies=(), stopped=None)
        elif one.control in {COPY_BEGIN, COPY_END}:
            _follow_copy(changes, one, tx)
    return changes


def _follow_copy(changes: Changes, one: Control, tx: str) -> None:
    try:
        about = _ABOUT_COPY.decode(one.value)
    except msgspec.MsgspecError:
        return  # it says nothing of rows
    table = (about.database, about.table)
    state = changes.states.get(table) or AttachedState(table=table)
    number = one.key.rpartition(b"/")[2].decode("utf-8", "replace")
    if one.control == COPY_END:
        if number in state.copies:
            _set(changes, table, copies=())
    elif about.partial:
        return
    elif state.stopped is not None:  # all of it comes once more: what stood still goes
        changes.cleared[table] = one.sequence_id
        changes.recopied[table] = one.sequence_id
        _set(changes, table, copies=(number,), stopped=None)
    elif tx and tx == state.tx:
        changes.recopied[table] = one.sequence_id
        _set(changes, table, copies=tuple(dict.fromkeys([*state.copies, number])))
    elif state.copies:  # it takes the place of one that was cancelled
        _set(changes, table, copies=tuple(dict.fromkeys([*state.copies, number])))


def _set(changes: Changes, table: TableName, **members: Any) -> None:
    state = changes.states.get(table) or AttachedState(table=table)
    changes.states[table] = msgspec.structs.replace(state, **members)


def with_stops(
    states: Mapping[TableName, AttachedState],
    stops: Mapping[TableName, StopNote],
    before: Iterable[AttachedState],
) -> list[AttachedState]:
    """Return the tables of which ``stops`` failed: one that stood still before has what it had then."""
    stood = {one.table: one.stopped for one in before if one.stopped is not None}
    found = dict(states)
    for table, note in stops.items():
        old = stood.get(table)
        state = found.get(table) or AttachedState(table=table)
        if old is not None:
            note = msgspec.structs.replace(
                note, after=old.after, commit_ts=old.commit_ts, version=old.version
            )
        elif state.copies:  # it was never whole
            note = msgspec.structs.replace(note, version=NO_VERSION)
        found[table] = msgspec.structs.replace(state, stopped=note)
    return [found[table] for table in sorted(found)]


def stopped_tables(states: Iterable[AttachedState]) -> set[TableName]:
    """Return the tables that stand still."""
    return {one.table for one in states if one.stopped is not None}
