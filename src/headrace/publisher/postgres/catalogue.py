"""What PostgreSQL's catalogue says of tables: columns, unique indexes, partitions, kind. Read in the caller's
transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from headrace.publisher.postgres.connection import Source, fetch_one

OWN_SCHEMA: Final = "headrace"
"""Where the outbox stands; none of its tables can be attached."""


_LABEL: Final = "label "


class SourceColumn(msgspec.Struct, frozen=True):
    """A column as far as it decides what is captured of it.

    ``declared``: the type as PostgreSQL writes it. ``base``: the internal name of the type below any domains, with its
    schema unless that is ``pg_catalog``. ``kind``: how its values become JSON: ``base``, ``enum``, or ``json`` (arrays,
    composites, types with a cast to json). ``typmod``: the base type's modifier, -1 for none. ``exact``: texts that are
    equal have the same bytes. ``generated``: ``s`` stored, ``v`` virtual, empty if it is not computed; ``expression``: what
    computes it. ``parts``: of an enum its labels, of a composite its attributes, of an array those of its elements.
    """

    name: str
    declared: str
    base: str
    kind: str
    typmod: int
    not_null: bool
    exact: bool
    generated: str
    expression: str
    parts: tuple[str, ...] = ()

    def is_like(self, earlier: SourceColumn | None) -> bool:
        """Return whether values that were captured with ``earlier`` still read the same; an enum may have more labels."""
        if earlier is None:
            return False
        added, gone = set(self.parts) - set(earlier.parts), set(earlier.parts) - set(self.parts)
        alike = msgspec.structs.replace(self, parts=earlier.parts) == earlier
        return alike and not gone and all(part.startswith(_LABEL) for part in added)


class UniqueIndex(NamedTuple):
    """A unique index or constraint. A column is None where the index has an expression."""

    name: str
    columns: tuple[str | None, ...]
    primary: bool
    valid: bool
    partial: bool
    immediate: bool


class Partition(msgspec.Struct, frozen=True):
    """A table below a partitioned one, at any depth. ``leaf``: it has rows of its own. ``file``: where they are stored."""

    oid: int
    schema: str
    name: str
    leaf: bool
    file: int
    kind: str
    persistence: str


class Relation(NamedTuple):
    """What has a name like a table's: ``kind`` as in ``pg_class.relkind``."""

    oid: int
    schema: str
    name: str
    kind: str
    persistence: str
    is_partition: bool

    @property
    def label(self) -> str:
        """The name as people write it."""
        return label_of(self.schema, self.name)


@dataclass(frozen=True, slots=True)
class Table:
    """An ordinary or a partitioned table.

    ``filled``: columns whose rows need not have NULL in them where nobody wrote any. ``ancestors``: oids of the partitioned
    tables above it. ``inherits``: names of its parents and children by inheritance that are no partitions. ``rewritten``:
    a trigger of the application may change what an UPDATE writes. ``alien_types``: types of its columns, with their owners,
    that belong neither to a superuser nor to the owner of the capturing functions. ``file``: a number that changes when all
    of its rows are written anew.
    """

    oid: int
    schema: str
    name: str
    kind: str
    persistence: str
    access_method: str
    owner: str
    row_security: bool
    row_security_forced: bool
    columns: tuple[SourceColumn, ...]
    filled: frozenset[str]
    unique: tuple[UniqueIndex, ...]
    partitions: tuple[Partition, ...]
    ancestors: tuple[int, ...]
    inherits: tuple[str, ...]
    rewritten: bool
    alien_types: tuple[tuple[str, str], ...]
    file: int

    @property
    def label(self) -> str:
        """The name as people write it."""
        return label_of(self.schema, self.name)

    @property
    def partitioned(self) -> bool:
        """Whether its rows stand in partitions."""
        return self.kind == "p"

    @property
    def primary_key(self) -> UniqueIndex | None:
        """The index of its primary key."""
        return next((index for index in self.unique if index.primary), None)


_RELATIONS: Final = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relpersistence::text, c.relispartition
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'headrace')
    AND n.nspname NOT LIKE 'pg\\_toast%'
