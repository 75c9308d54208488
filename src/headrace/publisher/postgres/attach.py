"""Attach and detach on PostgreSQL: all tables of one command in one transaction, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from psycopg import sql

from headrace.entries.feed import check_feed_id
from headrace.errors import AttachUnsafe, TableNotFound, Usage
from headrace.publisher.attach.selection import AttachRequest, check_column_names
from headrace.publisher.outbox.postgres import check_format, create_tables, has_tables
from headrace.publisher.postgres.attachment import (
    Attachment,
    AttachmentState,
    drop_triggers,
    insert_attachment,
    read_attachments,
    read_triggers,
    retire,
    set_spec,
    write_control,
)
from headrace.publisher.postgres.catalogue import Table, read_relations, read_table, search_path
from headrace.publisher.postgres.connection import Source, fetch_one, postgres_errors, run_ddl, transaction
from headrace.publisher.postgres.copy_sql import read_key
from headrace.publisher.postgres.copy_step import hand_on
from headrace.publisher.postgres.copying import begin_copy, copy_written_since
from headrace.publisher.postgres.diagnosis import diagnose
from headrace.publisher.postgres.locking import (
    NO_ACCESS,
    NO_WRITES,
    check_may_alter,
    check_may_create,
    check_readable,
    check_server,
    lock_tables,
)
from headrace.publisher.postgres.naming import choose_relations
from headrace.publisher.postgres.spec import Spec, make_spec
from headrace.publisher.postgres.triggers import TRUNCATE, create_partition_triggers, create_triggers
from headrace.publisher.postgres.waiting import waiting_rows
from headrace.publisher.source import AttachedTable, DetachedTable

WRITTEN_ROWS_MAX: Final = 2_000
"""Rows written by outdated triggers that are copied again at once, while writers wait; above that the whole table is, in
chunks.
"""

_WRITTEN: Final = """
SELECT count(*) FROM (
    SELECT FROM headrace.headrace_outbox WHERE id > %s AND attached = ANY(%s) LIMIT %s) AS found"""
_OWNER_MOVED: Final = "UPDATE headrace.headrace_owner SET epoch = epoch WHERE feed = ANY(%s)"
_DISCARD: Final = """
DELETE FROM headrace.headrace_outbox AS o WHERE o.attached = ANY(%s) AND NOT EXISTS (
    SELECT FROM headrace.headrace_mark AS m
    WHERE m.feed = o.change_feed_id AND m.tx = o.tx AND o.id BETWEEN m.first_id AND m.last_id)"""
_STAYS: Final = """
SELECT EXISTS (SELECT FROM headrace.headrace_attached WHERE state = 'live' AND id <> ALL(%s))
    OR EXISTS (SELECT FROM headrace.headrace_format WHERE used_by_application)
    OR (SELECT is_called FROM headrace.headrace_added)"""
_BEGUN: Final = "SELECT feed FROM headrace.headrace_owner WHERE incarnation IS NOT NULL"
_USED: Final = f"""{_STAYS}
    OR EXISTS (SELECT FROM headrace.headrace_outbox WHERE attached IS NULL)"""


class Recopy(NamedTuple):
    """What a rebuilt attachment copies.

    ``everything``: all rows, after a TRUNCATE entry (``clear``) where deletes may have been missed. ``since``: only the rows
    written above that outbox id. Neither: nothing.
    """

    everything: bool = False
    clear: bool = False
    since: int | None = None


def attach(connection: Source, request: AttachRequest) -> list[AttachedTable]:
    """Put triggers on the tables that ``request`` names, and begin the copies of their rows; all of them or none.

    Idempotent: a table attached just so is left alone; one whose triggers are gone, or with other options, begins anew (a
    TRUNCATE entry, its schema, copies). Copies are begun, not made. Writers of these tables wait some milliseconds.
    Raises TableNotFound, AttachUnsafe, Usage, SourceForbidden, PlatformUnsupported, FormatTooNew, with nothing written, and
    SourceUnavailable if a transaction held one of them for too long.
    """
    check_feed_id(request.feed)
    with postgres_errors():
        check_server(connection)
    return run_ddl(connection, lambda: _attach(connection, request))


def _attach(connection: Source, request: AttachRequest) -> list[AttachedTable]:
    check_may_create(connection)
    if has_tables(connection):
        check_format(connection)
    chosen = choose_relations(request, read_relations(connection), search_path(connection))
    check_may_alter(connection, [one.oid for one in chosen])
    create_tables(connection)
    lock_tables(connection, chosen, NO_WRITES)
    tables = [table for one in chosen if (table := read_table(connection, one.oid)) is not None]
    check_column_names(request, {one.label: [column.name for column in one.columns] for one in tables})
    return [_attach_table(connection, table, request) for table in tables]


def _attach_table(connection: Source, table: Table, request: AttachRequest) -> AttachedTable:
    every = read_attachments(connection)
    _refuse_overlap(every, table)
    history = [one for one in every if _is_about(one, table)]
    live = [one for one in history if one.state is AttachmentState.LIVE]
    elsewhere = next((one for one in live if one.feed != request.feed), None)
    if elsewhere is not None:
        raise Usage(
            f"{table.label} is attached to the feed {elsewhere.feed}",
            hint=f"Detach it first: headrace publisher detach --table {elsewhere.label}.",
        )
    same_feed = [one for one in history if one.feed == request.feed]
    version = max((one.version for one in same_feed), default=0)
    spec = make_spec(table, request, version + 1)
    check_readable(connection, table)
    if len(live) == 1 and _stands(connection, live[0], table, spec):
        one = live[0]
        kept = msgspec.structs.replace(spec, schema=one.spec.schema, triggers=one.spec.triggers)
        set_spec(connection, one.number, table.oid, kept)
        if request.copy and not _was_copied(connection, one):
            begin_copy(connection, one)
        return AttachedTable(table.label, one.feed, one.version, one.number, new=False)
    recopy = Recopy(everything=request.copy, clear=request.copy and bool(same_feed))
    made = rebuild(connection, table, spec, recopy, same_feed)
    return AttachedTable(table.label, made.feed, made.version, made.number, new=True)


def _is_about(one: Attachment, table: Table) -> bool:
    return one.oid == table.oid or (one.schema_name, one.table) == (table.schema, table.name)


def _refuse_overlap(every: Sequence[Attachment], table: Table) -> None:
    """A row of a partition would be told twice, under two names."""
    related = {*table.ancestors, *(partition.oid for partition in table.partitions)}
    for one in every:
        if one.state is AttachmentState.LIVE and one.oid in related:
            raise AttachUnsafe(
                f"{table.label} and {one.label} are partitions of each other, and {one.label} is attached: "
                "both would tell of the same rows",
                hint=f"Detach {one.label} first: headrace publisher detach --table {one.label}.",
            )


def _was_copied(connection: Source, attachment: Attachment) -> bool:
    query = "SELECT EXISTS (SELECT FROM headrace.headrace_copy WHERE attached = %s AND condition IS NULL)"
    return bool(fetch_one(connection, query, (attachment.number,))[0])


def _stands(connection: Source, live: Attachment, table: Table, spec: Spec) -> bool:
    oids = [table.oid, *(partition.oid for partition in table.partitions)]
    return (
        not diagnose(live, table, read_triggers(connection, oids))
        and live.spec.schema.same_shape(spec.schema)
        and live.spec.masked == spec.masked
        and live.spec.request.before == spec.request.before
    )


def rebuild(
    connection: Source, table: Table, spec: Spec, recopy: Recopy, history: Sequence[Attachment]
) -> Attachment:
    """Put the attachment of ``spec`` in the place of those of ``history`` that live, and begin its copies.

    In the caller's transaction, which holds the lock :data:`NO_WRITES` on the table. A schema entry goes first unless rows
    read as before; then a TRUNCATE entry if ``recopy.clear``; then the copies. A table that was renamed since is emptied
    under its old name.
    """
    older = [one for one in history if one.state is not AttachmentState.DETACHED]
    live = [one for one in older if one.state is AttachmentState.LIVE]
    same = next((one for one in live if (one.schema_name, one.table) == (table.schema, table.name)), None)
    for one in live:
        if one is not same:
            write_control(connection, one, "truncate")
        retire(connection, one, AttachmentState.SUPERSEDED)  # no row of it may come later
    if same is not None and same.spec.schema.same_shape(spec.schema) and not recopy.clear:
        spec = _with_version(spec, same.version)
    made = install(connection, table, spec)
    hand_on(connection, [one.number for one in live], made.number)
    if same is None or made.version != same.version:
        write_control(connection, made, "schema")
    if recopy.clear:
        write_control(connection, made, "truncate")
    numbers = [one.number for one in older]
    if recopy.since is not None and _written(connection, numbers, recopy.since) <= WRITTEN_ROWS_MAX:
        copy_written_since(connection, made, numbers, recopy.since)
    elif recopy.everything or recopy.since is not None:
        begin_copy(connection, made)
    return made


def install(connection: Source, table: Table, spec: Spec) -> Attachment:
    """Make the triggers of a new live attachment, in the place of those that stand, and return it."""
    number = insert_attachment(connection, table, spec)
    for statement in create_triggers(number, table, spec):
        connection.execute(statement)
    install_partitions(connection, table, number, spec)
    made = tuple(one.definition for one in read_triggers(connection, [table.oid]))
    set_spec(connection, number, table.oid, msgspec.structs.replace(spec, triggers=made))
    return next(one for one in read_attachments(connection, AttachmentState.LIVE) if one.number == number)


def install_partitions(connection: Source, table: Table, number: int, spec: Spec) -> None:
    """Make what partitions need beside the triggers that PostgreSQL gives them; idempotent."""
    if table.partitions:
        copy_key = msgspec.json.encode(read_key(connection, table.oid, spec.schema.key)).decode()
        for one in table.partitions:
            for statement in create_partition_triggers(number, one.schema, one.name, copy_key):
                connection.execute(statement)


def _with_version(spec: Spec, version: int) -> Spec:
    schema = msgspec.structs.replace(spec.schema, version=version)
    return msgspec.structs.replace(spec, schema=schema)


def _written(connection: Source, older: Sequence[int], since: int) -> int:
    return int(fetch_one(connection, _WRITTEN, (since, list(older), WRITTEN_ROWS_MAX + 1))[0])


def detach(connection: Source, tables: Sequence[str], *, discard: bool = False) -> list[DetachedTable]:
    """Take the triggers of ``tables`` (names; none: of all) away, and all that was made for them once it is delivered.

    Committed changes that wait are kept for the agent, unless ``discard``: call again when they are delivered. After the
    last table everything that attach made is gone, unless the application writes the outbox itself. As long as there is an
    outbox, a TRUNCATE entry ends the table in its feed: whoever follows then has no more of it than who takes a snapshot.
    Raises TableNotFound, SourceForbidden, and SourceUnavailable if a transaction held one of the tables for too long.
    """
    with transaction(connection):
        if not has_tables(connection):
            raise TableNotFound("nothing is attached: this database has no outbox")
        check_format(connection)
    return run_ddl(connection, lambda: _detach(connection, tables, discard))


def _detach(connection: Source, names: Sequence[str], discard: bool) -> list[DetachedTable]:
    every = read_attachments(connection)
    labels = {one.label for one in every}
    unknown = [name for name in names if _label_in(labels, name) is None]
    if unknown:
        raise TableNotFound(
            f"not attached: {', '.join(unknown)}; attached are: {', '.join(sorted(labels)) or 'none'}"
        )
    chosen = {label for name in names if (label := _label_in(labels, name))} or labels
    ended = [one for one in every if one.label in chosen]
    _drop_all_triggers(connection, ended)
    if discard:
        # The agent may be marking these very rows: it finds the owner's row changed, and looks again.
        connection.execute(_OWNER_MOVED, (sorted({one.feed for one in ended}),))
        connection.execute("SET LOCAL enable_hashjoin = on")
        connection.execute(_DISCARD, ([one.number for one in ended],))
    live = [one for one in ended if one.state is AttachmentState.LIVE]
    for one in _told(connection, live):
        write_control(connection, one, "truncate")
    for one in ended:  # no row of theirs may come later
        retire(connection, one, AttachmentState.DETACHED)
    result = []
    for label in sorted(chosen):
        ended_here = [one for one in ended if one.label == label]
        result.append(DetachedTable(label, ended_here[0].feed, row_count(connection, ended_here)))
    _remove_if_unused(connection)
    return result


def _told(connection: Source, live: Sequence[Attachment]) -> list[Attachment]:
    """Return those of ``live`` of which a feed was told that will go on; none if the outbox is over with them."""
    if not fetch_one(connection, _STAYS, ([one.number for one in live],))[0]:
        return []
    feeds = {feed for (feed,) in connection.execute(_BEGUN)}
    return [one for one in live if one.feed in feeds]


def _label_in(labels: set[str], name: str) -> str | None:
    for wanted in (name, name.removeprefix("public.")):
        found = [label for label in labels if label == wanted] or [
            label for label in labels if label.lower() == wanted.lower()
        ]
        if len(found) == 1:
            return found[0]
    return None


def _drop_all_triggers(connection: Source, ended: Sequence[Attachment]) -> None:
    oids = {one.oid for one in ended if one.state is AttachmentState.LIVE}
    tables = [table for oid in sorted(oids) if (table := read_table(connection, oid)) is not None]
    there = read_triggers(
        connection, [oid for one in tables for oid in (one.oid, *(p.oid for p in one.partitions))]
    )
    attached = [one for one in tables if any(trigger.oid == one.oid for trigger in there)]
    check_may_alter(connection, [one.oid for one in attached])
    lock_tables(connection, attached, NO_ACCESS)
    # The others are those that PostgreSQL gave to partitions: they go with the root's.
    roots = {one.oid for one in attached}
    drop_triggers(connection, [one for one in there if one.oid in roots or one.name == TRUNCATE])


def row_count(connection: Source, attachments: Sequence[Attachment]) -> int:
    """Return how many outbox rows about these attachments are not known to be in their feeds."""
    numbers: dict[str, list[int]] = {}
    for one in attachments:
        numbers.setdefault(one.feed, []).append(one.number)
    return sum(waiting_rows(connection, feed, attached) for feed, attached in numbers.items())


def _remove_if_unused(connection: Source) -> None:
    """Drop all that attach made if no attachment is left that anything waits for; in the caller's transaction."""
    left = read_attachments(connection)
    if fetch_one(connection, _USED, ([],))[0] or row_count(connection, left):
        return
    check_may_create(connection)
    connection.execute(sql.SQL("SET LOCAL client_min_messages = warning"))
    # With the triggers that a detached partition may have kept.
    connection.execute("DROP SCHEMA headrace CASCADE")
