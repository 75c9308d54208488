"""Which tables an operator means: names with or without a schema, and patterns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from headrace.errors import AttachUnsafe, TableNotFound, Usage
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.postgres.catalogue import Relation

_KINDS: Final = {
    "v": ("a view", "Attach the tables that it is made of."),
    "m": ("a materialized view", "Attach the tables that it is made of."),
    "f": ("a foreign table", "Attach it in the database where its rows are."),
}


def choose_relations(
    request: AttachRequest, known: Sequence[Relation], path: Sequence[str]
) -> list[Relation]:
    """Return the tables of ``known`` that ``request`` means, in the order of ``known``.

    A name is ``schema.table``, or ``table``, which is looked for along ``path``; the case of letters decides only between
    names that differ in nothing else. Patterns mean tables and partitioned tables; a partition is attached by itself only
    if it is named. Raises TableNotFound listing what is there, AttachUnsafe for what fires no triggers, Usage.
    """
    if not request.tables and not request.include:
        raise Usage("no table was named", hint="Name tables with --table, or patterns with --include '*'.")
    tables = [
        one for one in known if one.kind in {"r", "p"} and one.persistence != "t" and not one.is_partition
    ]
    found = {name: _find(name, known, path) for name in request.tables}
    missing = [name for name, one in found.items() if one is None]
    named = [one for one in found.values() if one is not None]
    chosen = {one.oid for one in named} | {one.oid for one in tables if _matches(one, request.include)}
    chosen -= {one.oid for one in known if _matches(one, request.exclude)}
    if missing or not chosen:
        what = f"there is no table {', '.join(missing)}" if missing else "the patterns leave no table"
        raise TableNotFound(f"{what}; the tables are: {', '.join(one.label for one in tables) or 'none'}")
    if request.key and len(chosen) > 1:
        raise Usage("--key names the key of one table", hint="Attach that table by a command of its own.")
    result = [one for one in known if one.oid in chosen]
    for one in result:
        _refuse_kind(one)
    return result


def _find(name: str, known: Sequence[Relation], path: Sequence[str]) -> Relation | None:
    full = [one for one in known if f"{one.schema}.{one.name}" == name]
    bare = [one for schema in path for one in known if one.schema == schema and one.name == name]
    if full or bare:
        return (full + bare)[0]
    loose = [one for one in known if f"{one.schema}.{one.name}".lower() == name.lower()]
    loose += [
        one for schema in path for one in known if one.schema == schema and one.name.lower() == name.lower()
    ]
    return loose[0] if len(loose) == 1 else None


def _refuse_kind(one: Relation) -> None:
    if one.persistence == "t":
        raise AttachUnsafe(
            f"{one.name} is a temporary table: it ends with the session that made it",
            hint="Attach no such table.",
        )
    if one.kind in _KINDS:
        what, hint = _KINDS[one.kind]
        raise AttachUnsafe(
            f"{one.label} is {what}: PostgreSQL fires no triggers after its rows change", hint=hint
        )


def _matches(one: Relation, patterns: Iterable[str]) -> bool:
    names = [f"{one.schema}.{one.name}".lower(), one.label.lower()]
    return any(fnmatchcase(name, pattern.lower()) for pattern in patterns for name in names)
