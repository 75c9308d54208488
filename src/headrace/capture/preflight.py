"""What is looked at before anything is captured: the server, its rights, its tables, and the settings' rules for columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headrace.capture.catalogue_schema import from_catalogue
from headrace.capture.catalogue_table import TableKind
from headrace.capture.mariadb import fitness
from headrace.capture.mariadb.catalogue import list_tables
from headrace.capture.mariadb.connection import Source
from headrace.capture.mariadb.dump import default_replica_id
from headrace.capture.mariadb.facts import Wishes
from headrace.capture.mariadb.fitness import Finding, Severity
from headrace.capture.selection import Selection
from headrace.capture.settings import CaptureSettings, Cascades
from headrace.capture.source_schemas import SourceCatalogue
from headrace.errors import TableStopped
from headrace.simple.schema import TableSchema

LOOKS_MAX: Final = 4
"""How often the source is looked at while there is an error: tables are read part by part, and may be changed meanwhile."""

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
    columns too; once at the start of a process, because a DDL statement may take away what one of them names. An error is
    what every look finds, not what a statement under way makes of one. Raises ConfigInvalid (the changefeed file),
    SourceUnavailable, SourceUnfit.
    """
    selection = settings.find_selection()

    def look() -> list[Finding]:
        found = fitness.check(connection, wishes_of(settings, selection), replica_id_of(settings))
        if with_rules and selection.chooses_columns:
            found += judge_rules(selection, list(_schemas(connection, settings, selection)))
        return found

    found = look()
    for _ in range(LOOKS_MAX - 1):
        if all(one.severity is Severity.WARNING for one in found):
            break
        again = look()
        found = [one for one in found if one.severity is Severity.WARNING or one in again]
    return found


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


def _schemas(connection: Source, settings: CaptureSettings, selection: Selection) -> Iterator[TableSchema]:
    catalogue = SourceCatalogue(connection, settings.cascades)
    for listed in list_tables(connection):
        if listed.kind in _WITH_ROWS and selection.captures(*listed.name):
            table = catalogue.table(listed.name)
            if table is not None:
                yield from_catalogue(table, 0, 0)
