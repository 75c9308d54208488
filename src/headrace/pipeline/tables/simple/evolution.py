"""A table's columns between what its Delta table has and what the next rows need: changed by statements, then written down.

A :class:`Columns` gathers what statements do, in memory; :meth:`Columns.evolution` tells the net change in one piece, so a
column that comes and goes between two rows leaves no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec.structs import replace as replace_type

from headrace.pipeline.tables.schemas import OWN_PREFIX
from headrace.pipeline.tables.simple.conversions import converted, is_widening
from headrace.pipeline.tables.simple.expressions import Constant, Expression, Field
from headrace.pipeline.tables.simple.spark_types import spark_kind
from headrace.pipeline.tables.simple.state import Tracked
from headrace.pipeline.tables.simple.steps import Check, Projected, TableColumn
from headrace.simple.mysql_types import Family, family_of
from headrace.simple.schema import DataType, TableSchema

_FLOATS: Final = frozenset({Family.FLOAT, Family.DOUBLE})

TEMPORARY: Final = f"{OWN_PREFIX}renamed_"
"""How a column's name begins while two columns change names."""


class Unfollowed(Exception):
    """A change of columns that rows can't follow; the argument says which, in words."""


@dataclass(slots=True)
class Slot:
    """A column as it will be: ``origin`` is its name in the Delta table (None: it is new), ``value`` what rows get."""

    name: str
    kind: str
    data_type: DataType
    nullable: bool
    origin: str | None
    value: Expression

    def tracked(self) -> Tracked:
        """Return it as the Delta table has it after the evolution."""
        return Tracked(self.name, self.kind, self.data_type, self.nullable)


