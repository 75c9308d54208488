"""Which tables are captured, which of their columns go out, and which of those are masked. Pure.

A message's schema always lists all columns, as TiCDC's column selectors have it: rows are what shrinks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final

import msgspec

from headrace.errors import ConfigInvalid, TableStopped
from headrace.simple.mysql_types import Family, family_of
from headrace.simple.schema import Column, TableSchema
from headrace.simple.table_filter import TableFilter

MASK: Final = "***"
"""What stands in a masked column where the source has a value; NULL stays NULL. Cut where the column is shorter."""

SYSTEM_DATABASES: Final = frozenset({"information_schema", "mysql", "performance_schema", "sys"})
"""The server's own: never captured, whatever the patterns say."""

_QUOTES: Final = frozenset('"`')
_PARTS: Final = 3


class ColumnSelector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of TiCDC's: of the tables that ``matcher`` accepts, the columns that ``columns`` (patterns, ``!`` refuses) leaves.

    The first that matches a table counts for it.
    """

    matcher: tuple[str, ...]
    columns: tuple[str, ...]


class ColumnRules(msgspec.Struct, frozen=True):
    """Patterns ``DATABASE.TABLE.COLUMN``, each part as in a table filter; upper and lower case are the same.

    ``columns``: of the tables that these name, only what they name goes out, and the handle key. ``exclude``: what does not
    go out. ``mask``: what goes out as :data:`MASK`. ``selectors`` count as well: a column must pass both.
    """

    columns: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    mask: tuple[str, ...] = ()
    selectors: tuple[ColumnSelector, ...] = ()


ALL_COLUMNS: Final = ColumnRules()
"""No rule: every column goes out as it is."""


class TableChoice(msgspec.Struct, frozen=True):
    """What goes out of one table's rows.

    ``delivered``: places in the schema's columns, ascending. ``masks``: for each of these, the text that takes the place of
    its values, None where they go out as they are. ``whole``: every column goes out as it is.
    """

    delivered: tuple[int, ...]
    masks: tuple[str | None, ...]
    whole: bool


class _Treatment(IntEnum):
    """What becomes of a column; the greater, the more of it is seen."""

    HIDDEN = 0
    MASKED = 1
    PLAIN = 2


class _Rule:
    """A pattern of one setting, compiled."""

    def __init__(self, setting: str, pattern: str) -> None:
        self.text = f"{setting}: {pattern!r}"
        parts = list(_parts(pattern.strip()))
        if len(parts) != _PARTS or not all(parts) or pattern.lstrip().startswith("!"):
            raise ConfigInvalid(
                f"{self.text} is no pattern for columns",
                hint="Write DATABASE.TABLE.COLUMN; each part may be a name or a pattern: shop.*.email, *.*.password.",
            )
        try:
            self._tables = TableFilter([f"{parts[0]}.{parts[1]}"])
            self._columns = TableFilter([f"*.{parts[2]}"])
        except ConfigInvalid as error:
            raise ConfigInvalid(f"{self.text}: {error.detail}", hint=error.advice) from None

    def names_table(self, database: str, table: str) -> bool:
        return self._tables.accepts(database, table)

    def names(self, database: str, table: str, column: str) -> bool:
        return self.names_table(database, table) and self._columns.accepts("", column)


class _Selector:
    """TiCDC's selector, compiled."""

    def __init__(self, selector: ColumnSelector, *, case_sensitive: bool) -> None:
        self.tables = TableFilter(selector.matcher, case_sensitive=case_sensitive)
        patterns = [pattern.strip() for pattern in selector.columns]
        self.columns = TableFilter(
            f"!*.{pattern[1:]}" if pattern.startswith("!") else f"*.{pattern}" for pattern in patterns
        )


