"""What attaching one table means, decided from its catalogue and the operator's request: columns, key, dangers. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.errors import AttachUnsafe, Usage
from headrace.publisher.attach.schema import Column, TableSchema
from headrace.publisher.attach.selection import AttachRequest, choose_columns, narrow
from headrace.publisher.postgres.catalogue import Partition, SourceColumn, Table
from headrace.publisher.postgres.values import column_type

JSON_TYPES: Final = ("json", "jsonb")
"""Types that have a null of their own, beside NULL."""


class Spec(msgspec.Struct, frozen=True):
    """One attachment as stored in ``headrace_attached.spec``: enough to render its rows and to rebuild its triggers.

    ``catalogue``: all columns when the triggers were made, delivered or not. ``accepted``: the dangers that there were when
    an operator accepted them (``request.accept``); it does not cover later ones. ``partitions``: those whose rows were
    copied or captured, ``file``: the tables' files, and ``oid``: the table's, at that time; a dump that is restored gives
    other oids. ``triggers``: their definitions, as PostgreSQL writes them.
    """

    schema: TableSchema
    request: AttachRequest
    catalogue: tuple[SourceColumn, ...]
    masked: tuple[str, ...]
    accepted: tuple[str, ...] = ()
    partitions: tuple[Partition, ...] = ()
    file: int = 0
    oid: int = 0
    triggers: tuple[str, ...] = ()

    @property
    def delivered(self) -> tuple[str, ...]:
        """The names of the delivered columns."""
        return tuple(column.name for column in self.schema.columns)

    @property
    def filtered(self) -> bool:
        """Whether values of the source are left out or masked: they must not reach the outbox either."""
        return bool(self.masked) or len(self.schema.columns) < len(self.catalogue)

    @property
    def json_columns(self) -> tuple[str, ...]:
        """The delivered columns that may hold a JSON null."""
        delivered = set(self.delivered) - set(self.masked)
        return tuple(
            column.name
            for column in self.catalogue
            if column.name in delivered and column.base in JSON_TYPES and column.kind == "base"
        )


def make_spec(
    table: Table, request: AttachRequest, version: int, *, accepted: tuple[str, ...] | None = None
) -> Spec:
    """Return how ``table`` is attached by ``request``.

    Raises AttachUnsafe naming the change that would be lost. What passes with ``accept`` means the dangers that there are
    now; where it was given before, ``accepted`` names those that it meant.
    """
    refuse_kind(table)
    key = _key(table, request)
    dangers = acceptable_dangers(table)
    if accepted is None:
        accepted = tuple(dangers) if request.accept else ()
    unaccepted = [danger for danger in dangers if danger not in accepted]
    if unaccepted:
        raise AttachUnsafe(
            f"{table.label}: {'; '.join(unaccepted)}",
            hint="If you can live with that, attach with --accept 'why'. The reason is kept and shown by publisher check.",
        )
    names = [column.name for column in table.columns]
    choice = choose_columns(request, table.label, names, key)
    virtual = [
        column.name for column in table.columns if column.generated == "v" and column.name in choice.delivered
    ]
    if virtual:
        raise AttachUnsafe(
            f"{table.label}: {', '.join(virtual)} is computed when it is read, and no trigger is told its value",
            hint=f"Leave it out: --exclude-columns {','.join(virtual)}.",
        )
    schema = TableSchema(
        database=table.schema,
        table=table.name,
        version=version,
        columns=tuple(
            _column(column, masked=column.name in choice.masked)
            for column in table.columns
            if column.name in choice.delivered
        ),
        key=key,
    )
    return Spec(
        schema=schema,
        request=narrow(request, table.label, names, key),
        catalogue=table.columns,
        masked=tuple(name for name in choice.delivered if name in choice.masked),
        accepted=accepted,
        partitions=table.partitions,
        file=table.file,
        oid=table.oid,
    )


def find_dangers(table: Table, spec: Spec) -> list[str]:
    """Return what makes ``table`` unsafe as ``spec`` attaches it, though it was safe, or was accepted, at that time."""
    try:
        refuse_kind(table)
        _check_key(table, spec.schema.key)
    except (AttachUnsafe, Usage) as error:
        return [error.detail]
    new = [danger for danger in acceptable_dangers(table) if danger not in spec.accepted]
    return [f"{table.label}: {'; '.join(new)}"] if new else []


def refuse_kind(table: Table) -> None:
    """Raise AttachUnsafe if triggers on ``table`` would not tell of all of its rows, whatever anyone accepts."""
    if table.inherits:
        raise AttachUnsafe(
            f"{table.label} inherits, or is inherited by, {', '.join(table.inherits)}: a statement about one of them "
            "changes rows of the other, and no trigger here tells of those",
            hint="Only tables without inheritance, and declarative partitions, can be attached.",
        )
    foreign = [partition.name for partition in table.partitions if partition.kind == "f"]
    if foreign:
        raise AttachUnsafe(
            f"{table.label}: its partition {', '.join(foreign)} is a foreign table, whose rows change elsewhere",
            hint="Attach the other partitions by themselves.",
        )
    if table.access_method != "heap":
        raise AttachUnsafe(
            f"{table.label} is stored by {table.access_method}; only heap tables tell triggers all that is needed",
            hint=f"ALTER TABLE {table.label} SET ACCESS METHOD heap, if that will do.",
        )


def acceptable_dangers(table: Table) -> list[str]:
    """Return what an operator may accept: ways to lose rows without a trigger being told, and to run code as its owner."""
    unlogged = [part.name for part in table.partitions if part.persistence == "u"]
    if table.persistence == "u":
        unlogged.insert(0, table.name)
    dangers = [f"{name} is unlogged: a crash empties it, and no trigger is told" for name in unlogged]
    return dangers + [
        f"the type {name} belongs to {role}, who could give it a cast to json that then runs with the rights of whoever "
        f"attached the table: attach it as {role}"
        for name, role in table.alien_types
    ]


def _key(table: Table, request: AttachRequest) -> tuple[str, ...]:
    if request.key:
        key = tuple(_column_name(table, name) for name in request.key)
        _check_key(table, key)
        return key
    primary = table.primary_key
    if primary is None:
        raise AttachUnsafe(
            f"{table.label} has no primary key, so nothing names its rows",
            hint="Name columns that are NOT NULL and UNIQUE together: --key COL,COL.",
        )
    key = tuple(name for name in primary.columns if name is not None)
    _check_key(table, key)
    return key


def _column_name(table: Table, name: str) -> str:
    names = [column.name for column in table.columns]
    found = [one for one in names if one == name] or [one for one in names if one.lower() == name.lower()]
    if len(found) != 1:
        raise Usage(f"--key: {table.label} has no column {name}", hint="Check the spelling.")
    return found[0]


def _check_key(table: Table, key: tuple[str, ...]) -> None:
    by_name = {column.name: column for column in table.columns}
    gone = [name for name in key if name not in by_name]
    if gone:
        raise AttachUnsafe(f"{table.label} has no column {', '.join(gone)} any more, which was in its key")
    open_to_null = [name for name in key if not by_name[name].not_null]
    if open_to_null:
        raise AttachUnsafe(
            f"{table.label}: {', '.join(open_to_null)} may be NULL, which names no row",
            hint="Only columns that are declared NOT NULL can be a key.",
        )
    fitting = [
        index
        for index in table.unique
        if set(index.columns) == set(key) and not index.partial and index.valid
    ]
    if not fitting:
        raise AttachUnsafe(
            f"{table.label}: no unique index holds exactly ({', '.join(key)}), so two rows could share this key",
            hint=f"CREATE UNIQUE INDEX ... ON {table.label} ({', '.join(key)}), valid and without WHERE, then attach again.",
        )
    if not any(index.immediate for index in fitting):
        raise AttachUnsafe(
            f"{table.label}: {fitting[0].name} is DEFERRABLE, so two rows may have one key for a while, "
            "and could swap keys",
            hint="Make the constraint NOT DEFERRABLE, or name other columns with --key.",
        )


def _column(column: SourceColumn, *, masked: bool) -> Column:
    return Column(
        name=column.name,
        type="string" if masked else column_type(column),
        source_type=column.declared,
        nullable=not column.not_null,
    )
