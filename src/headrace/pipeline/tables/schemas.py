"""The schemas of a feed's tables, by their place in the feed: which columns a row has is said by the feed, never guessed.

A schema is a control entry (``docs/formats/attached-change.md``). It holds for the rows of its table that come after it, up
to the table's next schema entry. Pure; called by the tables job on the driver, and on workers to type rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from headrace.errors import InvalidRequest, ValueUnfit
from headrace.runtime.typed_json import decode_json

OWN_PREFIX: Final = "_headrace_"
"""How our own columns begin; a source column may not."""

_UNREADABLE: Final = re.compile(r'["\\\x00-\x1f]')
"""Characters that a member's name may not have, because JSON escapes them."""

TableName = tuple[str, ...]
"""The ``table`` of an entry, such as ``("main", "accounts")``."""


def table_name(text: str) -> TableName:
    """Return the table that an option or a command names: ``shop.orders``, ``["shop", "a.b"]``, or nothing."""
    if not text.startswith("["):
        return tuple(text.split(".", 1)) if text else ()
    try:
        return decode_json(text, TableName)
    except msgspec.MsgspecError:
        raise InvalidRequest(
            f"{text[:200]!r} names no table", hint='Write DATABASE.TABLE, or ["DATABASE", "TABLE"].'
        ) from None


