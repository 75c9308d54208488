"""The attachments that a database has: ``headrace_attached``, read and written inside the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from headrace.publisher.attach.finding import Finding, FindingKind
from headrace.publisher.attach.schema import control_key
from headrace.publisher.sqlite.spec import DATABASE, Spec
from headrace.publisher.sqlite.triggers import AttachmentSql, row_table, trigger_name
from headrace.runtime.typed_json import decode_json

TRIGGER_KINDS: Final = ("insert", "update", "rekey", "delete")


class AttachmentState(StrEnum):
    """``live``: its triggers stand. ``superseded``: a newer version took its place. ``detached``: taken away."""

    LIVE = "live"
    SUPERSEDED = "superseded"
    DETACHED = "detached"


class CopyState(StrEnum):
    """Where the copy of the rows that were there before stands."""

    NONE = "none"
    RUNNING = "running"
    DONE = "done"


class Attachment(NamedTuple):
    """One row of ``headrace_attached``."""

    number: int
    table: str
    feed: str
    version: int
    spec: Spec
    state: AttachmentState
    copy_state: CopyState
    copy_last: int | None
    copy_rows: int
    checked_id: int
    alarm: str | None

    @property
    def sql(self) -> AttachmentSql:
        """The statements of this attachment."""
        return AttachmentSql(self.number, self.spec)

    @property
    def was_unsafe(self) -> bool:
        """Whether the last check found that changes could be lost in a way that triggers can't tell of."""
        found = decode_json(self.alarm, list[dict[str, str]]) if self.alarm else []
        return any(finding["kind"] == FindingKind.UNSAFE for finding in found)


_SELECT = """
SELECT id, table_name, feed, version, spec, state, copy_state, copy_last, copy_rows, checked_id, alarm
FROM headrace_attached ORDER BY id"""
_INSERT = """
INSERT INTO headrace_attached (table_name, feed, version, spec, state, checked_id)
VALUES (?, ?, ?, ?, 'live', (SELECT coalesce(max(id), 0) FROM headrace_outbox))"""
_SET_STATE = "UPDATE headrace_attached SET state = ? WHERE id = ?"
_SET_SPEC = "UPDATE headrace_attached SET spec = ? WHERE id = ?"
_SET_COPY = "UPDATE headrace_attached SET copy_state = ?, copy_last = ?, copy_rows = ? WHERE id = ?"
_SET_CHECKED = "UPDATE headrace_attached SET checked_id = ? WHERE id = ? AND checked_id < ?"
_SET_ALARM = "UPDATE headrace_attached SET alarm = ? WHERE id = ? AND alarm IS NOT ?"
_CONTROL = """
INSERT INTO headrace_outbox (change_feed_id, op, "key", changes, control, table_name, attached)
VALUES (?, 'put', ?, ?, ?, ?, ?)"""
_END_UNIT = """
UPDATE headrace_outbox SET tx_end = 1
WHERE id = (SELECT id FROM headrace_outbox WHERE change_feed_id = ? ORDER BY id DESC LIMIT 1) AND sequence_id IS NULL"""


def read_attachments(connection: sqlite3.Connection, *states: AttachmentState) -> list[Attachment]:
    """Return the attachments in one of ``states`` (all if none is named), oldest first."""
    found = []
    for number, table, feed, version, spec, state, copy_state, *rest in connection.execute(
        _SELECT
    ).fetchall():
        if not states or state in states:
            decoded = decode_json(spec, Spec)
            where = AttachmentState(state), CopyState(copy_state)
            found.append(Attachment(number, table, feed, version, decoded, *where, *rest))
    return found


def install(connection: sqlite3.Connection, spec: Spec) -> Attachment:
    """Make the table of row values and the triggers of a new live attachment, which is returned."""
    schema, feed = spec.schema, spec.request.feed
    row = (schema.table, feed, schema.version, msgspec.json.encode(spec).decode())
    number = connection.execute(_INSERT, row).lastrowid or 0
    sql = AttachmentSql(number, spec)
    connection.execute(sql.create_row_table())
    for statement in sql.create_triggers().values():
        connection.execute(statement)
    found = read_attachments(connection, AttachmentState.LIVE)
    return next(attachment for attachment in found if attachment.number == number)


def set_spec(connection: sqlite3.Connection, number: int, spec: Spec) -> None:
    """Store ``spec`` for an attachment that stays as it is: only what was accepted may differ."""
    connection.execute(_SET_SPEC, (msgspec.json.encode(spec).decode(), number))


