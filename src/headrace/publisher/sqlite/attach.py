"""Attach and detach on SQLite: all tables of one command in one transaction, or none."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from headrace.entries.feed import check_feed_id
from headrace.errors import AttachUnsafe, TableNotFound, Usage
from headrace.publisher.attach.selection import AttachRequest, check_column_names, choose_tables
from headrace.publisher.outbox.sqlite import TABLES, check_format, create_tables, has_tables
from headrace.publisher.source import AttachedTable, DetachedTable
from headrace.publisher.sqlite.attachment import (
    Attachment,
    AttachmentState,
    CopyState,
    end_unit,
    forget,
    install,
    is_trigger_name,
    read_attachments,
    retire,
    row_count,
    set_spec,
    write_control,
)
from headrace.publisher.sqlite.catalogue import Table, kind_of, read_table, read_triggers, table_names
from headrace.publisher.sqlite.connection import immediate
from headrace.publisher.sqlite.copies import read_copies
from headrace.publisher.sqlite.copying import begin_copy, copy_written_since, hand_on
from headrace.publisher.sqlite.spec import Spec, make_spec
from headrace.publisher.sqlite.triggers import AttachmentSql

WRITTEN_ROWS_MAX = 10_000
"""Rows written by outdated triggers that one transaction copies again; above that the whole table is copied in chunks."""


_DISCARD = """
DELETE FROM headrace_outbox WHERE attached = ? AND sequence_id IS NULL
AND id > coalesce((SELECT unit_end FROM headrace_owner WHERE feed = change_feed_id), 0)"""
"""What is marked has a place in the feed, and a unit begun is sent whole: those rows stay."""


class Recopy(NamedTuple):
    """What a rebuilt attachment copies.

    ``everything``: all rows, after a TRUNCATE entry (``clear``) where deletes may have been missed. ``since``: only the rows
    written above that outbox id. Neither: nothing.
    """

    everything: bool = False
    clear: bool = False
    since: int | None = None


def attach(connection: sqlite3.Connection, request: AttachRequest) -> list[AttachedTable]:
    """Put triggers on the tables that ``request`` names, and begin the copies of their rows; all of them or none.

    Idempotent: a table attached just so is left alone; one whose triggers are gone, or with other options, begins anew (a
    TRUNCATE entry, its schema, copies). Copies are begun, not made: call ``copying.copy_chunk`` until they are.
    Raises TableNotFound, AttachUnsafe, Usage, FormatTooNew, with nothing written.
    """
    check_feed_id(request.feed)
    with immediate(connection):
        if has_tables(connection):
            check_format(connection)
        chosen = [_table_of(connection, name) for name in _chosen(connection, request)]
        check_column_names(
            request, {table.name: [column.name for column in table.columns] for table in chosen}
        )
        create_tables(connection)
        end_unit(connection, request.feed)
        attached = [_attach_table(connection, table, request) for table in chosen]
        end_unit(connection, request.feed)
        return attached


def _chosen(connection: sqlite3.Connection, request: AttachRequest) -> list[str]:
    known = table_names(connection)
    for name in request.tables:
        kind = kind_of(connection, name)
        if kind not in (None, "table"):
            raise AttachUnsafe(
                f"{name} is a {kind}{' table' if kind != 'view' else ''}: SQLite fires no triggers after its rows change",
                hint="Attach the tables that it is made of.",
            )
    return choose_tables(request, known)


def _table_of(connection: sqlite3.Connection, name: str) -> Table:
    table = read_table(connection, name)
    if table is None:
        raise TableNotFound(f"there is no table {name}")
    return table


def _attach_table(connection: sqlite3.Connection, table: Table, request: AttachRequest) -> AttachedTable:
    history = [one for one in read_attachments(connection) if one.table == table.name]
    live = next((one for one in history if one.state is AttachmentState.LIVE), None)
    if live is not None and live.feed != request.feed:
        raise Usage(
            f"{table.name} is attached to the feed {live.feed}",
            hint=f"Detach it first: headrace publisher detach --table {table.name}.",
        )
    same_feed = [one for one in history if one.feed == request.feed]
    version = max((one.version for one in same_feed), default=0)
    spec = make_spec(table, request, version + 1)
    _refuse_null_keys(connection, spec)
    if live is not None and _stands(connection, live, spec):
        set_spec(connection, live.number, _with_version(spec, live.version))
        if request.copy and live.copy_state is CopyState.NONE:
            begin_copy(connection, live)
        return AttachedTable(table.name, live.feed, live.version, live.number, new=False)
    recopy = Recopy(everything=request.copy, clear=request.copy and bool(same_feed))
    made = rebuild(connection, live, spec, recopy, same_feed)
    return AttachedTable(table.name, made.feed, made.version, made.number, new=True)


def _stands(connection: sqlite3.Connection, live: Attachment, spec: Spec) -> bool:
    wanted = AttachmentSql(live.number, spec).create_triggers()
    there = {trigger.name: trigger.sql for trigger in read_triggers(connection)}
    return (
        live.spec.catalogue == spec.catalogue
        and live.spec.schema.same_shape(spec.schema)
        and live.spec.request.before == spec.request.before
        and all(there.get(name) == sql for name, sql in wanted.items())
    )


def _refuse_null_keys(connection: sqlite3.Connection, spec: Spec) -> None:
    if not spec.nullable_key:
        return
    count = connection.execute(AttachmentSql(0, spec).count_null_keys()).fetchone()[0]
    if count:
        raise AttachUnsafe(
            f"{spec.schema.table}: {count} row(s) have NULL in the key ({', '.join(spec.schema.key)}), which names no row",
            hint="Give those rows a key, and declare its columns NOT NULL so that none can come again.",
        )


def rebuild(
    connection: sqlite3.Connection,
    live: Attachment | None,
    spec: Spec,
    recopy: Recopy,
    history: Sequence[Attachment],
) -> Attachment:
    """Put the attachment of ``spec`` in the place of ``live``, in the caller's transaction, and begin its copies.

    A schema entry goes first unless rows read as before; then a TRUNCATE entry if ``recopy.clear``; then the copies.
    """
    older = [one for one in history if one.state is not AttachmentState.DETACHED]
    begun = [] if live is None else read_copies(connection, live)
    if live is not None:
        retire(connection, live, AttachmentState.SUPERSEDED)
        if live.spec.schema.same_shape(spec.schema) and not recopy.clear:
            spec = _with_version(spec, live.version)
    made = install(connection, spec)
    hand_on(connection, begun, made)
    if live is None or made.version != live.version:
        write_control(connection, made, "schema")
    if recopy.clear:
        write_control(connection, made, "truncate")
    if recopy.since is not None and _written(connection, older, recopy.since) <= WRITTEN_ROWS_MAX:
        copy_written_since(connection, made, older, recopy.since)
    elif recopy.everything or recopy.since is not None:
        begin_copy(connection, made)
    return made


def _with_version(spec: Spec, version: int) -> Spec:
    schema = msgspec.structs.replace(spec.schema, version=version)
    return msgspec.structs.replace(spec, schema=schema)


def _written(connection: sqlite3.Connection, older: Sequence[Attachment], since: int) -> int:
    query = "SELECT count(*) FROM headrace_outbox WHERE id > ? AND attached = ?"
    return sum(connection.execute(query, (since, one.number)).fetchone()[0] for one in older)


def detach(
    connection: sqlite3.Connection, tables: Sequence[str], *, discard: bool = False
) -> list[DetachedTable]:
    """Take the triggers of ``tables`` (names; none: of all) away, and all that was made for them once it is delivered.

    Committed changes that wait are kept for the agent, unless ``discard``: call again when they are delivered. After the
    last table everything that attach made is gone, unless the application writes the outbox itself. As long as there is an
    outbox, a TRUNCATE entry ends the table in its feed: whoever follows then has no more of it than who takes a snapshot.
    Raises TableNotFound.
    """
    with immediate(connection):
        if not has_tables(connection):
            _drop_triggers_left(connection)
            return []
        check_format(connection)
        ended = read_attachments(connection)
        names = {one.table.lower(): one.table for one in ended}
        unknown = [name for name in tables if name.lower() not in names]
        if unknown:
            attached = ", ".join(sorted(names.values())) or "none"
            raise TableNotFound(f"not attached: {', '.join(unknown)}; attached are: {attached}")
        chosen = {names[name.lower()] for name in tables} or set(names.values())
        stays = _is_used(connection) or any(
            one.state is AttachmentState.LIVE and one.table not in chosen for one in ended
        )
        result = [
            _detach_table(connection, table, [one for one in ended if one.table == table], discard, stays)
            for table in sorted(chosen)
        ]
        remove_if_unused(connection)
        return result


def _drop_triggers_left(connection: sqlite3.Connection) -> None:
    """Where somebody dropped the outbox by hand, its triggers fail every write of the application: drop them."""
    left = [trigger.name for trigger in read_triggers(connection) if is_trigger_name(trigger.name)]
    if not left:
        raise TableNotFound("nothing is attached: this database has no outbox")
    for name in left:
        connection.execute(f"DROP TRIGGER {name}")


def _detach_table(
    connection: sqlite3.Connection, table: str, ended: Sequence[Attachment], discard: bool, stays: bool
) -> DetachedTable:
    for one in ended:
        retire(connection, one, AttachmentState.DETACHED)
        if discard:
            connection.execute(_DISCARD, (one.number,))
        if stays and one.state is AttachmentState.LIVE and _was_begun(connection, one.feed):
            end_unit(connection, one.feed)
            write_control(connection, one, "truncate")
            end_unit(connection, one.feed)
    waiting = row_count(connection, ended)
    for one in ended if not waiting else ():
        connection.execute("DELETE FROM headrace_outbox WHERE attached = ?", (one.number,))
        connection.execute("UPDATE headrace_owner SET kept_from = processed_next WHERE feed = ?", (one.feed,))
        forget(connection, one.number)
    return DetachedTable(table, ended[0].feed, waiting)


def _is_used(connection: sqlite3.Connection) -> bool:
    """Return whether the application writes the outbox itself."""
    query = "SELECT count(*) FROM headrace_format WHERE used_by_application"
    return bool(connection.execute(query).fetchone()[0])


def _was_begun(connection: sqlite3.Connection, feed: str) -> bool:
    """Return whether an agent ever had the feed: else nobody was told of the table."""
    query = "SELECT 1 FROM headrace_owner WHERE feed = ? AND incarnation IS NOT NULL"
    return connection.execute(query, (feed,)).fetchone() is not None


def remove_if_unused(connection: sqlite3.Connection) -> None:
    """Drop the outbox tables if attach made them and no attachment is left; in the caller's transaction."""
    used = connection.execute(
        "SELECT (SELECT count(*) FROM headrace_attached) + (SELECT count(*) FROM headrace_outbox) + "
        "(SELECT count(*) FROM headrace_format WHERE used_by_application)"
    ).fetchone()[0]
    if used:
        return
    drop = [line for line in TABLES if line.strip().startswith("CREATE TABLE")]
    for statement in drop:
        name = statement.split("EXISTS", 1)[1].split()[0]
        connection.execute(f"DROP TABLE IF EXISTS {name}")
    for made_later in ("headrace_parked", "headrace_added_feed"):
        connection.execute(f"DROP TABLE IF EXISTS {made_later}")