ORDER BY n.nspname, c.relname"""
_SEARCH_PATH: Final = "SELECT current_schemas(false)::text[]"
_TABLE: Final = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relpersistence::text,
    coalesce((SELECT amname FROM pg_am WHERE oid = c.relam), 'heap'), pg_get_userbyid(c.relowner), c.relrowsecurity,
    c.relforcerowsecurity, coalesce(pg_relation_filenode(c.oid), 0)::bigint
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = %s AND c.relkind IN ('r', 'p')"""
_HEAD: Final = (
    "oid", "schema", "name", "kind", "persistence", "access_method", "owner", "row_security", "row_security_forced", "file",
)  # fmt: skip
_COLUMNS: Final = """
WITH RECURSIVE type AS (
    SELECT a.attnum, t.oid, t.typtype, t.typbasetype, t.typtypmod, a.atttypmod AS typmod, t.typnotnull, t.typdefault
    FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
    WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT d.attnum, t.oid, t.typtype, t.typbasetype, t.typtypmod,
        CASE WHEN d.typmod = -1 THEN d.typtypmod ELSE d.typmod END,
        d.typnotnull OR t.typnotnull, coalesce(d.typdefault, t.typdefault)
    FROM type AS d JOIN pg_type AS t ON t.oid = d.typbasetype WHERE d.typtype = 'd'
)
SELECT a.attname, format_type(a.atttypid, a.atttypmod),
    CASE WHEN n.nspname = 'pg_catalog' THEN '' ELSE n.nspname || '.' END || t.typname,
    CASE WHEN t.typtype = 'c' OR t.oid = 'record'::regtype OR (t.typelem <> 0 AND t.typlen = -1) THEN 'json'
        WHEN t.oid >= 16384 AND EXISTS (
            SELECT FROM pg_cast WHERE castsource = t.oid AND casttarget = 'json'::regtype AND castmethod = 'f') THEN 'json'
        WHEN t.typtype = 'e' THEN 'enum'
        ELSE 'base' END,
    d.typmod, a.attnotnull OR d.typnotnull,
    coalesce((SELECT collisdeterministic FROM pg_collation WHERE oid = a.attcollation), true),
    a.attgenerated::text,
    CASE WHEN a.attgenerated <> '' THEN coalesce((
        SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = a.attrelid AND adnum = a.attnum), '') ELSE '' END,
    ARRAY(SELECT 'label ' || e.enumsortorder || ' ' || e.enumlabel
        FROM pg_enum AS e WHERE e.enumtypid IN (t.oid, t.typelem) ORDER BY 1)
    || ARRAY(SELECT 'attribute ' || p.attnum || ' ' || p.attname || ' ' || format_type(p.atttypid, p.atttypmod)
        FROM pg_type AS c JOIN pg_attribute AS p ON p.attrelid = c.typrelid
        WHERE c.oid IN (t.oid, t.typelem) AND c.typtype = 'c' AND p.attnum > 0 AND NOT p.attisdropped ORDER BY p.attnum),
    a.atthasdef OR a.atthasmissing OR a.attnotnull OR a.attidentity <> '' OR d.typnotnull OR d.typdefault IS NOT NULL
FROM pg_attribute AS a
JOIN type AS d ON d.attnum = a.attnum AND d.typtype <> 'd'
JOIN pg_type AS t ON t.oid = d.oid
JOIN pg_namespace AS n ON n.oid = t.typnamespace
WHERE a.attrelid = %(oid)s
ORDER BY a.attnum"""
_INDEXES: Final = """
SELECT c.relname,
    ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
        LEFT JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
        WHERE k.place <= i.indnkeyatts ORDER BY k.place),
    i.indisprimary, i.indisvalid AND i.indisready, i.indpred IS NOT NULL, i.indimmediate
FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
WHERE i.indrelid = %s AND i.indisunique
ORDER BY i.indisprimary DESC, c.relname"""
# Not pg_partition_tree: it would wait for the partitions' locks.
_PARTITIONS: Final = """
WITH RECURSIVE below AS (
    SELECT i.inhrelid FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhparent AND c.relkind = 'p'
    WHERE i.inhparent = %s
    UNION ALL
    SELECT i.inhrelid FROM below JOIN pg_inherits AS i ON i.inhparent = below.inhrelid
)
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind <> 'p', coalesce(pg_relation_filenode(c.oid), 0)::bigint,
    c.relkind::text, c.relpersistence::text
FROM below JOIN pg_class AS c ON c.oid = below.inhrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relispartition ORDER BY n.nspname, c.relname"""
_ANCESTORS: Final = """
WITH RECURSIVE above AS (
    SELECT inhparent FROM pg_inherits WHERE inhrelid = %s
    UNION ALL
    SELECT i.inhparent FROM above JOIN pg_inherits AS i ON i.inhrelid = above.inhparent
)
SELECT inhparent::bigint FROM above"""
_INHERITS: Final = """
SELECT o.oid::regclass::text FROM pg_inherits AS i
JOIN pg_class AS o ON o.oid = CASE WHEN i.inhparent = %(oid)s THEN i.inhrelid ELSE i.inhparent END
JOIN pg_class AS c ON c.oid = i.inhrelid
WHERE %(oid)s IN (i.inhparent, i.inhrelid) AND NOT c.relispartition ORDER BY 1"""


