"""The statements that copy rows of one table: built from its catalogue, its key, and the operator's condition. Text only.

One statement does a whole chunk. It looks for rows in the order of the key (``scanned``), cuts them at a number of rows and
of bytes (``found``), locks what nobody else has locked (``locked``), writes those to the outbox and notes the others. It
locks all relations before it locks the first row: what holds row locks waits for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
from psycopg import sql

from headrace.publisher.postgres.connection import Source

_TABLE: Final = """
SELECT n.nspname, c.relname, c.relkind = 'p' FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = %s"""
_COLUMNS: Final = """
SELECT a.attname, a.attlen, t.typname, t.typtype FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_UNIQUE: Final = """
SELECT i.indexrelid::bigint, a.attname, format_type(a.atttypid, a.atttypmod),
    CASE WHEN k.collated <> a.attcollation
        THEN (SELECT quote_ident(n.nspname) || '.' || quote_ident(o.collname)
            FROM pg_collation AS o JOIN pg_namespace AS n ON n.oid = o.collnamespace WHERE o.oid = k.collated) END
FROM pg_index AS i
CROSS JOIN LATERAL unnest(i.indkey::int2[], i.indcollation::oid[]) WITH ORDINALITY AS k (attnum, collated, place)
JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND k.place <= i.indnkeyatts
ORDER BY i.indisprimary DESC, i.indexrelid, k.place"""
_TYPES: Final = """
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %s AND attname = ANY(%s)"""

_SCANNED: Final = """
WITH headrace_scanned AS MATERIALIZED (
    SELECT {key_values}, {size} AS headrace_size, {wanted} AS headrace_wanted
    FROM {table} WHERE {range} ORDER BY {key} LIMIT %(scan)s
), """
_LEFT: Final = """
WITH headrace_scanned AS MATERIALIZED (
    SELECT {left_values}, headrace_left.key AS headrace_key, headrace_left.tries AS headrace_tries,
        coalesce({size}, 0) AS headrace_size, {first_key} IS NOT NULL AS headrace_wanted
    FROM (
        SELECT key, tries FROM headrace.headrace_copy_left WHERE copy = %(copy)s ORDER BY tries, key LIMIT %(scan)s
    ) AS headrace_left
    LEFT JOIN {table} ON {left_match} AND {condition}
), """
# headrace_counted and all after it are the same for both: headrace_found is a beginning of what was scanned.
_LOCKED: Final = """
headrace_counted AS MATERIALIZED (
    SELECT *, row_number() OVER whole AS headrace_place,
        count(*) FILTER (WHERE headrace_wanted) OVER whole AS headrace_rows,
        sum(CASE WHEN headrace_wanted THEN headrace_size ELSE 0 END) OVER whole
            - CASE WHEN headrace_wanted THEN headrace_size ELSE 0 END AS headrace_before
    FROM headrace_scanned WINDOW whole AS (ORDER BY {order} ROWS UNBOUNDED PRECEDING)
), headrace_found AS MATERIALIZED (
    SELECT * FROM headrace_counted WHERE headrace_rows <= %(rows)s AND headrace_before < %(bytes)s
), headrace_locked AS MATERIALIZED (
    SELECT headrace_place, {row} AS headrace_changes
    FROM headrace_found JOIN {table} ON {match} AND {condition}
    WHERE headrace_wanted ORDER BY headrace_place
    FOR SHARE OF headrace_row{skip}
), headrace_written AS (
    INSERT INTO headrace.headrace_outbox (change_feed_id, op, changes, attached, copy)
    SELECT %(feed)s, 'put', headrace_changes, %(attached)s, true FROM headrace_locked ORDER BY headrace_place
), """
_AFTER_SCAN: Final = """
headrace_kept AS (
    INSERT INTO headrace.headrace_copy_left (copy, key)
    SELECT %(copy)s, {key_json} FROM headrace_found
    WHERE headrace_wanted AND headrace_place NOT IN (SELECT headrace_place FROM headrace_locked)
    ON CONFLICT DO NOTHING
), headrace_moved AS (
    UPDATE headrace.headrace_copy SET
        last_key = coalesce((SELECT {key_json} FROM headrace_found ORDER BY headrace_place DESC LIMIT 1), last_key),
        scanned = (SELECT count(*) FROM headrace_found) = (SELECT count(*) FROM headrace_counted)
            AND (SELECT count(*) FROM headrace_counted) < %(scan)s,
        {progress}
    WHERE id = %(copy)s
)
SELECT (SELECT count(*) FROM headrace_locked), 0"""
_AFTER_LEFT: Final = """
headrace_over AS (
    DELETE FROM headrace.headrace_copy_left AS old USING headrace_found
    WHERE old.copy = %(copy)s AND old.key = headrace_key
        AND (NOT headrace_wanted OR headrace_place IN (SELECT headrace_place FROM headrace_locked))
), headrace_kept AS (
    UPDATE headrace.headrace_copy_left AS old SET tries = old.tries + 1 FROM headrace_found
    WHERE old.copy = %(copy)s AND old.key = headrace_key
        AND headrace_wanted AND headrace_place NOT IN (SELECT headrace_place FROM headrace_locked)
), headrace_moved AS (
    UPDATE headrace.headrace_copy SET {progress} WHERE id = %(copy)s
)
SELECT (SELECT count(*) FROM headrace_locked), (SELECT count(*) FROM headrace_found WHERE headrace_wanted)"""
_PROGRESS: Final = """
rows = rows + (SELECT count(*) FROM headrace_locked),
detail = CASE WHEN EXISTS (SELECT FROM headrace_locked) THEN NULL ELSE detail END,
due_at = clock_timestamp()
    + coalesce((SELECT count(*) FROM headrace_locked) * interval '1 second' / rows_per_second, interval '0')"""
