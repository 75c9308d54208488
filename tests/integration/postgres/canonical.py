"""One text for a value, wherever it comes from, so that tables of PostgreSQL and of Spark can be compared exactly.

Numbers keep every digit that they were stored with; floats are the doubles that they are; moments are microseconds, and days
are days, since 1970; JSON has its members in order, and numbers as their text; arrays have the text of each element.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.integration.postgres.delta_rows import DeltaTable
from tests.postgres import Database

Row = tuple[tuple[str, str | None], ...]

_READING = (
    "SET timezone = 'UTC'; SET datestyle = 'ISO'; SET intervalstyle = 'iso_8601'; SET extra_float_digits = 1"
)
_OWN = "_headrace_"
_COLUMNS = """
SELECT attname, CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE atttypid END::regtype::text
FROM pg_attribute a JOIN pg_type t ON t.oid = atttypid
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


def source_rows(database: Database, table: str) -> tuple[dict[str, str], Counter[Row]]:
    """The type of each column of a PostgreSQL table, and its rows, canonical."""
    with database.connect() as app:
        app.execute(_READING)
        types: dict[str, str] = dict(app.execute(_COLUMNS, [table]).fetchall())
        shown = ", ".join(
            _source_text('"' + name.replace('"', '""') + '"', kind) for name, kind in types.items()
        )
        rows = app.execute(f"SELECT {shown} FROM {table}".encode()).fetchall()
    return types, Counter(
        tuple(
            (name, None if value is None else _FROM_SOURCE.get(types[name], str)(value))
            for name, value in zip(types, row, strict=True)
        )
        for row in rows
    )


def _source_text(column: str, kind: str) -> str:
    """SQL for the value as text, or as the double it is."""
    if kind.endswith("[]"):
        return f"array_to_json({column}::text[])::text"
    match kind:
        case "timestamp with time zone" | "timestamp without time zone":
            # Not extract(epoch): it is a microsecond off at the far end.
            days = f"({column}::date - date '1970-01-01')::numeric * 86400000000"
            micros = f"{days} + trunc(extract(epoch FROM {column}::time) * 1000000)"
            return f"CASE WHEN isfinite({column}) THEN ({micros})::text ELSE {column}::text END"
        case "date":
            return f"CASE WHEN isfinite({column}) THEN ({column} - date '1970-01-01')::text ELSE {column}::text END"
        case "bytea":
            return f"encode({column}, 'hex')"
        case "double precision" | "real":
            return column
    return f"{column}::text"  # for character(n) without the blanks that pad it, which mean nothing


def delta_rows(table: DeltaTable, types: dict[str, str]) -> Counter[Row]:
    """The rows of a Delta table, canonical; ``types``: what its columns are in PostgreSQL."""
    assert [name for name in table.types if not name.startswith(_OWN)] == list(types)
    found: Counter[Row] = Counter()
    for row in table.rows:
        cells = []
        for name, kind in types.items():
            value = row[name]
            cells.append((name, None if value is None else _delta_text(value, kind, table.types[name])))
        found[tuple(cells)] += 1
    return found


def _delta_text(value: str, kind: str, spark: str) -> str:
    if kind.endswith("[]"):
        return _array(value)
    if spark in {"timestamp", "timestamp_ntz", "date"}:
        return _INFINITIES.get(value, value)
    match kind:
        case "character":
            return value.rstrip(" ")
        case "jsonb":
            return _ordered(value)
        case "time without time zone":
            return _time(value)
    return value


def difference(source: Counter[Row], found: Counter[Row]) -> str:
    """Say what is only here and only there, a few rows of each and only the columns that differ; empty if nothing."""
    missing, added = list((source - found).elements()), list((found - source).elements())
    if not missing and not added:
        return ""
    lines = [
        f"{len(missing)} rows of the source are missing or different, {len(added)} are too many or different"
    ]
    for row in missing[:5]:
        near = min(
            added, key=lambda other: sum(a != b for a, b in zip(row, other, strict=True)), default=None
        )
        parts = [(cell, other) for cell, other in zip(row, near or (), strict=False) if cell != other]
        lines.append(
            f"  {row[:2]}: " + "; ".join(f"{a} is {b[1]!r}" for a, b in parts[:5]) if near else f"  {row}"
        )
    lines += [f"  too many: {row}" for row in added[:2]]
    return "\n".join(lines)


def _ordered(text: str) -> str:
    """JSON with its members in order, and numbers as the text they are."""

    def number(digits: str) -> dict[str, str]:
        return {"number": digits}

    return json.dumps(json.loads(text, parse_float=number, parse_int=number, object_pairs_hook=list))


def _array(text: str) -> str:
    """A JSON array, of arrays perhaps, with every element as its text."""

    def leaf(value: Any) -> Any:
        if isinstance(value, list):
            return [leaf(one) for one in value]
        return str(value).lower() if isinstance(value, bool) else value

    return json.dumps(leaf(json.loads(text, parse_float=str, parse_int=str)))


def _time(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


# docs/formats/tables.md: the greatest and the least number of the column.
_INFINITIES = {
    "9223372036854775807": "infinity",
    "-9223372036854775808": "-infinity",
    "2147483647": "infinity",
    "-2147483648": "-infinity",
}
_FROM_SOURCE: dict[str, Callable[[Any], str]] = {
    "double precision": float.hex,
    "real": float.hex,
    "jsonb": _ordered,
    "time without time zone": _time,
    **{f"{kind}[]": _array for kind in ("text", "integer", "numeric", "mood")},
}