class Column(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """One column as the feed describes it. ``renamed_from``: what the same column was called in the version before."""

    name: str
    type: str
    nullable: bool = True
    source_type: str = ""
    renamed_from: str = ""


class TableSchema(msgspec.Struct, frozen=True):
    """The ``changes`` of a schema entry. Members that this version doesn't know are passed over."""

    database: str
    table: str
    version: int
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()

    @property
    def name(self) -> TableName:
        """The table as its rows name it."""
        return (self.database, self.table)

    def column_names(self) -> list[str]:
        """Return the names of the columns, in order."""
        return [column.name for column in self.columns]


class PlacedSchema(msgspec.Struct, frozen=True, rename="kebab"):
    """A schema and the sequence id of its entry: it is in force for the rows above it.

    Those that a snapshot brings stand at one place, below all that the snapshot stands for.
    """

    sequence_id: int
    schema: TableSchema

    @property
    def identity(self) -> tuple[int, TableName]:
        """What tells it from others, in feed order."""
        return self.sequence_id, self.schema.name


class _Cleared(msgspec.Struct, frozen=True):
    database: str
    table: str


_DECODER: Final = msgspec.json.Decoder(TableSchema)
_CLEARED: Final = msgspec.json.Decoder(_Cleared)


def read_schema(value: bytes, *, feed: str, sequence_id: int) -> TableSchema:
    """Return the schema that a schema entry's value describes.

    Raises ValueUnfit, naming feed and entry, if it is none, or one that no table can have: two columns whose names differ
    in case alone (Spark does not tell them apart), or a column named like one of ours.
    """
    try:
        schema = _DECODER.decode(value)
    except msgspec.MsgspecError as error:
        raise unfit(feed, sequence_id, (), "", f"the schema entry can't be read: {error}") from None
    seen: dict[str, str] = {}
    for column in schema.columns:
        lower = column.name.lower()
        if lower in seen:
            problem = f"the names {seen[lower]!r} and {column.name!r} differ in case alone"
            raise unfit(feed, sequence_id, schema.name, column.name, problem)
        if lower.startswith(OWN_PREFIX) or not column.name or _UNREADABLE.search(column.name):
            problem = f"a column may not be named {column.name!r}"
            raise unfit(feed, sequence_id, schema.name, column.name, problem)
        seen[lower] = column.name
    return schema


def read_cleared(value: bytes, *, feed: str, sequence_id: int) -> TableName:
    """Return the table that a truncate entry's value names; ValueUnfit if it names none."""
    try:
        found = _CLEARED.decode(value)
    except msgspec.MsgspecError as error:
        raise unfit(feed, sequence_id, (), "", f"the truncate entry can't be read: {error}") from None
    return (found.database, found.table)


def unfit(feed: str, sequence_id: int, table: TableName, column: str, problem: str) -> ValueUnfit:
    """Return the error for a value that doesn't fit, in one line that names where it stands."""
    places = [f"feed {feed}", f"sequence id {sequence_id}"]
    places += [f"table {'.'.join(table)}"] if any(table) else []
    places += [f"column {column}"] if column else []
    return ValueUnfit(
        f"{', '.join(places)}: {' '.join(problem.split())}",
        change_feed_id=feed,
        sequence_id=sequence_id,
        table=list(table) if any(table) else None,
        column=column or None,
    )


@dataclass(slots=True)
class SchemaHistory:
    """Every schema of a feed that has been seen, in feed order; asked for the one in force at a place."""

    placed: list[PlacedSchema] = field(default_factory=list)

    def add(self, found: Iterable[PlacedSchema]) -> bool:
        """Add schemas; one that is there already (a batch that runs again) changes nothing. True if any was new."""
        known = {one.identity for one in self.placed}
        fresh = [one for one in found if one.identity not in known]
        self.placed = sorted([*self.placed, *fresh], key=lambda one: one.identity)
        return bool(fresh)

    def of(self, table: TableName, last: int | None = None) -> list[PlacedSchema]:
        """Return the schemas of ``table`` in feed order; those at or below the sequence id ``last`` if it is given."""
        return [
            one
            for one in self.placed
            if one.schema.name == table and (last is None or one.sequence_id <= last)
        ]

    def tables(self) -> list[TableName]:
        """Return every table that has a schema, by name."""
        return sorted({one.schema.name for one in self.placed})


def later_names(schema: TableSchema, later: Sequence[TableSchema]) -> list[str | None]:
    """Return what each column of ``schema`` is called in the last of the versions ``later``; None where it was dropped."""
    names: list[str | None] = list(schema.column_names())
    for version in later:
        current = set(version.column_names())
        renamed = {column.renamed_from: column.name for column in version.columns if column.renamed_from}
        names = [
            None if name is None else renamed.get(name, name if name in current else None) for name in names
        ]
    return names


def lenient(schema: TableSchema) -> TableSchema:
    """Return ``schema`` with every column nullable: how folded rows are read, whose older parts may lack newer columns."""
    columns = tuple(Column(column.name, column.type) for column in schema.columns)
    return TableSchema(schema.database, schema.table, schema.version, columns, schema.key)


@dataclass(frozen=True, slots=True)
class Evolution:
    """How a table's columns become those of a newer schema: first renames, then drops, then additions."""

    renames: tuple[tuple[str, str], ...] = ()
    drops: tuple[str, ...] = ()
    adds: tuple[Column, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.renames or self.drops or self.adds)


def evolution(
    actual: Mapping[str, str],
    wanted: Mapping[str, str],
    schemas: Iterable[TableSchema],
    *,
    recopied: bool = False,
) -> Evolution:
    """Return what makes the columns ``actual`` (name -> Spark type) those of the newest of ``schemas``.

    ``schemas`` are the table's in feed order, ``wanted`` is the newest's columns (name -> Spark type). It looks at the
    table as it is, so that a change that was half done when the job died is finished, not repeated. A column of another type
    is dropped and added anew if the table's rows are all ``recopied`` behind the newest schema, else ValueUnfit.
    """
    versions = list(schemas)
    columns = dict(actual)
    renames: list[tuple[str, str]] = []
    for schema in versions:
        for column in schema.columns:
            old, new = column.renamed_from, column.name
            if old and old in columns and old not in wanted and new not in columns:
                columns[new] = columns.pop(old)
                renames.append((old, new))
    retyped = sorted(name for name, kind in wanted.items() if name in columns and columns[name] != kind)
    for name in retyped:
        kind = wanted[name]
        if recopied:
            del columns[name]
        else:
            newest = versions[-1]
            raise ValueUnfit(
                f"table {'.'.join(newest.name)}, column {name}: schema version {newest.version} makes it {kind}, "
                f"the table has {columns[name]}",
                hint="A column's type can't be changed in place: copy the table again.",
                table=list(newest.name),
                column=name,
            )
    adds = tuple(
        column for column in versions[-1].columns if column.name in wanted and column.name not in columns
    )
    drops = {*columns, *retyped} - (set(wanted) - set(retyped))
    return Evolution(tuple(renames), tuple(sorted(drops)), adds)
