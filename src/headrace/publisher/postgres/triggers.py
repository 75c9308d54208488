"""The SQL of an attachment: its triggers, and the JSON that they and the copies write of a row. Text only.

The functions are the same for all tables and stand in ``outbox/postgres_functions.sql``; a trigger's arguments say the rest.
Names begin with "!", so that they sort, and fire, before the application's own AFTER ROW triggers: what those change comes
after what made them fire. They hold no number, so that CREATE OR REPLACE can put a new version in the place of an old one
under a lock that stops writers for a moment and readers not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import msgspec
from psycopg import sql

from headrace.publisher.postgres.catalogue import SourceColumn, Table
from headrace.publisher.postgres.spec import Spec

WRITE: Final = "!headrace_write"
UPDATE: Final = "!headrace_update"
REKEY: Final = "!headrace_rekey"
TRUNCATE: Final = "!headrace_truncate"
ROW_TRIGGERS: Final = (WRITE, UPDATE, REKEY)
TRIGGERS: Final = (*ROW_TRIGGERS, TRUNCATE)

JSON_NULLS: Final = "\0"
"""The member in which the trigger lists the columns that hold a JSON null, which is not NULL. No column can be called so."""

_PLAIN_EQUALITY: Final = frozenset([
    "int2", "int4", "int8", "oid", "bool", "uuid", "date", "time", "timestamp", "timestamptz", "bytea", "char", "name",
    "macaddr", "macaddr8", "bit", "varbit", "money", "pg_lsn", "xid8",
])  # fmt: skip
"""Types of which equal values have equal JSON."""

_SETTLED: Final = frozenset([
    "int2", "int4", "int8", "numeric", "bool", "text", "varchar", "bpchar", "char", "name", "uuid", "oid", "date", "time",
    "timestamp",
])  # fmt: skip
"""Types whose JSON no setting of a session changes."""

_TEXTS: Final = frozenset(["text", "varchar"])
_SENT: Final = {"float4": "float4send", "float8": "float8send", "numeric": "numeric_send", "interval": "interval_send",
    "timetz": "timetz_send"}  # fmt: skip
"""Types of which equal values may have different JSON (0 and -0, 1.0 and 1.00), and the functions that tell those apart."""


class Attached(Protocol):
    """As much of an attachment as its row's JSON depends on."""

    @property
    def spec(self) -> Spec:
        """What is delivered of the table."""


class Trigger(NamedTuple):
    """A trigger that stands on a table: whether it is enabled (``A``: always), and its definition as PostgreSQL writes
    it.
    """

    name: str
    oid: int
    schema: str
    table: str
    enabled: str
    definition: str


def create_triggers(number: int, table: Table, spec: Spec) -> list[sql.Composed]:
    """Return the statements that put the attachment's triggers on its table, or in the place of those that are there."""
    place = sql.Identifier(table.schema, table.name)
    differs = _key_differs(table.columns, spec.schema.key)
    plain = not spec.filtered and not spec.json_columns
    arguments = _arguments(number, spec)
    chosen = "headrace_capture_chosen"
    form = "_plain" if all(map(_is_settled, table.columns)) else ""
    write = (f"headrace_capture{form}" if plain else chosen, arguments)
    update = (f"headrace_capture_update{form}" if plain else chosen, arguments)
    rekey = (f"headrace_capture_rekey{form}", arguments) if plain else (chosen, [*arguments, "rekey"])
    return [
        _row_trigger(WRITE, "INSERT OR DELETE", place, None, write),
        _row_trigger(UPDATE, "UPDATE", place, None, update),
        _row_trigger(REKEY, _key_event(table, spec), place, differs, rekey),
        _truncate_trigger(place, [str(number)]),
        *_always(place, TRIGGERS),
    ]


def create_partition_triggers(number: int, schema: str, name: str, copy_key: str) -> list[sql.Composed]:
    """Return the statements that a partition needs beside what PostgreSQL gives it: TRUNCATE of it alone fires no other
    trigger.

    ``copy_key``: the columns by which a copy goes, as ``headrace_copy.key`` has them.
    """
    place = sql.Identifier(schema, name)
    return [_truncate_trigger(place, [str(number), copy_key]), *_always(place, TRIGGERS)]


def drop_trigger(name: str, schema: str, table: str) -> sql.Composed:
    """Return the statement that takes a trigger away, if it is there."""
    return sql.SQL("DROP TRIGGER IF EXISTS {} ON {}").format(
        sql.Identifier(name), sql.Identifier(schema, table)
    )


