"""Do the triggers still say what the catalogue says? Found at start, every minute, and whenever the fingerprint has changed.

:func:`diagnose` is pure; :func:`mend` rebuilds what can be rebuilt without a person and copies what was missed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from headrace.errors import AttachUnsafe, SourceForbidden, SourceUnavailable, Usage
from headrace.publisher.attach.finding import Attached, Finding, FindingKind
from headrace.publisher.attach.selection import check_column_names
from headrace.publisher.outbox.postgres import check_format
from headrace.publisher.postgres.attach import Recopy, install_partitions, rebuild, row_count
from headrace.publisher.postgres.attachment import (
    Attachment,
    AttachmentState,
    drop_triggers,
    newest_id,
    read_attachments,
    read_triggers,
    set_checked,
    set_findings,
    set_spec,
)
from headrace.publisher.postgres.catalogue import Partition, Table, find_oid, read_table
from headrace.publisher.postgres.connection import Source, fetch_one, run_ddl, transaction
from headrace.publisher.postgres.copying import begin_copy
from headrace.publisher.postgres.diagnosis import diagnose, new_partitions
from headrace.publisher.postgres.locking import NO_WRITES, check_may_alter, check_may_create, lock_tables
from headrace.publisher.postgres.spec import Spec, make_spec
from headrace.publisher.postgres.triggers import TRUNCATE, Trigger

__all__ = ["check", "diagnose", "mend", "schema_fingerprint"]

MEND_PATIENCE_S: Final = 1.0
"""How long one rebuild is tried before the agent goes on with the feed as it is, and comes back to it."""

_LAST_COPY: Final = """
SELECT state, rows FROM headrace.headrace_copy WHERE attached = %s ORDER BY id DESC LIMIT 1"""


def schema_fingerprint(connection: Source) -> int:
    """Return a number that changes with whatever :func:`check` looks at. Cheap: one call, half a millisecond."""
    return int(fetch_one(connection, "SELECT headrace.headrace_fingerprint()")[0])


def check(connection: Source, feeds: Iterable[str] | None = None) -> list[Attached]:
    """Return every live attachment (of ``feeds``, if given) with what is wrong with it; writes nothing."""
    check_format(connection)
    wanted = None if feeds is None else set(feeds)
    found = []
    for one in read_attachments(connection, AttachmentState.LIVE):
        if wanted is None or one.feed in wanted:
            copy = connection.execute(_LAST_COPY, (one.number,)).fetchone() or ("none", 0)
            found.append(
                Attached(
                    table=one.label,
                    feed=one.feed,
                    version=one.version,
                    columns=one.spec.delivered,
                    key=one.spec.schema.key,
                    masked=one.spec.masked,
                    accepted=one.spec.request.accept,
                    copy_state=copy[0],
                    copied_rows=copy[1],
                    waiting_rows=row_count(connection, [one]),
                    findings=tuple(_findings(connection, one)[1]),
                )
            )
    return found


def mend(connection: Source, feed: str) -> list[Finding]:
    """Rebuild what is outdated of ``feed``'s tables and copy what was written meanwhile, in transactions of its own.

    Returns what is left: what a person has to do; and what is to be mended but could not be yet, because a transaction
    holds the table (call again soon) or because this role does not own it. A table that was unsafe until now, or of which a
    trigger was disabled or a partition is gone, is emptied in the feed and copied anew: nobody can tell which of its rows
    went wrong.
    """
    left: list[Finding] = []
    with transaction(connection):
        check_format(connection)
        newest = newest_id(connection)
        live = [one for one in read_attachments(connection, AttachmentState.LIVE) if one.feed == feed]
        found = {one.number: _findings(connection, one) for one in live}
    for one in live:
        table, findings = found[one.number]
        if _can_mend(one, findings):
            left += _mend(connection, one, findings)
            continue
        left += findings
        with transaction(connection):
            if (
                table is not None
                and not findings
                and (one.spec.oid, one.spec.file) != (table.oid, table.file)
            ):
                _note_place(connection, one, table)
            set_findings(connection, one.number, findings)
            set_checked(connection, one.number, newest)
    return left


def _can_mend(one: Attachment, findings: Sequence[Finding]) -> bool:
    """Return whether there is something to mend, and nothing in the way.

    A table that was only renamed goes on under its old name. With anything else wrong it goes on under its new one.
    """
    others = [finding for finding in findings if finding.kind is not FindingKind.TABLE_RENAMED]
    return bool(others or one.was_unsafe) and all(finding.kind.mendable for finding in others)


def _mend(connection: Source, one: Attachment, findings: list[Finding]) -> list[Finding]:
    """Mend one attachment; returns what is left of ``findings``."""
    try:
        left = run_ddl(connection, lambda: _mended(connection, one), patience_s=MEND_PATIENCE_S)
    except SourceForbidden as error:
        advice = f"{error.detail}. Run headrace publisher attach again as its owner"
        left = [finding._replace(detail=f"{finding.detail}: {advice}") for finding in findings]
    except SourceUnavailable as error:
        left = [finding._replace(detail=f"{finding.detail}: {error.detail}") for finding in findings]
    else:
        return left
    with transaction(connection):
        set_findings(connection, one.number, left)
    return left


def _mended(connection: Source, one: Attachment) -> list[Finding]:
    """Do it, under a lock that lets nobody write the table; what was found before may be different by now."""
    table = _find_table(connection, one)
    if table is not None:
        check_may_create(connection)
        check_may_alter(connection, [table.oid])
        lock_tables(connection, [table], NO_WRITES)
    table, findings = _findings(connection, one)
    if table is not None and _can_mend(one, findings):
        kinds = {finding.kind for finding in findings}
        if kinds == {FindingKind.PARTITION_ADDED} and not one.was_unsafe:
            findings = _add_partitions(connection, one, table)
        else:
            findings = _rebuild(connection, one, table, kinds)
    set_findings(connection, one.number, findings)
    return findings


def _rebuild(connection: Source, one: Attachment, table: Table, kinds: set[FindingKind]) -> list[Finding]:
    history = [
        other
        for other in read_attachments(connection)
        if other.feed == one.feed
        and (other.oid == table.oid or (other.schema_name, other.table) == (table.schema, table.name))
    ]
    try:
        # A masked or left-out column may have a new name now: what was asked for must still name columns.
        check_column_names(one.spec.request, {table.label: [column.name for column in table.columns]})
        version = max(other.version for other in history) + 1
        spec = make_spec(table, one.spec.request, version, accepted=one.spec.accepted)
    except (AttachUnsafe, Usage) as error:
        return [Finding(FindingKind.UNSAFE, one.label, error.detail)]
    _drop_strays(connection, one, table)
    rebuild(connection, table, spec, _recopy(one, table, spec, kinds), history)
    return []


def _recopy(one: Attachment, table: Table, spec: Spec, kinds: set[FindingKind]) -> Recopy:
    if one.was_unsafe or kinds & {FindingKind.TRIGGER_OUTDATED, FindingKind.PARTITION_GONE}:
        return Recopy(everything=True, clear=True)  # deletes too may have been kept from us
    before = {column.name: column for column in one.spec.catalogue}
    if any(
        column.name in spec.schema.key and not column.is_like(before.get(column.name))
        for column in table.columns
    ):
        return Recopy(everything=True, clear=True)  # rows stand under keys that nothing will name again
    if any(_may_be_truncated(partition) for partition in new_partitions(one, table)):
        return Recopy(everything=True, clear=True)
    known = {column.name for column in one.spec.catalogue}
    added = {column.name for column in table.columns if column.name not in known}
    if kinds == {FindingKind.COLUMN_ADDED} and not added & table.filled and one.spec.file == table.file:
        # Rows nobody has written since have NULL there, which is what a reader takes a missing member for.
        return Recopy(since=one.checked_id) if added & set(spec.delivered) else Recopy()
    return Recopy(everything=True)


def _add_partitions(connection: Source, one: Attachment, table: Table) -> list[Finding]:
    """Watch new partitions, and copy the rows that they had before; all others stay as they are."""
    added = new_partitions(one, table)
    if any(_may_be_truncated(partition) for partition in added):
        return _rebuild(connection, one, table, {FindingKind.PARTITION_ADDED})
    install_partitions(connection, table, one.number, one.spec)
    _note_place(connection, one, table)
    filled = [partition for partition in added if partition.leaf and _has_rows(connection, partition)]
    if filled:
        names = ", ".join(str(partition.oid) for partition in filled)
        begin_copy(connection, one, condition=f"tableoid IN ({names})")
    return []


def _note_place(connection: Source, one: Attachment, table: Table) -> None:
    """Note where the table's rows stand: other files after a VACUUM FULL, other oids after the restore of a dump."""
    place = {"partitions": table.partitions, "file": table.file, "oid": table.oid}
    set_spec(connection, one.number, table.oid, msgspec.structs.replace(one.spec, **place))


