"""Labels of ENUM and SET columns that the catalogue can't say: its texts are utf8mb3, which has '?' for an emoji.

A variable of the column's type knows them all: it is given each number, and read as text.
"""

from __future__ import annotations

import re
from typing import Final

from headrace.capture.ddl import TableName
from headrace.capture.ddl.statement import quoted
from headrace.capture.mariadb.connection import Source, fetch, source_errors

_LABEL: Final = re.compile(r"'(?:[^']|'')*'")
_WIDE: Final = frozenset({"utf8mb4", "utf16", "utf16le", "utf32"})
"""Character sets with letters that utf8mb3 lacks."""


def is_doubtful(column_type: str, charset: str | None) -> bool:
    """Tell whether a label in a column's type, as the catalogue has it, may stand for another one."""
    return charset in _WIDE and "?" in column_type and column_type[:4].lower() in {"enum", "set("}


def true_type(connection: Source, table: TableName, column: str, column_type: str) -> str:
    """Return a column's type with its true labels. SourceUnavailable, TableNotFound where it changes meanwhile."""
    kind, _, _ = column_type.partition("(")
    count = len(_LABEL.findall(column_type))
    numbers = range(1, count + 1) if kind.lower() == "enum" else (1 << place for place in range(count))
    reads = "".join(
        f"SET x = {number}; SET r = CONCAT(r, HEX(CONVERT(x USING utf8mb4)), ','); " for number in numbers
    )
    declared = f"DECLARE x TYPE OF {table}.{quoted(column)}; DECLARE r LONGTEXT DEFAULT ''; "
    with source_errors():
        ((found,),) = fetch(connection, f"BEGIN NOT ATOMIC {declared}{reads}SELECT r; END")
    labels = [bytes.fromhex(label).decode() for label in str(found).split(",")[:-1]]
    return f"{kind}({','.join(_literal(label) for label in labels)})"


def _literal(label: str) -> str:
    return "'" + label.replace("'", "''") + "'"