class Columns:
    """The columns of one table, from what the Delta table has (``there``) on."""

    def __init__(self, there: Sequence[Tracked], hidden: Sequence[str] = ()) -> None:
        """``hidden``: columns of the source that have no values in messages (geometry), and none here."""
        self.there = tuple(there)
        self.hidden = list(hidden)
        self.slots = [
            Slot(one.name, one.kind, one.data_type, one.nullable, one.name, Field(one.name)) for one in there
        ]
        self.checks: list[Check] = []

    def copy(self) -> Columns:
        """Return the same, to go back to if a statement can't be followed."""
        found = Columns(self.there, self.hidden)
        found.slots = [replace(slot) for slot in self.slots]
        found.checks = list(self.checks)
        return found

    def reset(self, schema: TableSchema) -> None:
        """Let the columns be those of ``schema``, whatever they were: there are no rows."""
        self.checks = []
        self.hidden = [column.name for column in schema.columns if spark_kind(column.data_type) is None]
        self.slots = []
        for column in schema.columns:
            kind = spark_kind(column.data_type)
            if kind is not None:
                self.add(column.name, column.data_type, nullable=column.nullable, value=Constant(None, kind))

    def add(self, name: str, data_type: DataType, *, nullable: bool, value: Constant) -> None:
        """Add a column, with ``value`` in old rows."""
        self.slots.append(Slot(name, value.kind, data_type, nullable, None, value))

    def convert(self, slot: Slot, data_type: DataType, *, nullable: bool) -> None:
        """Let a column be of another type. Unfollowed if its values can't be told."""
        found = converted(slot.value, slot.kind, slot.data_type, data_type)
        if found is None:
            raise Unfollowed(
                f"column {slot.name}: what its values are as {described(data_type)}, of "
                f"{described(slot.data_type)}, is not known here"
            )
        for condition in found.conditions:
            self.check(slot, condition, f"a value may have changed when it became {described(data_type)}")
        if slot.nullable and not nullable:
            sql = f"{slot.value.sql()} IS NOT NULL"
            column = slot.origin or slot.name
            reason = f"column {slot.name}: it became NOT NULL where it was NULL, and the source has something else there"
            self.checks.append(Check(column, sql, reason))
        slot.kind, slot.value, slot.data_type, slot.nullable = found.kind, found.value, data_type, nullable

    def check(self, slot: Slot, condition: str, reason: str) -> None:
        """Let ``condition``, Spark SQL over the columns that are there, be true wherever the column is not NULL."""
        reason = f"column {slot.name}: {reason}"
        sql = f"({slot.value.sql()} IS NULL OR coalesce({condition}, false))"
        self.checks.append(Check(slot.origin or slot.name, sql, reason))

    def adopt(self, schema: TableSchema) -> None:
        """Take over what a version's first row makes sure. Unfollowed if its columns are not those of the statements."""
        ours = {slot.name.casefold(): slot for slot in self.slots}
        theirs = {
            column.name.casefold(): column
            for column in schema.columns
            if spark_kind(column.data_type) is not None
        }
        if ours.keys() != theirs.keys():
            odd = sorted(theirs[name].name for name in theirs.keys() - ours.keys())
            gone = sorted(ours[name].name for name in ours.keys() - theirs.keys())
            parts = [f"has {', '.join(odd)}"] if odd else []
            parts += [f"lacks {', '.join(gone)}"] if gone else []
            raise Unfollowed(
                f"version {schema.version} of its schema {' and '.join(parts)}, and no statement says why"
            )
        self.hidden = [column.name for column in schema.columns if column.name.casefold() not in theirs]
        for folded, column in theirs.items():
            slot = ours[folded]
            slot.name = column.name
            data_type = column.data_type
            if family_of(data_type) is family_of(slot.data_type) in _FLOATS:
                # Schemas leave out how many digits of a FLOAT(M,D) are kept.
                data_type = replace_type(data_type, decimal=slot.data_type.decimal)
            self.convert(slot, data_type, nullable=column.nullable)

    def check_names(self) -> None:
        """Unfollowed if no table of Spark's can have the columns' names."""
        seen: dict[str, str] = {}
        for slot in self.slots:
            other = seen.setdefault(slot.name.lower(), slot.name)
            if slot.name.lower().startswith(OWN_PREFIX):
                raise Unfollowed(f"a column may not be named {slot.name!r}: so begin Headrace's own")
            if other is not slot.name:
                raise Unfollowed(
                    f"the names {other!r} and {slot.name!r} differ in case alone, which Spark does not tell"
                )

    def tracked(self) -> tuple[Tracked, ...]:
        """Return the columns as the Delta table will have them."""
        return tuple(slot.tracked() for slot in self.slots)

    def evolution(self) -> dict[str, Any] | None:
        """Return what :class:`~.steps.Evolve` says of the net change; None if there is none and nothing to check."""
        before = tuple(TableColumn(one.name, one.kind) for one in self.there)
        after = tuple(TableColumn(slot.name, slot.kind) for slot in self.slots)
        in_place = all(map(self._is_in_place, self.slots))
        unchanged = in_place and before == after and all(slot.name == slot.origin for slot in self.slots)
        if unchanged and not self.checks:
            return None
        kept = {slot.origin: slot for slot in self.slots if slot.origin is not None}
        lists: dict[str, Any] = {"drops": (), "renames": (), "widenings": (), "adds": (), "projection": ()}
        if in_place:
            kinds = {one.name: one.kind for one in self.there}
            lists["drops"] = tuple(one.name for one in self.there if one.name not in kept)
            lists["renames"] = tuple(
                renames([(old, slot.name) for old, slot in kept.items() if old != slot.name])
            )
            lists["widenings"] = tuple(
                TableColumn(slot.name, slot.kind) for old, slot in kept.items() if slot.kind != kinds[old]
            )
            lists["adds"] = tuple(
                TableColumn(slot.name, slot.kind) for slot in self.slots if slot.origin is None
            )
        else:
            lists["projection"] = tuple(Projected(slot.name, slot.kind, slot.value) for slot in self.slots)
        return {"before": before, "after": after, "checks": tuple(self.checks), "in_place": in_place, **lists}

    def _is_in_place(self, slot: Slot) -> bool:
        if slot.origin is None:
            return isinstance(slot.value, Constant) and slot.value.value is None
        kind = next(one.kind for one in self.there if one.name == slot.origin)
        return is_widening(slot.value, slot.origin, slot.kind, kind)


def renames(wanted: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return ``wanted`` in an order in which no name is taken twice, by way of temporary names where there is none.

    Names are equal whatever their case, as Spark has it.
    """
    steps: list[tuple[str, str]] = []
    waiting = list(wanted)
    while waiting:
        taken = {old.casefold() for old, _ in waiting}
        free = [pair for pair in waiting if pair[1].casefold() not in taken]
        if free:
            steps += free
            waiting = [pair for pair in waiting if pair not in free]
            continue
        old, new = waiting[0]
        aside = f"{TEMPORARY}{len(steps)}"
        steps.append((old, aside))
        waiting[0] = (aside, new)
    return steps


def described(data_type: DataType) -> str:
    """Return a type for a person: ``decimal(9,3)``, ``int unsigned``."""
    if data_type.elements:
        return f"{data_type.mysql_type}({', '.join(data_type.elements)})"
    sizes = f"({data_type.length},{data_type.decimal})" if data_type.mysql_type == "decimal" else ""
    if data_type.mysql_type in {"char", "varchar", "binary", "varbinary", "bit"}:
        sizes = f"({data_type.length})"
    sign = " unsigned" if data_type.unsigned and data_type.mysql_type not in {"bit", "year"} else ""
    return f"{data_type.mysql_type}{sizes}{sign}"
