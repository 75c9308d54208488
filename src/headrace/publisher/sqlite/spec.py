"""What attaching one table means, decided from its catalogue and the operator's request: columns, key, dangers. Pure."""

from __future__ import annotations

import msgspec

from headrace.errors import AttachUnsafe, Usage
from headrace.publisher.attach.schema import Column, TableSchema
from headrace.publisher.attach.selection import AttachRequest, choose_columns, narrow
from headrace.publisher.sqlite.catalogue import SourceColumn, Table
from headrace.publisher.sqlite.values import column_type

DATABASE = "main"
"""SQLite's name of the database that a file holds; the first part of every key."""

COLUMNS_MAX = 990
"""SQLite takes 2,000 columns a table; the table of row values has two for each column, with ``--before``."""


class Spec(msgspec.Struct, frozen=True):
    """One attachment as stored in ``headrace_attached.spec``: enough to render its rows and to rebuild its triggers.

    ``catalogue``: all columns when the triggers were made, delivered or not. ``rowid``: the name by which a trigger finds
    the row again, None where only the key does. ``nullable_key``: the source may store NULL in a key column. ``accepted``:
    the dangers that there were when an operator accepted them (``request.accept``); it does not cover later ones.
    """

    schema: TableSchema
    request: AttachRequest
    catalogue: tuple[SourceColumn, ...]
    masked: tuple[str, ...]
    rowid: str | None
    nullable_key: bool
    accepted: tuple[str, ...] = ()

    @property
    def key_places(self) -> tuple[int, ...]:
        """The places of the key's columns among the delivered ones, in key order."""
        names = [column.name for column in self.schema.columns]
        return tuple(names.index(name) for name in self.schema.key)

    @property
    def filtered(self) -> bool:
        """Whether the source has columns that are not delivered."""
        return len(self.schema.columns) < len(self.catalogue)


def make_spec(
    table: Table, request: AttachRequest, version: int, *, accepted: tuple[str, ...] | None = None
) -> Spec:
    """Return how ``table`` is attached by ``request``.

    Raises AttachUnsafe naming the change that would be lost: no key, a key that is not unique or not NOT NULL, too many
    columns, a REPLACE that would silently delete another row (this one passes with ``accept``, which means the dangers that
    there are now; where it was given before, ``accepted`` names those that it meant).
    """
    key, nullable = _key(table, request)
    dangers = replace_dangers(table, key)
    if accepted is None:
        accepted = tuple(dangers) if request.accept else ()
    unaccepted = [danger for danger in dangers if danger not in accepted]
    if unaccepted:
        raise AttachUnsafe(
            f"{table.name}: {'; '.join(unaccepted)}",
            hint="If no statement does that, attach with --accept 'why'. The reason is kept and shown by publisher check.",
        )
    if len(table.columns) > COLUMNS_MAX:
        raise AttachUnsafe(
            f"{table.name} has {len(table.columns)} columns; at most {COLUMNS_MAX} can be attached"
        )
    names = [column.name for column in table.columns]
    choice = choose_columns(request, table.name, names, key)
    schema = TableSchema(
        database=DATABASE,
        table=table.name,
        version=version,
        columns=tuple(
            _column(
                column, masked=column.name in choice.masked, never_null=column.name in key and not nullable
            )
            for column in table.columns
            if column.name in choice.delivered
        ),
        key=key,
    )
    return Spec(
        schema=schema,
        request=narrow(request, table.name, names, key),
        catalogue=table.columns,
        masked=tuple(name for name in choice.delivered if name in choice.masked),
        rowid=table.rowid_name,
        nullable_key=nullable,
        accepted=accepted,
    )


def find_dangers(table: Table, spec: Spec) -> list[str]:
    """Return what makes ``table`` unsafe as ``spec`` attaches it, though it was safe, or was accepted, at that time."""
    try:
        key = _key(table, spec.request)[0] if spec.request.key else spec.schema.key
    except (AttachUnsafe, Usage) as error:
        return [error.detail]
    new = [danger for danger in replace_dangers(table, key) if danger not in spec.accepted]
    return [f"{table.name}: {'; '.join(new)}"] if new else []


def replace_dangers(table: Table, key: tuple[str, ...]) -> list[str]:
    """Return the ways in which REPLACE on ``table`` deletes a row with another key: SQLite fires no trigger for that row.

    A unique index that holds the whole key is none: a conflict in it is a conflict of the key, and the new row's put
    covers it.
    """
    dangers = []
    for index in table.unique:
        name = ", ".join(column or "an expression" for column in index.columns)
        if not set(key) <= set(index.columns):
            dangers.append(
                f"a REPLACE over the unique ({name}) deletes another row, and SQLite tells no trigger of it"
            )
        elif any(
            collation.upper() != "BINARY"
            for column, collation in zip(index.columns, index.collations, strict=True)
            if column in key
        ):
            dangers.append(
                f"the unique ({name}) takes different texts for equal, so a REPLACE can delete a row with another key"
            )
    if table.rowid_alias is not None and table.rowid_alias not in key:
        dangers.append(
            f"a REPLACE over {table.rowid_alias} deletes another row, and SQLite tells no trigger of it"
        )
    return dangers


def _key(table: Table, request: AttachRequest) -> tuple[tuple[str, ...], bool]:
    """Return the key's columns, and whether the source may store NULL in one of them."""
    if request.key:
        return _given_key(table, request.key), False
    key = table.primary_key
    if not key:
        raise AttachUnsafe(
            f"{table.name} has no primary key, so nothing names its rows",
            hint="Name columns that are NOT NULL and UNIQUE together: --key COL,COL.",
        )
    nullable = key[0] != table.rowid_alias and not table.without_rowid
    return key, nullable and any(column.key_place and not column.not_null for column in table.columns)


def _given_key(table: Table, names: tuple[str, ...]) -> tuple[str, ...]:
    by_name = {column.name.lower(): column for column in table.columns}
    unknown = [name for name in names if name.lower() not in by_name]
    if unknown:
        raise Usage(f"--key: {table.name} has no column {', '.join(unknown)}", hint="Check the spelling.")
    columns = [by_name[name.lower()] for name in names]
    key = tuple(column.name for column in columns)
    open_to_null = [
        column.name for column in columns if not column.not_null and column.name != table.rowid_alias
    ]
    if open_to_null:
        raise AttachUnsafe(
            f"{table.name}: {', '.join(open_to_null)} may be NULL, which names no row",
            hint="Only columns that are declared NOT NULL can be a key.",
        )
    unique = any(set(index.columns) == set(key) and not index.partial for index in table.unique)
    if not unique and key != (table.rowid_alias,):
        raise AttachUnsafe(
            f"{table.name}: no unique index holds exactly ({', '.join(key)}), so two rows could share this key",
            hint=f"CREATE UNIQUE INDEX ... ON {table.name} ({', '.join(key)}), then attach again.",
        )
    return key


def _column(column: SourceColumn, *, masked: bool, never_null: bool) -> Column:
    return Column(
        name=column.name,
        type="string" if masked else column_type(column.declared),
        source_type=column.declared,
        nullable=not (column.not_null or never_null),
    )
