"""What is looked at before anything is captured: the server, its rights, its tables, and the settings' rules for columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from headrace.capture.catalogue_schema import from_catalogue
from headrace.capture.catalogue_table import TableKind
from headrace.capture.ddl import TableName
from headrace.capture.mariadb import fitness
from headrace.capture.mariadb.catalogue import list_tables
from headrace.capture.mariadb.connection import Source, held, source_errors
from headrace.capture.mariadb.dump import default_replica_id
from headrace.capture.mariadb.facts import Wishes
from headrace.capture.mariadb.fitness import NO_TABLE, Finding, Severity
from headrace.capture.selection import Selection
from headrace.capture.settings import CaptureSettings, Cascades
from headrace.capture.source_schemas import SourceCatalogue
from headrace.errors import SourceForbidden, SourceLocked, TableNotFound, TableStopped
from headrace.simple.schema import TableSchema

LOCK_WAIT_S: Final = 1
"""How long a look at a table waits for a statement that changes the table; then what was found counts."""

LOOKS_MAX: Final = 4
"""How often all tables are looked at while an error is about none of them, or there is none."""

_WITH_ROWS: Final = frozenset({TableKind.TABLE, TableKind.VERSIONED})


def replica_id_of(settings: CaptureSettings) -> int:
    """Return what capture calls itself among the server's replicas."""
    return settings.replica_server_id or default_replica_id(settings.replica_name)


def wishes_of(settings: CaptureSettings, selection: Selection) -> Wishes:
    """Return what the server and its tables are judged by."""
    return Wishes(
        captures=selection.captures,
        longest_outage_s=settings.longest_outage_s,
        accept_cascades=settings.cascades is Cascades.ACCEPT,
        hides=selection.hides,
    )


def check_source(connection: Source, settings: CaptureSettings, *, with_rules: bool = True) -> list[Finding]:
    """Return all that is not as it should be, the server's first, then tables, then rules; [] if all is well.

    An error that concerns one table stops that table alone, any other one the capture. ``with_rules``: look at the rules for
    columns too; once at the start of a process, because a DDL statement may take away what one of them names. Raises
    ConfigInvalid (the changefeed file), SourceUnavailable, SourceUnfit.

    Tables are read part by part, and may be changed meanwhile: an error counts if it is found again, that of a table while
    its shape is held. So does that no table is captured: the catalogue does not list one whose files are being swapped.
    """
    selection = settings.find_selection()
    with_rules = with_rules and selection.chooses_columns

    def look(captures: Callable[[str, str], bool]) -> list[Finding]:
        wishes = wishes_of(settings, selection)._replace(captures=captures)
        found = fitness.check(connection, wishes, replica_id_of(settings))
        if with_rules:
            found += judge_rules(selection, list(_schemas(connection, settings, captures)))
        return found

    def is_so(finding: Finding) -> bool:
        if finding.table is None or finding.severity is not Severity.ERROR:
            return True
        try:
            with source_errors(), held(connection, str(TableName(*finding.table)), wait_s=LOCK_WAIT_S):
                return finding in look(lambda *name: name == finding.table)
        except TableNotFound:
            return False
        except (SourceForbidden, SourceLocked):
            return True

    found = look(selection.captures)
    for _ in range(LOOKS_MAX - 1):
        if not any(map(_may_pass, found)):
            break
        again = look(selection.captures)
        found = [one for one in found if not _may_pass(one) or one in again]
    return [one for one in found if is_so(one)]


def _may_pass(finding: Finding) -> bool:
    return finding.table is None and (finding.severity is Severity.ERROR or finding.subject == NO_TABLE)


def judge_rules(selection: Selection, schemas: list[TableSchema]) -> list[Finding]:
    """Return which rules for columns can't be kept for these tables, and which name nothing in them."""
    found = []
    for schema in schemas:
        try:
            selection.of(schema)
        except TableStopped as error:
            name = (schema.schema, schema.table)
            found.append(Finding(Severity.ERROR, ".".join(name), error.detail, error.advice, name))
    for rule in selection.unmatched(schemas):
        setting, _, pattern = rule.partition(": ")
        found.append(
            Finding(
                Severity.ERROR,
                setting,
                f"{pattern} names no column of a captured table",
                "Mend the pattern, or take it out: a misspelt one hides nothing.",
            )
        )
    return found


def _schemas(
    connection: Source, settings: CaptureSettings, captures: Callable[[str, str], bool]
) -> Iterator[TableSchema]:
    catalogue = SourceCatalogue(connection, settings.cascades)
    for listed in list_tables(connection):
        if listed.kind in _WITH_ROWS and captures(*listed.name):
            table = catalogue.table(listed.name)
            if table is not None:
                yield from_catalogue(table, 0, 0)
