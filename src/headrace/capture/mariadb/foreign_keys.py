"""The foreign keys of a table, and which of them change its rows without a line in the binlog.

InnoDB carries out ON DELETE and ON UPDATE actions by itself, below the layer that writes the binlog.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from headrace.capture.mariadb.connection import Source, definition_of, source_errors
from headrace.errors import SourceUnfit

_NAME: Final = r"`(?:[^`]|``)+`"
_ACTION: Final = r"RESTRICT|CASCADE|SET NULL|NO ACTION|SET DEFAULT"
_BEGINS: Final = re.compile(rf"^  CONSTRAINT {_NAME} FOREIGN KEY ", re.MULTILINE)
_KEY: Final = re.compile(
    rf"^  CONSTRAINT (?P<name>{_NAME}) FOREIGN KEY \((?P<columns>{_NAME}(?:, {_NAME})*)\) "
    rf"REFERENCES (?:(?P<database>{_NAME})\.)?(?P<table>{_NAME}) \({_NAME}(?:, {_NAME})*\)"
    rf"(?: ON DELETE (?P<delete>{_ACTION}))?(?: ON UPDATE (?P<update>{_ACTION}))?,?$",
    re.MULTILINE,
)
_UNLOGGED: Final = frozenset({"CASCADE", "SET NULL", "SET DEFAULT"})
_DEFAULT: Final = "RESTRICT"


class ForeignKey(NamedTuple):
    """A foreign key of a table. ``parent`` is database and table; the actions are SQL, such as ``SET NULL``."""

    name: str
    columns: tuple[str, ...]
    parent: tuple[str, str]
    on_delete: str = _DEFAULT
    on_update: str = _DEFAULT

    @property
    def unlogged(self) -> tuple[str, ...]:
        """The actions that change rows of the table without a line in the binlog, as SQL says them; () if none does."""
        actions = (("ON DELETE", self.on_delete), ("ON UPDATE", self.on_update))
        return tuple(f"{event} {action}" for event, action in actions if action in _UNLOGGED)


def read_foreign_keys(connection: Source, database: str, table: str) -> tuple[ForeignKey, ...]:
    """Return the foreign keys of a table, in the order of its definition.

    Raises SourceForbidden (SELECT on the whole table is needed), TableNotFound, SourceUnfit (one can't be read),
    SourceUnavailable.
    """
    name = ".".join("`" + part.replace("`", "``") + "`" for part in (database, table))
    with source_errors():
        # The schema tables hide the actions from who may only SELECT.
        definition = definition_of(connection, name)
    return parse_foreign_keys(definition, database, table)


def parse_foreign_keys(definition: str, database: str, table: str) -> tuple[ForeignKey, ...]:
    """Return the foreign keys in an answer to SHOW CREATE TABLE. SourceUnfit: one that is not as they always are."""
    found = list(_KEY.finditer(definition))
    if len(found) != len(_BEGINS.findall(definition)):
        raise SourceUnfit(f"a foreign key of {database}.{table} can't be read: {definition}")
    return tuple(
        ForeignKey(
            name=_unquoted(one["name"]),
            columns=tuple(map(_unquoted, re.findall(_NAME, one["columns"]))),
            parent=(_unquoted(one["database"]) if one["database"] else database, _unquoted(one["table"])),
            on_delete=one["delete"] or _DEFAULT,
            on_update=one["update"] or _DEFAULT,
        )
        for one in found
    )


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`")
