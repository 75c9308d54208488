"""Rows that the server refused for good and an operator parked: what is kept of them, and what takes their place. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from headrace.errors import Usage
from headrace.publisher.marked import MarkedRow
from headrace.publisher.owner import Owner, RefusedRow

PARKED: Final = "parked"
"""The control entry that stands in a parked row's place."""

REASON_CHARS_MAX: Final = 1_000
KEY_CHARS_MAX: Final = 4_096
"""As much of a key stands in the control entry: a key may be why the row was refused."""


class ParkedRow(NamedTuple):
    """A parked row. ``id``: of its outbox row, which may be swept by now. ``changes``: as the outbox had them.

    ``row_key``: the key as its database needs it to find the row of an attached table again. ``later_id``: a later row of
    the same key that was swept since. ``code``: why the server refused it; ``reason``: why an operator parked it.
    """

    id: int
    feed: str
    sequence_id: int
    op: str
    key: str | None
    table: tuple[str, ...]
    attached: int | None
    changes: str
    changed: str | None
    row_key: str | None
    code: str
    reason: str
    parked_at_ms: int
    later_id: int | None


class Retried(StrEnum):
    """What a retry put at the end of the feed."""

    COPIED = "copied"
    DELETED = "deleted"
    ADDED = "added"


def parked_as(row: MarkedRow, parked: ParkedRow) -> MarkedRow:
    """Return the control entry that takes the place of ``row``: same transaction, same place. Equal whenever it is made."""
    said: dict[str, object] = {"id": parked.id, "op": parked.op, "code": parked.code, "reason": parked.reason}
    if parked.key is not None:
        said["key"] = parked.key[:KEY_CHARS_MAX]
    if parked.table:
        said |= {"database": parked.table[0], "table": parked.table[1]}
    return dataclasses.replace(
        row,
        op="put",
        key=f"\0{PARKED}/{parked.id}",
        changes=msgspec.json.encode(said),
        changed=None,
        before=None,
        control=PARKED,
        copy=False,
    )


def refused_of(owner: Owner | None, feed: str, row_id: int) -> RefusedRow:
    """Return the refused row over which the feed has stopped; Usage unless that is ``row_id``: no other may be parked."""
    row = None if owner is None or owner.alarm is None else owner.alarm.row
    if row is None or row.id != row_id:
        found = (
            "its agent has not stopped over a row"
            if row is None
            else f"its agent stopped over the row {row.id}"
        )
        raise Usage(
            f"{feed}: the row {row_id} can't be skipped: {found}", hint="headrace agent status names the row."
        )
    if row.control is not None:
        raise Usage(
            f"{feed}: the row {row_id} is a {row.control} entry, which consumers can't do without",
            hint="Attach the table again with fewer columns.",
        )
    return row


def check_reason(reason: str) -> str:
    """Return ``reason`` without spaces around it; Usage if there is none, or it is too long."""
    text = reason.strip()
    if not text or len(text) > REASON_CHARS_MAX:
        raise Usage(
            f"--reason takes 1 to {REASON_CHARS_MAX} characters",
            hint="Say why the feed may do without the row.",
        )
    return text


def check_delivered(parked: ParkedRow, processed_next: int) -> None:
    """Raise Usage unless the control entry is in the feed: until then the note must stay."""
    if parked.sequence_id >= processed_next:
        raise Usage(
            f"the row {parked.id} of {parked.feed} is parked, and its place in the feed is not filled yet",
            hint="Start the agent again: headrace agent run.",
        )


_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT: Final = msgspec.json.Decoder(str)


def first_of_key(key: str, keyless: Iterable[tuple[int, str]]) -> int | None:
    """Return the id of the first row that may be of the object ``key``, of rows (id, changes) that leave theirs to the feed.

    Which member is the key, only the feed says (its ``key-field``): so any will do, a string or a number.
    """
    for row_id, changes in keyless:
        with suppress(msgspec.MsgspecError):  # no JSON object: then there is no key in it
            for raw in map(bytes, _MEMBERS.decode(changes).values()):
                if (_TEXT.decode(raw) if raw.startswith(b'"') else raw.decode()) == key:
                    return row_id
    return None


def check_last(parked: ParkedRow, later_id: int | None) -> None:
    """Raise Usage unless this row of ``Outbox.add`` may stand at the end: none of its object came later.

    ``later_id``: of the first such row that is still in the outbox, also of one whose key is left to the feed.
    """
    later = parked.later_id if later_id is None else later_id
    if parked.key is None:
        raise Usage(
            f"the row {parked.id} of {parked.feed} has no key of its own: nobody can tell whether a later one replaced it",
            hint="Write the object anew with Outbox.add, then: headrace agent parked drop.",
        )
    if later is not None:
        raise Usage(
            f"the row {parked.id} of {parked.feed} is out of date: the row {later} of the same key came later, or may have",
            hint="headrace agent parked drop forgets it.",
        )


def find_parked(rows: Mapping[int, ParkedRow], row_id: int) -> ParkedRow:
    """Return the parked row; Usage if there is none."""
    if row_id not in rows:
        raise Usage(f"no row {row_id} is parked", hint="headrace agent parked list shows those that are.")
    return rows[row_id]