_UNDECODABLE: Final = r"(?<!\\)((?:\\\\)*)\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})"
"""Escapes that a ``json`` column may hold, but PostgreSQL can't decode: it takes no member out of JSON that has one.

No key holds one: they are U+0000 and surrogates, which text can't hold and is never escaped to.
"""
_WRITTEN_SINCE: Final = """
WITH headrace_found AS MATERIALIZED (
    SELECT DISTINCT {populated_values}
    FROM headrace.headrace_outbox AS o
    CROSS JOIN LATERAL (SELECT regexp_replace(o.changes, {escapes}, '\\1?', 'g')::json AS said OFFSET 0) AS headrace_json
    CROSS JOIN LATERAL json_populate_record(NULL::{type}, json_build_object({key_members})) AS headrace_old
    WHERE o.id > %(since)s AND o.attached = ANY(%(older)s) AND o.control IS NULL
), headrace_locked AS MATERIALIZED (
    SELECT {row} AS headrace_changes FROM headrace_found JOIN {table} ON {match} ORDER BY {order} FOR SHARE OF headrace_row
), headrace_written AS (
    INSERT INTO headrace.headrace_outbox (change_feed_id, op, changes, attached, copy)
    SELECT %(feed)s, 'put', headrace_changes, %(attached)s, true FROM headrace_locked
)
SELECT count(*) FROM headrace_locked"""
_MEETS: Final = """(SELECT (
{condition}
) FROM (SELECT headrace_row.tableoid, headrace_row.*) AS {name})"""
"""In a SELECT of its own the condition knows the table's columns by the table's name, and no name of ours."""
_LAST_KEY: Final = "SELECT {row_key_json} FROM {table} ORDER BY {descending} LIMIT 1"
_CHECK: Final = "EXPLAIN SELECT CASE WHEN\n{condition}\nTHEN 1 END FROM {table} WHERE (\n{condition}\n)"
"""Twice: as a CASE it may not close parentheses that it has not opened, and so can't reach beyond them."""

ROW: Final = "headrace_row"
"""What our statements call the table: not by its own name, which a column of it may have too."""


class KeyColumn(msgspec.Struct, frozen=True, array_like=True):
    """One column of the key. ``collation``: the index's, where it is not the column's own; both are SQL."""

    name: str
    type: str
    collation: str | None


