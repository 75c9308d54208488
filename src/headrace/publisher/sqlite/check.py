"""Do the triggers still say what the catalogue says? Found at start, every minute, and whenever the schema has changed.

:func:`diagnose` is pure; :func:`mend` rebuilds what can be rebuilt without a person and copies what was missed meanwhile.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence

from headrace.errors import AttachUnsafe, Usage
from headrace.publisher.attach.finding import Attached, Finding, FindingKind
from headrace.publisher.attach.selection import check_column_names
from headrace.publisher.outbox.sqlite import check_format
from headrace.publisher.sqlite.attach import Recopy, rebuild
from headrace.publisher.sqlite.attachment import (
    Attachment,
    AttachmentState,
    newest_id,
    read_attachments,
    row_count,
    set_checked,
    set_findings,
)
from headrace.publisher.sqlite.catalogue import SourceColumn, Table, Trigger, read_table, read_triggers
from headrace.publisher.sqlite.connection import immediate
from headrace.publisher.sqlite.copies import read_copies
from headrace.publisher.sqlite.spec import find_dangers, make_spec

_RAISE_IGNORE = re.compile(r"raise\s*\(\s*ignore\s*\)", re.IGNORECASE)


def check(connection: sqlite3.Connection, feeds: Iterable[str] | None = None) -> list[Attached]:
    """Return every live attachment (of ``feeds``, if given) with what is wrong with it; writes nothing."""
    check_format(connection)
    live = read_attachments(connection, AttachmentState.LIVE)
    wanted = None if feeds is None else set(feeds)
    triggers = read_triggers(connection)
    return [
        Attached(
            table=one.table,
            feed=one.feed,
            version=one.version,
            columns=tuple(column.name for column in one.spec.schema.columns),
            key=one.spec.schema.key,
            masked=one.spec.masked,
            accepted=one.spec.request.accept,
            copy_state=_copy_state(connection, one),
            copied_rows=one.copy_rows,
            waiting_rows=row_count(connection, [one]),
            findings=tuple(diagnose(one, read_table(connection, one.table), triggers)),
        )
        for one in live
        if wanted is None or one.feed in wanted
    ]


def _copy_state(connection: sqlite3.Connection, one: Attachment) -> str:
    whole = [copy.state for copy in read_copies(connection, one) if copy.condition is None]
    return whole[-1] if whole else one.copy_state


def diagnose(attachment: Attachment, table: Table | None, triggers: Sequence[Trigger]) -> list[Finding]:
    """Return what is wrong between an attachment, its table as it is now, and the triggers that there are."""
    name = attachment.table
    expected = attachment.sql.create_triggers()
    there = {trigger.name: trigger for trigger in triggers if trigger.name in expected}
    moved = next((trigger.table for trigger in there.values() if trigger.table != name), None)
    if moved is not None:
        return [
            Finding(
                FindingKind.TABLE_RENAMED, name, f"{name} is called {moved} now; its changes go on as {name}"
            )
        ]
    if table is None:
        return [Finding(FindingKind.TABLE_MISSING, name, f"there is no table {name} any more")]
    missing = sorted(set(expected) - set(there))
    if missing:
        detail = f"{name} has lost the trigger(s) {', '.join(missing)}: its changes since then are not in the outbox"
        return [Finding(FindingKind.TRIGGER_MISSING, name, detail)]
    findings = _column_findings(attachment, table)
    if not findings and any(there[trigger].sql != sql for trigger, sql in expected.items()):
        findings.append(
            Finding(FindingKind.TRIGGER_OUTDATED, name, f"the triggers of {name} are not the ones made")
        )
    findings += _overtaken(name, there.values(), triggers)
    if set(table.primary_key) != _primary_key(attachment.spec.catalogue):
        findings.append(Finding(FindingKind.KEY_CHANGED, name, f"{name} has another primary key now"))
    dangers = find_dangers(table, attachment.spec)
    return findings + [Finding(FindingKind.UNSAFE, name, danger) for danger in dangers]


def _column_findings(attachment: Attachment, table: Table) -> list[Finding]:
    before = {column.name: column for column in attachment.spec.catalogue}
    now = {column.name: column for column in table.columns}
    added = [column for column in table.columns if column.name not in before]
    changed = [name for name, column in before.items() if now.get(name) != column]
    findings = []
    if changed:
        detail = f"{table.name}: changed or gone: {', '.join(changed)}"
        findings.append(Finding(FindingKind.COLUMN_CHANGED, table.name, detail))
    if added:
        detail = f"{table.name}: new: {', '.join(column.name for column in added)}"
        findings.append(Finding(FindingKind.COLUMN_ADDED, table.name, detail))
    return findings


def _overtaken(name: str, ours: Iterable[Trigger], triggers: Sequence[Trigger]) -> list[Finding]:
    """A newer AFTER trigger of the table that may RAISE(IGNORE) fires first, and then ours does not fire at all."""
    oldest = min(trigger.place for trigger in ours)
    return [
        Finding(
            FindingKind.TRIGGER_OVERTAKEN, name, f"{name}: the trigger {other.name} can keep ours from firing"
        )
        for other in triggers
        if other.table == name and other.place > oldest and _RAISE_IGNORE.search(other.sql)
    ]


def _primary_key(columns: Iterable[SourceColumn]) -> set[str]:
    return {column.name for column in columns if column.key_place}


def mend(connection: sqlite3.Connection, feed: str) -> list[Finding]:
    """Rebuild the outdated triggers of ``feed``'s tables and copy what was written meanwhile.

    Returns what is left for a person (a rebuild that would be unsafe among it). Whatever is right is noted as checked, in
    the same transaction that found it so; what a later rebuild has to mend is not. A table that was unsafe until now is
    emptied in the feed and copied anew: nobody can tell which of its rows went wrong meanwhile.
    """
    with immediate(connection):
        check_format(connection)
        triggers = read_triggers(connection)
        newest = newest_id(connection)
        left: list[Finding] = []
        for one in read_attachments(connection, AttachmentState.LIVE):
            if one.feed != feed:
                continue
            found = diagnose(one, read_table(connection, one.table), triggers)
            findings = found
            if (found or one.was_unsafe) and all(finding.kind.mendable for finding in found):
                findings = _rebuild(connection, one, found)
            left += findings
            set_findings(connection, one.number, findings)
            if not findings or not any(finding.kind.mendable for finding in found):
                set_checked(connection, one.number, newest)
        return left


def _rebuild(connection: sqlite3.Connection, one: Attachment, findings: Sequence[Finding]) -> list[Finding]:
    table = read_table(connection, one.table)
    if table is None:
        return list(findings)
    history = [
        other for other in read_attachments(connection) if other.table == one.table and other.feed == one.feed
    ]
    version = max(other.version for other in history) + 1
    try:
        # A masked or left-out column may have a new name now: what was asked for must still name columns.
        check_column_names(one.spec.request, {table.name: [column.name for column in table.columns]})
        spec = make_spec(table, one.spec.request, version, accepted=one.spec.accepted)
    except (AttachUnsafe, Usage) as error:
        return [Finding(FindingKind.UNSAFE, one.table, error.detail)]
    kinds = {finding.kind for finding in findings}
    added = [
        column
        for column in table.columns
        if column.name not in {before.name for before in one.spec.catalogue}
    ]
    delivered = {column.name for column in spec.schema.columns}
    if one.was_unsafe or FindingKind.TRIGGER_OVERTAKEN in kinds:
        recopy = Recopy(everything=True, clear=True)  # deletes too may have been kept from us
    elif kinds == {FindingKind.COLUMN_ADDED} and all(_is_null_so_far(column) for column in added):
        # Rows nobody has written since have NULL there, which is what a reader takes a missing member for.
        recopy = Recopy(since=one.checked_id) if delivered & {column.name for column in added} else Recopy()
    else:
        recopy = Recopy(everything=True)
    rebuild(connection, one, spec, recopy, history)
    return []


def _is_null_so_far(column: SourceColumn) -> bool:
    return not column.generated and (column.default is None or column.default.upper() == "NULL")
