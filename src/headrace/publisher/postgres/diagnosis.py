"""Do an attachment, its table as it is now, and the triggers that there are agree? Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from headrace.publisher.attach.finding import Finding, FindingKind
from headrace.publisher.postgres.attachment import Attachment
from headrace.publisher.postgres.catalogue import Partition, Table, label_of
from headrace.publisher.postgres.spec import find_dangers
from headrace.publisher.postgres.triggers import TRIGGERS, Trigger, is_narrow

_ALWAYS: Final = "A"
_ORIGIN: Final = "O"


def diagnose(attachment: Attachment, table: Table | None, triggers: Sequence[Trigger]) -> list[Finding]:
    """Return what is wrong between an attachment, its table as it is now, and the triggers on it and its partitions."""
    name = attachment.label
    if table is None:
        return [Finding(FindingKind.TABLE_MISSING, name, f"there is no table {name} any more")]
    renamed = []
    if (table.schema, table.name) != (attachment.schema_name, attachment.table):
        detail = f"{name} is called {table.label} now; its changes go on as {name}"
        renamed = [Finding(FindingKind.TABLE_RENAMED, name, detail)]
    return renamed + _differences(attachment, table, triggers, renamed=bool(renamed))


def _differences(
    attachment: Attachment, table: Table, triggers: Sequence[Trigger], *, renamed: bool
) -> list[Finding]:
    name = attachment.label
    wrong = _trigger_findings(attachment, table, triggers)
    if wrong and wrong[0].kind is FindingKind.TRIGGER_MISSING:
        return wrong
    findings = _column_findings(attachment, table)
    own = tuple(one.definition for one in triggers if one.oid == table.oid)
    # A definition has the table's name in it.
    if not findings and not wrong and not renamed and own != attachment.spec.triggers:
        wrong.append(
            Finding(FindingKind.TRIGGER_OUTDATED, name, f"the triggers of {name} are not the ones made")
        )
    if table.rewritten and any(is_narrow(definition) for definition in own):
        detail = f"{name} has a BEFORE UPDATE trigger now, which may change a key that no statement names"
        wrong.append(Finding(FindingKind.TRIGGER_OUTDATED, name, detail))
    findings += wrong + _partition_findings(attachment, table)
    primary = table.primary_key
    if (
        not attachment.spec.request.key
        and primary
        and set(primary.columns) != set(attachment.spec.schema.key)
    ):
        findings.append(Finding(FindingKind.KEY_CHANGED, name, f"{name} has another primary key now"))
    dangers = find_dangers(table, attachment.spec)
    return findings + [Finding(FindingKind.UNSAFE, name, danger) for danger in dangers]


def new_partitions(attachment: Attachment, table: Table) -> list[Partition]:
    """Return the partitions of ``table`` that the attachment does not know."""
    known = _known(attachment, table)
    return [one for one in table.partitions if _identity(one, attachment, table) not in known]


def _known(attachment: Attachment, table: Table) -> set[object]:
    return {_identity(one, attachment, table) for one in attachment.spec.partitions}


def _identity(partition: Partition, attachment: Attachment, table: Table) -> object:
    # A dump that was restored gives new oids to all tables, and partitions keep their names.
    return partition.oid if attachment.spec.oid == table.oid else (partition.schema, partition.name)


def _trigger_findings(attachment: Attachment, table: Table, triggers: Sequence[Trigger]) -> list[Finding]:
    name = attachment.label
    known = _known(attachment, table)
    places = [(table.oid, table.schema, table.name)]
    places += [
        (one.oid, one.schema, one.name)
        for one in table.partitions
        if _identity(one, attachment, table) in known
    ]
    there = {(one.oid, one.name): one for one in triggers}
    missing, disabled, demoted = [], [], []
    for oid, schema, place in places:
        for trigger in TRIGGERS:
            found = there.get((oid, trigger))
            text = trigger if oid == table.oid else f"{trigger} (on {label_of(schema, place)})"
            if found is None:
                missing.append(text)
            elif found.enabled == _ORIGIN:
                demoted.append(text)
            elif found.enabled != _ALWAYS:
                disabled.append(text)
    if missing:
        detail = f"{name} has lost the trigger(s) {', '.join(missing)}: its changes since then are not in the outbox"
        return [Finding(FindingKind.TRIGGER_MISSING, name, detail)]
    findings = []
    if disabled:
        detail = f"{name}: disabled: {', '.join(disabled)}: its changes since then are not in the outbox"
        findings.append(Finding(FindingKind.TRIGGER_DISABLED, name, detail))
    if demoted:
        detail = f"{name}: not ENABLE ALWAYS any more: {', '.join(demoted)}; they were disabled for a while, it seems"
        findings.append(Finding(FindingKind.TRIGGER_OUTDATED, name, detail))
    return findings


def _column_findings(attachment: Attachment, table: Table) -> list[Finding]:
    name = attachment.label
    before = {column.name: column for column in attachment.spec.catalogue}
    now = {column.name: column for column in table.columns}
    added = [column for column in table.columns if column.name not in before]
    changed = [one for one, column in before.items() if one not in now or not now[one].is_like(column)]
    findings = []
    if changed:
        findings.append(
            Finding(FindingKind.COLUMN_CHANGED, name, f"{name}: changed or gone: {', '.join(changed)}")
        )
    if added:
        detail = f"{name}: new: {', '.join(column.name for column in added)}"
        findings.append(Finding(FindingKind.COLUMN_ADDED, name, detail))
    return findings


def _partition_findings(attachment: Attachment, table: Table) -> list[Finding]:
    name = attachment.label
    now = {_identity(one, attachment, table) for one in table.partitions}
    gone = [one for one in attachment.spec.partitions if _identity(one, attachment, table) not in now]
    added = new_partitions(attachment, table)
    findings = []
    if gone:
        detail = f"{name}: dropped or detached: {_labels(gone)}, and its rows with it"
        findings.append(Finding(FindingKind.PARTITION_GONE, name, detail))
    if added:
        findings.append(Finding(FindingKind.PARTITION_ADDED, name, f"{name}: new: {_labels(added)}"))
    return findings


def _labels(partitions: Iterable[Partition]) -> str:
    return ", ".join(label_of(one.schema, one.name) for one in partitions)
