"""``headrace_copy``: the copies that there are, read and written inside the caller's transaction.

``headrace_attached`` tells of the copies of all rows too, in the words of the first releases: one of those that meets a copy
under way begins it again. A copy that one of them began has no row here; it is taken over.
"""

from __future__ import annotations

import sqlite3
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from headrace.publisher.copies import CopyState
from headrace.publisher.outbox.sqlite import COPY_TABLE, NOW_MS
from headrace.publisher.sqlite.attachment import (
    Attachment,
    AttachmentState,
    has_copies,
    read_attachments,
    set_copy,
)
from headrace.publisher.sqlite.attachment import CopyState as AttachedCopy
from headrace.publisher.sqlite.values import InvalidText, unfit

_SELECT: Final = f"""
SELECT id, attached, condition, state, rows_per_second, last_key, rows, coalesce(detail, ''), due_at - {NOW_MS}
FROM headrace_copy ORDER BY id"""
_NEXT_NUMBER: Final = (
    "UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'headrace_attached' RETURNING seq"
)
_STORE: Final = f"""
INSERT OR REPLACE INTO headrace_copy (id, attached, condition, state, rows_per_second, last_key, rows, detail, due_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ? + {NOW_MS})"""


class Copy(NamedTuple):
    """One row of ``headrace_copy``. ``due_in_ms``: when its next step is due, 0 or less at once."""

    number: int
    attached: int
    condition: str | None
    state: CopyState
    rows_per_second: int | None
    last_key: str | None
    rows: int
    detail: str
    due_in_ms: int


def read_copies(connection: sqlite3.Connection, of: Attachment | None = None) -> list[Copy]:
    """Return every copy, or those of one attachment; oldest first."""
    every = _every(connection)
    return every if of is None else [one for one in every if one.attached == of.number]


def _every(connection: sqlite3.Connection) -> list[Copy]:
    stored = _stored(connection)
    known = {one.attached for one in stored if one.condition is None}
    return stored + [
        _begun_before(connection, one)
        for one in read_attachments(connection, AttachmentState.LIVE)
        if one.copy_state is AttachedCopy.RUNNING and one.number not in known
    ]


def insert_copy(
    connection: sqlite3.Connection, attachment: Attachment, condition: str | None, rows_per_second: int | None
) -> int:
    """Store a new running copy; returns its number, which no other copy has and no attachment but its own."""
    connection.execute(COPY_TABLE)
    number = attachment.number
    if any(one.number == number for one in _stored(connection)):
        number = int(connection.execute(_NEXT_NUMBER).fetchone()[0])
    store_copy(
        connection,
        Copy(number, attachment.number, condition, CopyState.RUNNING, rows_per_second, None, 0, "", 0),
    )
    return number


def store_copy(connection: sqlite3.Connection, copy: Copy) -> None:
    """Store ``copy`` as it is now, and tell ``headrace_attached`` of it."""
    connection.execute(COPY_TABLE)
    row = (*copy[:-2], copy.detail or None, max(0, copy.due_in_ms))
    connection.execute(_STORE, row)
    if copy.condition is not None:
        return
    state = AttachedCopy.RUNNING
    if copy.state.is_over:
        # A first copy that was given up may be made up for by the next attach.
        given_up = copy.state is not CopyState.DONE and copy.number == copy.attached
        state = AttachedCopy.NONE if given_up else AttachedCopy.DONE
    set_copy(connection, copy.attached, state, None, copy.rows)


def read_key(text: str | None) -> list[Any] | None:
    """Return the key that :func:`write_key` wrote."""
    if text is None:
        return None
    return [_READERS[name](value) for one in msgspec.json.decode(text) for name, value in one.items()]


def write_key(key: Sequence[Any] | None) -> str | None:
    """Return a key as JSON, each value in an object that names its storage class."""
    return None if key is None else msgspec.json.encode([unfit(value) for value in key]).decode()


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "integer": int,
    "real": float,
    "text": str,
    "blob": b64decode,
    "invalid-utf8": lambda text: InvalidText(b64decode(text)),
}


def _stored(connection: sqlite3.Connection) -> list[Copy]:
    if not has_copies(connection):
        return []
    return [
        Copy(number, attached, condition, CopyState(state), *rest)
        for number, attached, condition, state, *rest in connection.execute(_SELECT).fetchall()
    ]


def _begun_before(connection: sqlite3.Connection, one: Attachment) -> Copy:
    """Return the copy that an older release began, of which ``headrace_attached`` alone tells."""
    last_key = _key_copied_last(connection, one)
    return Copy(one.number, one.number, None, CopyState.RUNNING, None, last_key, one.copy_rows, "", 0)


def _key_copied_last(connection: sqlite3.Connection, attachment: Attachment) -> str | None:
    if attachment.copy_last is None:
        return None
    return write_key(connection.execute(attachment.sql.select_key(), (attachment.copy_last,)).fetchone())