def row_json(attachment: Attached, alias: str) -> sql.Composable:
    """Return SQL that makes the JSON of the row ``alias`` as the attachment's triggers do; "%" is doubled, for
    parameters.
    """
    row = sql.Identifier(alias.replace("%", "%%"))
    spec = attachment.spec
    chosen = sql.SQL(", ").join(sql.Literal(text.replace("%", "%%")) for text in _chosen(spec))
    return sql.SQL("headrace.headrace_row({}, {})").format(row, chosen)


def _arguments(number: int, spec: Spec) -> list[str]:
    common = [str(number), spec.request.feed, _names(spec.schema.key)]
    return common if not spec.filtered and not spec.json_columns else common + _chosen(spec)


def _chosen(spec: Spec) -> list[str]:
    """What headrace_row is told: the delivered columns ("" for all), the masked ones, those that may hold a JSON null."""
    delivered = _names(spec.delivered) if spec.filtered else ""
    return [delivered, _names(spec.masked), _names(spec.json_columns)]


def _names(names: Sequence[str]) -> str:
    return msgspec.json.encode(names).decode()


def _row_trigger(
    name: str,
    event: str | sql.Composed,
    place: sql.Identifier,
    when: sql.Composable | None,
    call: tuple[str, Sequence[str]],
) -> sql.Composed:
    return sql.SQL(
        "CREATE OR REPLACE TRIGGER {} AFTER {} ON {} FOR EACH ROW {} EXECUTE FUNCTION {}({})"
    ).format(
        sql.Identifier(name),
        sql.SQL(event) if isinstance(event, str) else event,
        place,
        sql.SQL("WHEN ({})").format(when) if when is not None else sql.SQL(""),
        sql.Identifier("headrace", call[0]),
        sql.SQL(", ").join(map(sql.Literal, call[1])),
    )


def _truncate_trigger(place: sql.Identifier, arguments: Sequence[str]) -> sql.Composed:
    return sql.SQL(
        "CREATE OR REPLACE TRIGGER {} AFTER TRUNCATE ON {} FOR EACH STATEMENT "
        "EXECUTE FUNCTION headrace.headrace_capture_truncate({})"
    ).format(sql.Identifier(TRUNCATE), place, sql.SQL(", ").join(map(sql.Literal, arguments)))


def _always(place: sql.Identifier, names: Sequence[str]) -> list[sql.Composed]:
    # Else nothing would fire under session_replication_role = replica, which restores and logical replication set.
    return [
        sql.SQL("ALTER TABLE {} ENABLE ALWAYS TRIGGER {}").format(place, sql.Identifier(name))
        for name in names
    ]


def _is_settled(column: SourceColumn) -> bool:
    return column.kind == "enum" or (column.kind == "base" and column.base in _SETTLED)


def is_narrow(definition: str) -> bool:
    """Return whether this trigger fires only for statements that name certain columns."""
    return " AFTER UPDATE OF " in definition


def _key_event(table: Table, spec: Spec) -> str | sql.Composed:
    """Return which updates the trigger for changed keys is asked about: those that name a column of the key.

    A BEFORE trigger can change a key that the statement does not name: where there is one, all updates.
    """
    if table.rewritten:
        return "UPDATE"
    return sql.SQL("UPDATE OF {}").format(sql.SQL(", ").join(map(sql.Identifier, spec.schema.key)))


def _key_differs(columns: Sequence[SourceColumn], key: Sequence[str]) -> sql.Composed:
    """Return when an UPDATE changes the key. A WHEN names columns by number: it outlives a rename."""
    by_name = {column.name: column for column in columns}
    pairs = [pair for name in key for pair in _pairs(by_name[name])]
    return sql.SQL(" OR ").join(sql.SQL("{} IS DISTINCT FROM {}").format(*pair) for pair in pairs)


def _pairs(column: SourceColumn) -> list[tuple[sql.Composed, sql.Composed]]:
    """Return what must be equal for the values to have equal JSON: the values themselves, or what tells them apart
    exactly.
    """
    forms = ["{}"]
    if column.base in _SENT and not (column.base == "numeric" and column.typmod > 0):
        forms = [f"pg_catalog.{_SENT[column.base]}({{}})"]
    elif column.kind == "base" and "." in column.base:
        # An equality of an extension's type may stand in a schema that is not searched.
        forms = ['pg_catalog.concat({}) COLLATE "C"']
    elif not (column.base in _PLAIN_EQUALITY or column.kind == "enum" or (column.base in _TEXTS and column.exact)
              or column.base == "numeric"):  # fmt: skip
        forms = ["{}", 'pg_catalog.concat({}) COLLATE "C"']
    return [
        (
            sql.SQL(form).format(sql.SQL("OLD.") + sql.Identifier(column.name)),
            sql.SQL(form).format(sql.SQL("NEW.") + sql.Identifier(column.name)),
        )
        for form in forms
    ]
