"""The attachments that a database has: ``headrace_attached``, read and written inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from psycopg import sql

from headrace.publisher.attach.finding import Finding, FindingKind
from headrace.publisher.attach.schema import control_key
from headrace.publisher.postgres.catalogue import Table, label_of
from headrace.publisher.postgres.connection import Source, fetch_one
from headrace.publisher.postgres.spec import Spec
from headrace.publisher.postgres.triggers import TRIGGERS, Trigger, drop_trigger
from headrace.runtime.typed_json import decode_json


class AttachmentState(StrEnum):
    """``live``: its triggers stand. ``superseded``: a newer version took its place. ``detached``: taken away."""

    LIVE = "live"
    SUPERSEDED = "superseded"
    DETACHED = "detached"


class Attachment(NamedTuple):
    """One row of ``headrace_attached``. ``schema_name`` and ``table``: what the table was called when it was attached."""

    number: int
    schema_name: str
    table: str
    oid: int
    feed: str
    version: int
    spec: Spec
    state: AttachmentState
    checked_id: int
    ended_id: int | None
    alarm: str | None

    @property
    def label(self) -> str:
        """The table's name as people write it."""
        return label_of(self.schema_name, self.table)

    @property
    def was_unsafe(self) -> bool:
        """Whether the last check found that changes could be lost, or were, in a way that triggers can't tell of."""
        found = decode_json(self.alarm, list[dict[str, str]]) if self.alarm else []
        return any(finding["kind"] in {FindingKind.UNSAFE, FindingKind.TRIGGER_DISABLED} for finding in found)


_SELECT: Final = """
SELECT id, table_schema, table_name, table_oid::bigint, feed, version, spec, state, checked_id, ended_id, alarm
FROM headrace.headrace_attached ORDER BY id"""
_INSERT: Final = """
INSERT INTO headrace.headrace_attached (table_schema, table_name, table_oid, feed, version, spec, state, checked_id)
VALUES (%s, %s, %s, %s, %s, %s, 'live', %s) RETURNING id"""
_RETIRE: Final = """
UPDATE headrace.headrace_attached SET state = %s, ended_id = coalesce(ended_id, %s) WHERE id = %s"""
_SET_SPEC: Final = "UPDATE headrace.headrace_attached SET spec = %s, table_oid = %s WHERE id = %s"
_SET_CHECKED: Final = """
UPDATE headrace.headrace_attached SET checked_id = %(newest)s WHERE id = %(number)s AND checked_id < %(newest)s"""
_SET_ALARM: Final = """
UPDATE headrace.headrace_attached SET alarm = %(alarm)s WHERE id = %(number)s AND alarm IS DISTINCT FROM %(alarm)s"""
_RELINK: Final = """
UPDATE headrace.headrace_attached AS a SET table_oid = to_regclass(format('%I.%I', a.table_schema, a.table_name))
WHERE a.state = 'live' AND to_regclass(format('%I.%I', a.table_schema, a.table_name)) IS NOT NULL
    AND NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = a.table_oid AND t.tgname LIKE '!headrace%')"""
_CONTROL: Final = """
INSERT INTO headrace.headrace_outbox (change_feed_id, op, key, changes, control, attached)
VALUES (%s, 'put', %s, %s, %s, %s)"""
_TRIGGERS: Final = """
SELECT t.tgname, t.tgrelid::bigint, n.nspname, c.relname, t.tgenabled::text, pg_get_triggerdef(t.oid)
FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE t.tgname = ANY(%s) AND (%s::oid[] IS NULL OR t.tgrelid = ANY(%s)) ORDER BY t.tgrelid, t.tgname"""


def read_attachments(connection: Source, *states: AttachmentState) -> list[Attachment]:
    """Return the attachments in one of ``states`` (all if none is named), oldest first."""
    found = []
    for number, schema, table, oid, feed, version, spec, state, *rest in connection.execute(
        _SELECT
    ).fetchall():
        if not states or state in states:
            decoded = decode_json(spec, Spec)
            found.append(
                Attachment(number, schema, table, oid, feed, version, decoded, AttachmentState(state), *rest)
            )
    return found


def insert_attachment(connection: Source, table: Table, spec: Spec) -> int:
    """Store a new live attachment of ``table``; returns its number. Its triggers are yet to be made."""
    schema = spec.schema
    row = (schema.database, schema.table, table.oid, spec.request.feed, schema.version, _encode(spec))
    return int(fetch_one(connection, _INSERT, (*row, newest_id(connection)))[0])