_BEFORE_UPDATE_OF_ROW: Final = 19
"""The bits of ``pg_trigger.tgtype``: for each row, before, update."""
_REWRITTEN: Final = f"""
SELECT EXISTS (
    SELECT FROM pg_trigger
    WHERE tgrelid = ANY(%s) AND NOT tgisinternal AND tgtype & {_BEFORE_UPDATE_OF_ROW} = {_BEFORE_UPDATE_OF_ROW})"""


# Of arrays, domains and composites also what they are made of.
_ALIEN_TYPES: Final = """
WITH RECURSIVE part (oid) AS (
    SELECT atttypid FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
    UNION
    SELECT inner_part.oid FROM part JOIN pg_type AS t ON t.oid = part.oid CROSS JOIN LATERAL (
        SELECT unnest(ARRAY[t.typelem, t.typbasetype]) AS oid
        UNION ALL
        SELECT a.atttypid FROM pg_attribute AS a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
    ) AS inner_part WHERE inner_part.oid <> 0
)
SELECT format_type(t.oid, NULL), r.rolname
FROM part JOIN pg_type AS t ON t.oid = part.oid JOIN pg_roles AS r ON r.oid = t.typowner
WHERE t.oid >= 16384 AND t.typelem = 0 AND NOT r.rolsuper AND r.oid <> coalesce(
    (SELECT proowner FROM pg_proc WHERE oid = to_regprocedure('headrace.headrace_capture()')), current_user::regrole)
ORDER BY 1"""


def label_of(schema: str, table: str) -> str:
    """Return a table's name as people write it: without the schema if that is ``public``."""
    return table if schema == "public" else f"{schema}.{table}"


def read_relations(connection: Source) -> list[Relation]:
    """Return what may be named where a table is asked for, sorted: not the system's, nor the outbox's own."""
    return [Relation(*row) for row in connection.execute(_RELATIONS)]


def search_path(connection: Source) -> list[str]:
    """Return the schemas in which this session looks for a bare name."""
    row = connection.execute(_SEARCH_PATH).fetchone()
    return list(row[0]) if row else []


def read_table(connection: Source, oid: int) -> Table | None:
    """Return the ordinary or partitioned table with this oid; None if there is none."""
    row = connection.execute(_TABLE, (oid,)).fetchone()
    if row is None:
        return None
    columns, filled = [], []
    for *column, parts, is_filled in connection.execute(_COLUMNS, {"oid": oid}):
        column.append(tuple(parts))
        columns.append(SourceColumn(*column))
        filled += [column[0]] if is_filled else []
    partitions = tuple(Partition(*found) for found in connection.execute(_PARTITIONS, (oid,)))
    head: dict[str, Any] = dict(zip(_HEAD, row, strict=True))
    return Table(
        **{**head, "file": head["file"] + sum(partition.file for partition in partitions)},
        columns=tuple(columns),
        filled=frozenset(filled),
        unique=tuple(_read_indexes(connection, oid)),
        partitions=partitions,
        ancestors=tuple(found for (found,) in connection.execute(_ANCESTORS, (oid,))),
        rewritten=bool(fetch_one(connection, _REWRITTEN, ([oid, *(one.oid for one in partitions)],))[0]),
        alien_types=tuple((name, role) for name, role in connection.execute(_ALIEN_TYPES, (oid,))),
        inherits=tuple(found for (found,) in connection.execute(_INHERITS, {"oid": oid})),
    )


def find_oid(connection: Source, schema: str, name: str) -> int | None:
    """Return the oid of the ordinary or partitioned table called exactly so."""
    row = connection.execute(
        "SELECT c.oid::bigint FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')",
        (schema, name),
    ).fetchone()
    return int(row[0]) if row else None


def _read_indexes(connection: Source, oid: int) -> Sequence[UniqueIndex]:
    return [
        UniqueIndex(name, tuple(columns), *rest)
        for name, columns, *rest in connection.execute(_INDEXES, (oid,)).fetchall()
    ]