def _may_be_truncated(partition: Partition) -> bool:
    # A table is made in a file of its own number; TRUNCATE, like some other statements, gives it a new one. A TRUNCATE of a
    # new partition before it was seen here fired no trigger.
    return partition.leaf and partition.file != partition.oid


def _has_rows(connection: Source, partition: Partition) -> bool:
    query = f"SELECT EXISTS (SELECT FROM {_quoted(partition.schema)}.{_quoted(partition.name)})"
    return bool(fetch_one(connection, query.replace("%", "%%"), ())[0])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _drop_strays(connection: Source, one: Attachment, table: Table) -> None:
    """Take our triggers off tables that were partitions of this one: PostgreSQL takes only those that it gave them."""
    now = {partition.oid for partition in table.partitions}
    gone = [partition.oid for partition in one.spec.partitions if partition.oid not in now]
    strays: Sequence[Trigger] = [
        trigger for trigger in read_triggers(connection, gone) if trigger.name == TRUNCATE
    ]
    drop_triggers(connection, strays)


def _findings(connection: Source, one: Attachment) -> tuple[Table | None, list[Finding]]:
    table = _find_table(connection, one)
    oids = [] if table is None else [table.oid, *(partition.oid for partition in table.partitions)]
    return table, diagnose(one, table, read_triggers(connection, oids))


def _find_table(connection: Source, one: Attachment) -> Table | None:
    """Return the attached table: by its oid, or by its name in a database that was restored from a dump."""
    table = read_table(connection, one.oid)
    if table is not None and (table.schema, table.name) == (one.schema_name, one.table):
        return table
    if table is not None and read_triggers(connection, [table.oid]):
        return table
    oid = find_oid(connection, one.schema_name, one.table)
    return read_table(connection, oid) if oid is not None else None