def set_spec(connection: Source, number: int, oid: int, spec: Spec) -> None:
    """Store ``spec`` for an attachment whose rows stay as they are, and the oid that its table has now."""
    connection.execute(_SET_SPEC, (_encode(spec), oid, number))


def relink(connection: Source) -> None:
    """Find attached tables by their names, where a restore from a dump gave them other oids."""
    connection.execute(_RELINK)


def is_there(connection: Source, attachment: Attachment) -> bool:
    """Return whether the attached table exists."""
    return bool(
        fetch_one(connection, "SELECT EXISTS (SELECT FROM pg_class WHERE oid = %s)", (attachment.oid,))[0]
    )


def read_triggers(connection: Source, oids: Sequence[int] | None = None) -> list[Trigger]:
    """Return the triggers of ours that stand on the tables with these oids, or anywhere."""
    wanted = None if oids is None else list(oids)
    return [Trigger(*row) for row in connection.execute(_TRIGGERS, (list(TRIGGERS), wanted, wanted))]


def drop_triggers(connection: Source, triggers: Sequence[Trigger]) -> None:
    """Take ``triggers`` away. One of a partitioned table goes with those that PostgreSQL gave its partitions."""
    for trigger in triggers:
        connection.execute(drop_trigger(trigger.name, trigger.schema, trigger.table))


def retire(connection: Source, attachment: Attachment, state: AttachmentState) -> None:
    """End an attachment. The caller holds a lock that lets nobody write its table, and replaces or drops its triggers."""
    connection.execute(_RETIRE, (state, newest_id(connection), attachment.number))


def forget(connection: Source, number: int) -> None:
    """Remove what is left of an ended attachment: its row, and its copies."""
    copies = "(SELECT id FROM headrace.headrace_copy WHERE attached = %s)"
    connection.execute(sql.SQL(f"DELETE FROM headrace.headrace_copy_left WHERE copy IN {copies}"), (number,))
    connection.execute("DELETE FROM headrace.headrace_copy WHERE attached = %s", (number,))
    connection.execute("DELETE FROM headrace.headrace_attached WHERE id = %s", (number,))


def set_checked(connection: Source, number: int, newest_id: int) -> None:
    """Store that triggers and catalogue agreed when ``newest_id`` was the newest outbox row."""
    connection.execute(_SET_CHECKED, {"number": number, "newest": newest_id})


def set_findings(connection: Source, number: int, findings: Sequence[Finding]) -> None:
    """Store what is wrong with the attachment, for whoever asks how things stand; None if nothing is."""
    text = msgspec.json.encode([finding._asdict() for finding in findings]).decode() if findings else None
    connection.execute(_SET_ALARM, {"number": number, "alarm": text})


def newest_id(connection: Source) -> int:
    """Return the greatest outbox id ever given out. Read before the catalogue: whatever is captured later has a greater
    one.
    """
    row = fetch_one(connection, "SELECT pg_sequence_last_value('headrace.headrace_outbox_id')")
    return int(row[0] or 0)


def write_control(
    connection: Source, attachment: Attachment, control: str, *, number: int | None = None, **members: object
) -> None:
    """Add a control entry about the attachment's table to the outbox.

    ``number`` ends its key (default: the attachment's). ``members`` stand in its ``changes`` beside database, table and
    version.
    """
    schema = attachment.spec.schema
    if control == "schema":
        key, changes = schema.entry_key(), schema.entry_changes()
    else:
        place = attachment.number if number is None else number
        key = control_key(control, schema.database, schema.table, place)
        named = {"database": schema.database, "table": schema.table, "version": schema.version, **members}
        changes = msgspec.json.encode(named).decode()
    connection.execute(
        _CONTROL, (attachment.feed, key.removeprefix("\0"), changes, control, attachment.number)
    )


def write_copy_begin(connection: Source, attachment: Attachment, number: int, *, partial: bool) -> None:
    """Say that the copy ``number`` begins. ``partial``: of some rows alone, so that no table is whole at its end."""
    write_control(
        connection, attachment, "copy-begin", number=number, **({"partial": True} if partial else {})
    )


def _encode(spec: Spec) -> str:
    return msgspec.json.encode(spec).decode()