class SourceTable(NamedTuple):
    """A table under the name that it has now. ``row_bytes``: SQL that reckons the bytes of a row's JSON, roughly."""

    schema: str
    name: str
    partitioned: bool
    row_bytes: sql.Composable


def read_source_table(connection: Source, oid: int) -> SourceTable | None:
    """Return the table with this oid, None if there is none any more."""
    row = connection.execute(_TABLE, (oid,)).fetchone()
    if row is None:
        return None
    schema, name, partitioned = row
    return SourceTable(schema, name, partitioned, _row_bytes(connection.execute(_COLUMNS, (oid,)).fetchall()))


def read_key(connection: Source, oid: int, names: Sequence[str]) -> tuple[KeyColumn, ...]:
    """Return the key's columns in the order of the unique index that holds just them, so that it serves to walk by."""
    indexes: dict[int, list[KeyColumn]] = {}
    for index, *column in connection.execute(_UNIQUE, (oid,)):
        indexes.setdefault(index, []).append(KeyColumn(*column))
    for columns in indexes.values():
        if {column.name for column in columns} == set(names):
            return tuple(columns)
    types: dict[str, str] = dict(connection.execute(_TYPES, (oid, list(names))).fetchall())
    return tuple(KeyColumn(name, types[name], None) for name in names)


class ChunkSql:
    """The statements of one copy. All take named parameters, so ``%`` is doubled wherever it stands in a name."""

    def __init__(
        self, table: SourceTable, key: Sequence[KeyColumn], condition: str | None, row_json: sql.Composable
    ) -> None:
        """``row_json``: SQL that makes a row's JSON as the table's trigger does."""
        self._key = key
        place = sql.SQL(".").join([identifier(table.schema), identifier(table.name)])
        # Rows of other tables that inherit from this one fire no trigger of it.
        self._table = place if table.partitioned else sql.SQL("ONLY ") + place
        columns = [sql.Identifier(ROW, _doubled(column.name)) for column in key]
        collated = [column + _collate(part.collation) for column, part in zip(columns, key, strict=True)]
        met: sql.Composable = sql.SQL("true")
        if condition is not None:
            met = sql.SQL(_MEETS).format(condition=sql.SQL(_doubled(condition)), name=identifier(table.name))
        places = range(len(key))
        self._parts: dict[str, sql.Composable] = {
            "table": self._table + sql.SQL(f" AS {ROW}"),
            "type": place,
            "row": row_json,
            "size": table.row_bytes,
            "wanted": met if condition is None else met + sql.SQL(" IS TRUE"),
            "condition": met,
            "progress": sql.SQL(_PROGRESS),
            "key": sql.SQL(", ").join(collated),
            "first_key": columns[0],
            "descending": sql.SQL(", ").join(column + sql.SQL(" DESC") for column in collated),
            "key_values": _listed("{} AS {}", columns, places),
            "match": _listed("{} = {}", collated, places, " AND "),
            "left_values": _listed("{} AS {}", self._read_back("headrace_left.key::json"), places),
            "left_match": sql.SQL(" AND ").join(
                sql.SQL("{} = {}").format(column, value)
                for column, value in zip(collated, self._read_back("headrace_left.key::json"), strict=True)
            ),
            "populated_values": _listed(
                "headrace_old.{} AS {}", [identifier(column.name) for column in key], places
            ),
            "escapes": sql.Literal(_UNDECODABLE),
            "key_members": sql.SQL(", ").join(
                sql.SQL("{0}::text, headrace_json.said -> {0}").format(sql.Literal(_doubled(column.name)))
                for column in key
            ),
            "key_json": _json([_value(place) for place in places]),
            "row_key_json": _json(columns),
            "values": sql.SQL(", ").join(
                _value(place) + _collate(column.collation) for place, column in enumerate(key)
            ),
        }

    def scan(self, *, after: bool) -> sql.Composed:
        """Copy the next rows: %(after)s and %(end)s are JSON arrays of keys; what is locked is noted as left."""
        bounds = [("<=", "%(end)s::json")] + ([(">", "%(after)s::json")] if after else [])
        within = sql.SQL(" AND ").join(
            sql.SQL("({}) {} ({})").format(
                self._parts["key"], sql.SQL(sign), sql.SQL(", ").join(self._read_back(text))
            )
            for sign, text in bounds
        )
        return self._make(
            _SCANNED + _LOCKED + _AFTER_SCAN,
            range=within,
            order=self._parts["values"],
            skip=sql.SQL(" SKIP LOCKED"),
        )

    def rows_left(self, *, wait: bool) -> sql.Composed:
        """Copy rows that were left; ``wait`` for a lock, or leave what is locked once more."""
        order = sql.SQL("headrace_tries, headrace_key")
        return self._make(
            _LEFT + _LOCKED + _AFTER_LEFT, order=order, skip=sql.SQL("" if wait else " SKIP LOCKED")
        )

    def written_since(self) -> sql.Composed:
        """Copy the rows whose keys other attachments wrote above an outbox id."""
        return self._make(_WRITTEN_SINCE, order=self._parts["values"])

    def last_key(self) -> sql.Composed:
        """Read the greatest key, as a JSON array."""
        return self._make(_LAST_KEY)

    def holder(self) -> sql.Composed:
        """Read the transaction id that stands in the row of the key %(key)s: its locker's or its last writer's."""
        return sql.SQL("SELECT xmax::text::bigint FROM {} WHERE ({}) = ({})").format(
            self._parts["table"], self._parts["key"], sql.SQL(", ").join(self._read_back("%(key)s::json"))
        )

    def _read_back(self, array: str) -> list[sql.Composable]:
        return [
            sql.SQL("({} ->> {})::{}").format(
                sql.SQL(array), sql.Literal(place), sql.SQL(_doubled(column.type))
            )
            for place, column in enumerate(self._key)
        ]

    def _make(self, text: str, **parts: sql.Composable) -> sql.Composed:
        return sql.SQL(text).format(**{**self._parts, **parts})


