"""Schemas and rows of the Simple Protocol in few words, for tests."""

from __future__ import annotations

from headrace.simple.message import Dml, MessageType, RawRow
from headrace.simple.schema import Column, DataType, Index, TableSchema

BUILD_TS = 1_708_923_662_983


def column(name: str, mysql_type: str = "int", *, nullable: bool = False, **more: object) -> Column:
    text = mysql_type in {"char", "varchar", "text", "enum", "set"}
    given = {
        "charset": "utf8mb4" if text else "binary",
        "collate": "utf8mb4_bin" if text else "binary",
    } | more
    return Column(name, DataType(mysql_type, **given), nullable, None)  # type: ignore[arg-type]  # given as named


def table(
    name: str, *columns: Column | str, version: int = 1, table_id: int = 33, key: tuple[str, ...] = ("a",)
) -> TableSchema:
    """The schema of ``database.table``, with a primary key."""
    database, _, own_name = name.partition(".")
    made = tuple(column(one) if isinstance(one, str) else one for one in columns)
    indexes = (Index("PRIMARY", True, True, False, key),) if key else ()  # as they stand in messages
    return TableSchema(database, own_name, table_id, version, made, indexes)


def change(
    kind: str,
    schema: TableSchema,
    commit_ts: int,
    data: RawRow | None = None,
    old: RawRow | None = None,
) -> Dml:
    return Dml(
        MessageType(kind),
        schema.schema,
        schema.table,
        schema.table_id,
        commit_ts,
        BUILD_TS,
        schema.version,
        data,
        old,
    )


def insert(schema: TableSchema, commit_ts: int = 5, /, **data: object) -> Dml:
    return change("INSERT", schema, commit_ts, data)  # type: ignore[arg-type]  # raw values