def drop_triggers(connection: sqlite3.Connection, number: int) -> None:
    """Take the triggers of the attachment ``number`` away; some may already be gone."""
    for kind in TRIGGER_KINDS:
        connection.execute(f"DROP TRIGGER IF EXISTS {trigger_name(number, kind)}")


def is_trigger_name(name: str) -> bool:
    """Return whether ``name`` is one that attach gives to its triggers."""
    prefix, _, rest = name.partition("_")
    number, _, kind = rest.partition("_")
    return prefix == "headrace" and number.isdigit() and kind in TRIGGER_KINDS


def retire(connection: sqlite3.Connection, attachment: Attachment, state: AttachmentState) -> None:
    """End a live attachment: its triggers go at once, its stored values once nothing needs them."""
    drop_triggers(connection, attachment.number)
    connection.execute(_SET_STATE, (state, attachment.number))


def forget(connection: sqlite3.Connection, number: int) -> None:
    """Remove what is left of an ended attachment."""
    connection.execute(f"DROP TABLE IF EXISTS {row_table(number)}")
    if has_copies(connection):
        connection.execute("DELETE FROM headrace_copy WHERE attached = ?", (number,))
    connection.execute("DELETE FROM headrace_attached WHERE id = ?", (number,))


def has_copies(connection: sqlite3.Connection) -> bool:
    """Return whether there is a ``headrace_copy``: an outbox of the first releases has none until a copy begins."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'headrace_copy'"
    return connection.execute(query).fetchone() is not None


def set_copy(
    connection: sqlite3.Connection, number: int, state: CopyState, last: int | None, rows: int
) -> None:
    """Store how far the copy is: the outbox id of the row copied last, and how many there were."""
    connection.execute(_SET_COPY, (state, last, rows, number))


def set_checked(connection: sqlite3.Connection, number: int, newest_id: int) -> None:
    """Store that triggers and catalogue agreed when ``newest_id`` was the newest outbox row."""
    connection.execute(_SET_CHECKED, (newest_id, number, newest_id))


def set_findings(connection: sqlite3.Connection, number: int, findings: Sequence[Finding]) -> None:
    """Store what is wrong with the attachment, for whoever asks how things stand; None if nothing is."""
    text = msgspec.json.encode([finding._asdict() for finding in findings]).decode() if findings else None
    connection.execute(_SET_ALARM, (text, number, text))


def newest_id(connection: sqlite3.Connection) -> int:
    """Return the greatest outbox id ever given out; under the write lock, the next one is greater by 1."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'headrace_outbox'").fetchone()
    return int(row[0]) if row else 0


def write_control(
    connection: sqlite3.Connection,
    attachment: Attachment,
    control: str,
    *,
    number: int | None = None,
    **members: object,
) -> int:
    """Add a control entry about the attachment's table to the outbox; returns its id.

    ``number`` ends its key (default: the attachment's). ``members`` stand in its ``changes`` beside database, table and
    version.
    """
    schema = attachment.spec.schema
    if control == "schema":
        key, changes = schema.entry_key(), schema.entry_changes()
    else:
        key = control_key(control, DATABASE, schema.table, attachment.number if number is None else number)
        named = {"database": DATABASE, "table": schema.table, "version": schema.version, **members}
        changes = msgspec.json.encode(named).decode()
    row = (attachment.feed, key, changes, control, schema.table, attachment.number)
    return connection.execute(_CONTROL, row).lastrowid or 0


def write_copy_begin(
    connection: sqlite3.Connection, attachment: Attachment, number: int, *, partial: bool
) -> None:
    """Say that the copy ``number`` begins. ``partial``: of some rows alone, so that no table is whole at its end."""
    write_control(
        connection, attachment, "copy-begin", number=number, **({"partial": True} if partial else {})
    )


def end_unit(connection: sqlite3.Connection, feed: str) -> None:
    """Say that the feed's newest row ends a transaction: just after BEGIN IMMEDIATE, or just before our COMMIT."""
    connection.execute(_END_UNIT, (feed,))


def row_count(connection: sqlite3.Connection, attachments: Sequence[Attachment]) -> int:
    """Return how many outbox rows about these attachments are not processed yet."""
    total = 0
    for attachment in attachments:
        query = "SELECT count(*) FROM headrace_outbox WHERE attached = ? AND NOT processed"
        total += connection.execute(query, (attachment.number,)).fetchone()[0]
    return total
