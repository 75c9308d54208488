"""Copying the rows that are already there, in bounded chunks, each ordered against every later change.

SQLite has one writer at a time. A chunk takes the write lock, so what it reads is the newest state: every change before it
has a smaller outbox id, every change after it a greater one. It also knows that it is a whole transaction by itself, and
says so in ``tx_end``, so that a large copy doesn't become one huge unit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from headrace.publisher.sqlite.attachment import (
    Attachment,
    AttachmentState,
    CopyState,
    end_unit,
    newest_id,
    read_attachments,
    set_copy,
    write_control,
)
from headrace.publisher.sqlite.connection import immediate

CHUNK_ROWS_MAX: Final = 1_000
"""Rows copied under one hold of the write lock: the application's writers wait for some 10 ms."""


def begin_copy(connection: sqlite3.Connection, attachment: Attachment) -> None:
    """Say in the feed that copies begin; in the caller's transaction. :func:`copy_chunk` does the rest."""
    write_control(connection, attachment, "copy-begin")
    set_copy(connection, attachment.number, CopyState.RUNNING, None, 0)


def copy_chunk(connection: sqlite3.Connection, number: int, rows_max: int = CHUNK_ROWS_MAX) -> bool:
    """Copy the next rows of the attachment ``number`` in a transaction of its own; False once there are no more.

    May be interrupted anywhere and called by several processes: each chunk starts where the last one committed.
    """
    with immediate(connection):
        live = read_attachments(connection, AttachmentState.LIVE)
        attachment = next((one for one in live if one.number == number), None)
        if attachment is None or attachment.copy_state is not CopyState.RUNNING:
            return False
        after = _key_copied_last(connection, attachment)
        end_unit(connection, attachment.feed)
        last = newest_id(connection)
        values = {f"k{place}": getattr(value, "data", value) for place, value in enumerate(after or ())}
        names = {"last": last, "rows": rows_max, **values}
        copied = connection.execute(attachment.sql.copy_values(after), names).rowcount
        connection.execute(attachment.sql.copy_rows(), {"last": last})
        total = attachment.copy_rows + copied
        more = copied == rows_max
        if more:
            set_copy(connection, number, CopyState.RUNNING, last + copied, total)
        else:
            write_control(connection, attachment, "copy-end", rows=total)
            set_copy(connection, number, CopyState.DONE, None, total)
        end_unit(connection, attachment.feed)
        return more


def copy_written_since(
    connection: sqlite3.Connection, attachment: Attachment, older: Sequence[Attachment], since: int
) -> int:
    """Copy the rows whose keys the ``older`` attachments wrote above the outbox id ``since``, in the caller's transaction.

    They were stored without a column that the table already had. Returns how many there were.
    """
    write_control(connection, attachment, "copy-begin")
    last = newest_id(connection)
    sql = attachment.sql
    older_specs = [(one.number, one.spec) for one in older]
    copied = connection.execute(sql.copy_written_since(older_specs), {"last": last, "since": since}).rowcount
    connection.execute(sql.copy_rows(), {"last": last})
    write_control(connection, attachment, "copy-end", rows=copied)
    set_copy(connection, attachment.number, CopyState.DONE, None, copied)
    return copied


def _key_copied_last(connection: sqlite3.Connection, attachment: Attachment) -> Sequence[object] | None:
    if attachment.copy_last is None:
        return None
    row: Sequence[object] = connection.execute(
        attachment.sql.select_key(), (attachment.copy_last,)
    ).fetchone()
    return row