def check_condition(connection: Source, table: SourceTable, condition: str) -> None:
    """Let the database plan, but not run, a statement with ``condition``; psycopg's errors.

    In the binary form one message holds one statement, and ``$1`` has no value.
    """
    place = sql.Identifier(table.schema, table.name)
    query = sql.SQL(_CHECK).format(condition=sql.SQL(condition), table=place)
    connection.cursor(binary=True).execute(query).close()


def identifier(name: str) -> sql.Identifier:
    """Return ``name`` as an identifier of a statement that takes parameters."""
    return sql.Identifier(_doubled(name))


def _doubled(text: str) -> str:
    return text.replace("%", "%%")


def _collate(collation: str | None) -> sql.Composable:
    return sql.SQL("" if collation is None else f" COLLATE {_doubled(collation)}")


def _value(place: int) -> sql.Composable:
    return sql.Identifier(f"headrace_k{place}")


def _json(values: Sequence[sql.Composable]) -> sql.Composable:
    texts = sql.SQL(", ").join(sql.SQL("{}::text").format(value) for value in values)
    return sql.SQL("json_build_array({})::text").format(texts)


def _listed(
    form: str, columns: Sequence[sql.Composable], places: Sequence[int], between: str = ", "
) -> sql.Composable:
    return sql.SQL(between).join(
        sql.SQL(form).format(column, _value(place)) for column, place in zip(columns, places, strict=True)
    )


def _row_bytes(columns: Sequence[tuple[Any, ...]]) -> sql.Composable:
    """Reckon without reading what is stored apart: octet_length and pg_column_size look at no more than its address."""
    parts: list[sql.Composable] = [
        sql.Literal(sum(len(name) + max(size, 4) + 8 for name, size, *_ in columns))
    ]
    for name, size, kind, category in columns:
        column = sql.Identifier(ROW, _doubled(name))
        if size > 0:
            continue
        if category == "b" and kind in {"text", "varchar", "bpchar"}:
            form = "coalesce(octet_length({}), 0)"
        elif category == "b" and kind == "bytea":
            form = "coalesce(octet_length({}), 0) * 2::bigint"
        else:
            form = "coalesce(pg_column_size({}), 0) * 3::bigint"
        parts.append(sql.SQL(form).format(column))
    return sql.SQL("({})").format(sql.SQL(" + ").join(parts))
