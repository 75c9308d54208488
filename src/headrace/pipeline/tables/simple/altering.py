"""One statement's clauses, carried out on a table's columns: names from ``sql`` alone, types from it and its schema.

The schema of a DDL message may be that of a later statement. It only adds what ``sql`` leaves open, and only of a column
that has the name and type that ``sql`` gives it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.capture.ddl.columns import ColumnChanges, ColumnDefinition, ColumnUnknown
from headrace.pipeline.tables.simple.evolution import Columns, Slot, Unfollowed
from headrace.pipeline.tables.simple.fills import Unknowable, fill
from headrace.pipeline.tables.simple.spark_types import spark_kind
from headrace.simple.mysql_types import Family, family_of
from headrace.simple.schema import Column, DataType, TableSchema

_TEXTS: Final = frozenset({Family.TEXT, Family.JSON})
_FLOATS: Final = frozenset({Family.FLOAT, Family.DOUBLE})


def follow(columns: Columns, changes: ColumnChanges, schema: TableSchema | None, began_s: int | None) -> None:
    """Carry out a statement on ``columns``. ``schema`` came with it, ``began_s`` is when the source began it.

    Raises Unfollowed, and leaves ``columns`` half changed: what it does to rows can't be told, or not be followed.
    """
    if changes.unread:
        raise Unfollowed("it can't be read, so it may have changed any column")
    if changes.converts_charset == "binary":
        raise Unfollowed("it turns text into bytes of character sets that are not known here")
    shown = {column.name.casefold(): column for column in schema.columns} if schema is not None else {}
    names = [*(slot.name for slot in columns.slots), *columns.hidden]
    try:
        outcome = changes.applied(names)
    except ColumnUnknown as error:
        raise Unfollowed(f"it names the column {error}, which the table does not have") from None
    slots, hidden = [], []
    for place, (name, definition) in outcome.kept.items():
        beside = shown.get(name.casefold())
        if place >= len(columns.slots):
            if definition is not None and _type_of(definition, beside) is not None:
                raise Unfollowed(f"column {name}: messages had no values of it before")
            hidden.append(name)
            continue
        slot = columns.slots[place]
        slot.name = name
        if definition is not None:
            _redefine(columns, slot, definition, beside)
        slots.append(slot)
    columns.slots, columns.hidden = slots, hidden
    for definition in outcome.added:
        _add(columns, definition, shown.get(definition.name.casefold()), began_s)


def _redefine(columns: Columns, slot: Slot, definition: ColumnDefinition, beside: Column | None) -> None:
    if definition.generated:
        raise Unfollowed(f"column {slot.name}: it is generated, and nobody but the source has its new values")
    data_type = _type_of(definition, beside)
    if data_type is None:
        raise Unfollowed(f"column {slot.name}: its new type has no values in messages")
    nullable = definition.nullable
    if nullable is None:
        nullable = slot.nullable if data_type.mysql_type == "timestamp" else True
    columns.convert(slot, data_type, nullable=nullable)


def _add(columns: Columns, definition: ColumnDefinition, beside: Column | None, began_s: int | None) -> None:
    data_type = _type_of(definition, beside)
    if data_type is None:
        columns.hidden.append(definition.name)
        return
    same = beside if beside is not None and data_type == _with_scale(beside.data_type, data_type) else None
    try:
        value = fill(definition, data_type, same, began_s)
    except Unknowable as error:
        raise Unfollowed(f"column {definition.name}: what old rows have in it is not told: {error}") from None
    columns.add(definition.name, data_type, nullable=definition.nullable is not False, value=value)


def _type_of(definition: ColumnDefinition, beside: Column | None) -> DataType | None:
    """Return a column's type; None if messages have no values of it. Unfollowed if it is not known."""
    said = definition.data_type
    if said is None:
        if beside is not None and spark_kind(beside.data_type) is None:
            return None
        raise Unfollowed(f"column {definition.name}: its type is not known here")
    if beside is None:
        return said
    shown = beside.data_type
    families = {family_of(said), family_of(shown)}
    if not said.charset and family_of(said) is Family.TEXT and family_of(shown) is Family.BINARY:
        return shown  # the table's own character set is binary
    alike = len(families) == 1 or families <= _TEXTS
    if alike and spark_kind(said) == spark_kind(shown) and said.elements == shown.elements:
        return _with_scale(shown, said)
    return said


def _with_scale(shown: DataType, said: DataType) -> DataType:
    """Return ``shown`` with the digits of a FLOAT(M,D), which schemas leave out."""
    return msgspec.structs.replace(shown, decimal=said.decimal) if family_of(shown) in _FLOATS else shown
