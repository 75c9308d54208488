"""One statement's clauses, carried out on a table's columns: names from ``sql`` alone, types from it and its schema.

The schema of a DDL message may be that of a later statement. It only adds what ``sql`` leaves open, and only of a column
that has the name and type that ``sql`` gives it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.capture.ddl.columns import ColumnChanges, ColumnDefinition, ColumnUnknown
from headrace.pipeline.tables.simple.charsets import is_held
from headrace.pipeline.tables.simple.conversions import is_own_text
from headrace.pipeline.tables.simple.evolution import Columns, Slot, Unfollowed
from headrace.pipeline.tables.simple.fills import Unknowable, fill
from headrace.pipeline.tables.simple.spark_types import spark_kind
from headrace.simple.mysql_types import Family, family_of, fraction_digits
from headrace.simple.schema import Column, DataType, TableSchema

_LETTERS: Final = frozenset({Family.TEXT, Family.ENUM, Family.SET})
_BINARY_TWINS: Final = {"char": "binary", "varchar": "varbinary", "text": "blob", "tinytext": "tinyblob"}
"""What the table's own character set makes of a type if it is ``binary``."""


def follow(columns: Columns, changes: ColumnChanges, schema: TableSchema | None, began_s: int | None) -> None:
    """Carry out a statement on ``columns``. ``schema`` came with it, ``began_s`` is when the source began it.

    Raises Unfollowed, and leaves ``columns`` half changed: what it does to rows can't be told, or not be followed.
    """
    if changes.unread:
        raise Unfollowed("it can't be read, so it may have changed any column")
    if changes.converts_charset == "binary":
        raise Unfollowed("it turns text into bytes of character sets that are not known here")
    shown = {column.name.casefold(): column for column in schema.columns} if schema is not None else {}
    key = {name.casefold() for name in changes.primary_key}
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
        if changes.converts_charset and family_of(slot.data_type) in _LETTERS:
            _recode(columns, slot, changes.converts_charset)
        if definition is not None:
            _redefine(columns, slot, definition, beside)
        if name.casefold() in key:
            columns.convert(slot, slot.data_type, nullable=False)
        slots.append(slot)
    columns.slots, columns.hidden = slots, hidden
    for definition in outcome.added:
        _add(columns, definition, shown.get(definition.name.casefold()), began_s)


def _recode(columns: Columns, slot: Slot, charset: str) -> None:
    """CONVERT TO CHARACTER SET; ``default`` is one that is not told."""
    if is_own_text(slot.data_type):
        return  # a UUID stays what it is, and text of ASCII alone is text in every character set
    charset = "" if charset == "default" else charset
    columns.convert(
        slot, msgspec.structs.replace(slot.data_type, charset=charset, collate=""), nullable=slot.nullable
    )


def _redefine(columns: Columns, slot: Slot, definition: ColumnDefinition, beside: Column | None) -> None:
    if definition.generated:
        raise Unfollowed(f"column {slot.name}: it is generated, and nobody but the source has its new values")
    data_type = _type_of(definition, beside)
    if data_type is None:
        raise Unfollowed(f"column {slot.name}: its new type has no values in messages")
    nullable = definition.nullable
    if nullable is None:
        nullable = slot.nullable if data_type.mysql_type == "timestamp" else not definition.auto_increment
    columns.convert(slot, data_type, nullable=nullable)
    if definition.auto_increment:
        columns.check(
            slot, f"{slot.value.sql()} <> 0", "AUTO_INCREMENT may have given its row another number"
        )


def _add(columns: Columns, definition: ColumnDefinition, beside: Column | None, began_s: int | None) -> None:
    data_type = _type_of(definition, beside)
    if data_type is None:
        columns.hidden.append(definition.name)
        return
    same = beside if beside is not None and _is_same_moment(beside.data_type, data_type) else None
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
    if beside is None or said.elements != beside.data_type.elements:
        odd = [label for label in said.elements if not is_held(label, said.charset)]
        if odd:
            raise Unfollowed(
                f"column {definition.name}: its character set may have no letters for {odd[0]!r}"
            )
    if beside is None:
        return said
    shown = beside.data_type
    if not said.charset and family_of(said) is Family.TEXT and family_of(shown) is Family.BINARY:
        twin = _BINARY_TWINS.get(said.mysql_type) == shown.mysql_type and said.length == shown.length
        return shown if twin else said
    if said.mysql_type == "json" and shown.mysql_type == "longtext":
        return shown  # which JSON is in MariaDB
    alike = family_of(said) is family_of(shown) and said.elements == shown.elements
    if alike and not said.charset:
        return msgspec.structs.replace(said, charset=shown.charset, collate=shown.collate)
    return said


def _is_same_moment(shown: DataType, said: DataType) -> bool:
    both = family_of(shown) is family_of(said) is Family.TIMESTAMP
    return both and fraction_digits(shown) == fraction_digits(said)