class Selection:
    """The choice of one capture. Make it once: its patterns are compiled."""

    def __init__(
        self, tables: Sequence[str], rules: ColumnRules = ALL_COLUMNS, *, case_sensitive: bool = False
    ) -> None:
        """Compile the table filter ``tables`` and the rules for columns; ConfigInvalid names the pattern that is none.

        ``case_sensitive`` holds for ``tables`` and for selectors, not for the other rules: those hide what they name.
        """
        self._tables = TableFilter(tables, case_sensitive=case_sensitive)
        self._columns = [_Rule("columns", pattern) for pattern in rules.columns]
        self._exclude = [_Rule("exclude-columns", pattern) for pattern in rules.exclude]
        self._mask = [_Rule("mask", pattern) for pattern in rules.mask]
        self._selectors = [_Selector(one, case_sensitive=case_sensitive) for one in rules.selectors]

    def captures(self, database: str, table: str) -> bool:
        """Return whether the table is captured; the server's own never are."""
        return database.lower() not in SYSTEM_DATABASES and self._tables.accepts(database, table)

    def hides(self, database: str, table: str, column: str) -> bool:
        """Return whether the rules leave a column out that is not in the handle key."""
        return self._treatment(database, table, column) is _Treatment.HIDDEN

    @property
    def chooses_columns(self) -> bool:
        """Whether there are rules for columns at all."""
        return bool(self._columns or self._exclude or self._mask or self._selectors)

    def of(self, schema: TableSchema, before: TableSchema | None = None) -> TableChoice:
        """Return what goes out of the rows of ``schema``. ``before``: the schema that the table had until now, if any.

        TableStopped, naming table and column, where a rule can't be kept: a column of the handle key would be left out or
        masked, a masked one is no text. Also where a DDL statement may have led out of a rule: a column has another name
        now, or the table has, and would be seen though it was hidden.
        """
        treatments = self._treatments(schema)
        for column in schema.columns:
            self._check(schema, column, treatments[column.name])
        if before is not None:
            self._check_kept(schema, treatments, before, self._treatments(before))
        delivered = [
            place
            for place, column in enumerate(schema.columns)
            if treatments[column.name] is not _Treatment.HIDDEN
        ]
        masks = [
            _mask_of(schema.columns[place])
            if treatments[schema.columns[place].name] is _Treatment.MASKED
            else None
            for place in delivered
        ]
        whole = len(delivered) == len(schema.columns) and not any(mask is not None for mask in masks)
        return TableChoice(tuple(delivered), tuple(masks), whole)

    def unmatched(self, schemas: Iterable[TableSchema]) -> list[str]:
        """Return the rules, as ``setting: 'pattern'``, that name no column of ``schemas``: a misspelt one hides nothing."""
        waiting = [*self._columns, *self._exclude, *self._mask]
        for schema in schemas:
            waiting = [
                rule
                for rule in waiting
                if not any(rule.names(schema.schema, schema.table, column.name) for column in schema.columns)
            ]
        return [rule.text for rule in waiting]

    def _treatments(self, schema: TableSchema) -> dict[str, _Treatment]:
        """Say of each column what the rules mean by it."""
        key = schema.handle_key
        return {
            column.name: self._treatment(schema.schema, schema.table, column.name, is_key=column.name in key)
            for column in schema.columns
        }

    def _treatment(self, database: str, table: str, column: str, *, is_key: bool = False) -> _Treatment:
        """The handle key passes ``columns``, and nothing else."""
        if any(rule.names(database, table, column) for rule in self._exclude):
            return _Treatment.HIDDEN
        selector = next((one for one in self._selectors if one.tables.accepts(database, table)), None)
        if selector is not None and not selector.columns.accepts("", column):
            return _Treatment.HIDDEN
        only = [rule for rule in self._columns if rule.names_table(database, table)]
        if only and not is_key and not any(rule.names(database, table, column) for rule in only):
            return _Treatment.HIDDEN
        masked = any(rule.names(database, table, column) for rule in self._mask)
        return _Treatment.MASKED if masked else _Treatment.PLAIN

    def _check(self, schema: TableSchema, column: Column, treatment: _Treatment) -> None:
        if treatment is _Treatment.PLAIN:
            return
        if column.name in schema.handle_key:
            raise _stopped(
                schema,
                f"{_name(schema, column)} is in the handle key, which names the row: it can be neither left out nor masked",
                "Leave it out of exclude-columns, mask and column-selectors.",
            )
        if treatment is _Treatment.MASKED and family_of(column.data_type) is not Family.TEXT:
            raise _stopped(
                schema,
                f"{_name(schema, column)} is of the type {column.data_type.mysql_type}: only text can be masked",
                "Name it in exclude-columns instead of mask.",
            )

    def _check_kept(
        self,
        schema: TableSchema,
        treatments: dict[str, _Treatment],
        before: TableSchema,
        treated: dict[str, _Treatment],
    ) -> None:
        for name, treatment in treatments.items():
            if treatment > treated.get(name, treatment):
                raise _stopped(
                    schema,
                    f"{schema.schema}.{schema.table}.{name} was {treated[name].name.lower()} in {before.schema}."
                    f"{before.table}, and no rule says so any more",
                    _RULE_HINT,
                )
        gone = [name for name in treated if name not in treatments]
        new = [name for name in treatments if name not in treated]
        for old in gone:
            for name in new:
                if treatments[name] is not treated[old]:
                    raise _stopped(
                        schema,
                        f"{schema.schema}.{schema.table}.{name} may be {old} under a new name: {old} was "
                        f"{treated[old].name.lower()}, {name} would be {treatments[name].name.lower()}",
                        _RULE_HINT,
                    )


_RULE_HINT: Final = (
    "Adapt columns, exclude-columns and mask to the new names, then run headrace capture copy for this table."
)


def _name(schema: TableSchema, column: Column) -> str:
    return f"{schema.schema}.{schema.table}.{column.name}"


def _stopped(schema: TableSchema, detail: str, hint: str) -> TableStopped:
    return TableStopped(detail, hint=hint, database=schema.schema, table=schema.table)


def _mask_of(column: Column) -> str:
    length = column.data_type.length
    return MASK if length < 0 else MASK[:length]


def _parts(pattern: str) -> Iterator[str]:
    """Split a pattern at its dots: not at those in quotes, in a regular expression, in a class or behind a backslash."""
    start = place = 0
    closing = ""
    while place < len(pattern):
        character = pattern[place]
        if character == "\\" and closing not in _QUOTES:
            place += 1
        elif closing:
            closing = "" if character == closing else closing
        elif character == "[":
            closing = "]"
        elif character in {*_QUOTES, "/"}:
            closing = character
        elif character == ".":
            yield pattern[start:place]
            start = place + 1
        place += 1
    yield pattern[start:]
