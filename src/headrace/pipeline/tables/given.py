"""Columns that an operator gives to entries that name no table: Spark DDL of the JSON object's members -> a schema.

The types are those of attached feeds (docs/formats/tables.md), so a value that does not fit is refused the same way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from headrace.errors import ConfigInvalid, ValueUnfit
from headrace.pipeline.tables.ledger import PLAIN, Ledger, newest_version, read_tables_file
from headrace.pipeline.tables.schemas import Column, TableSchema, read_schema

_KINDS: Final = {
    "bigint": "int64",
    "double": "float64",
    "string": "string",
    "binary": "binary",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp-ntz",
}
_COMMENTED: Final = {"json", "time", "decimal"}
"""Types that Spark has no word for: a STRING whose COMMENT is one of them."""

TYPES_HINT: Final = (
    "Types are BIGINT, DOUBLE, DECIMAL(p,s), STRING, BINARY, BOOLEAN, DATE, TIMESTAMP, TIMESTAMP_NTZ; what is nested is "
    "STRING COMMENT 'json', a time of day STRING COMMENT 'time', a number of any length STRING COMMENT 'decimal'."
)


def read_ddl(text: str) -> StructType:
    """Return the columns that Spark reads in a DDL text; ConfigInvalid if it is none. Needs a session."""
    try:
        found = StructType.fromDDL(text)
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigInvalid(f"--schema: {reason}", hint=TYPES_HINT) from None
    if not isinstance(found, StructType) or not found.fields:
        raise ConfigInvalid(
            "--schema names no columns", hint="Write such as: id BIGINT NOT NULL, name STRING"
        )
    return found


def schema_of(columns: StructType) -> TableSchema:
    """Return the schema of these columns. ConfigInvalid for a type or a name that no table can have."""
    made = []
    for field in columns.fields:
        spark_type = field.dataType.simpleString()
        comment = str(field.metadata.get("comment", ""))
        kind = spark_type if spark_type.startswith("decimal(") else _KINDS.get(spark_type)
        if kind == "string" and comment in _COMMENTED:
            kind = comment
        if kind is None:
            raise ConfigInvalid(
                f"--schema, column {field.name}: {spark_type} is no type of a feed", hint=TYPES_HINT
            )
        made.append(Column(field.name, kind, nullable=field.nullable))
    schema = TableSchema("", "", 1, tuple(made))
    try:
        read_schema(msgspec.json.encode(schema), feed="", sequence_id=0)
    except ValueUnfit as error:
        raise ConfigInvalid(f"--schema: {error.detail}", hint="Choose another name.") from None
    return schema


def keep_given(ledger: Ledger, schema: TableSchema) -> None:
    """Keep the schema of entries that name no table, if it is new; ConfigInvalid if they have other columns already."""
    if ledger.given == schema:
        return
    if newest_version(ledger.to / PLAIN) is not None:
        there = "was begun with other columns" if ledger.given is not None else "was begun without a schema"
        raise ConfigInvalid(
            f"--schema: the table {PLAIN} in {ledger.to} {there}",
            hint="Leave --schema away to go on with the table as it is, or begin in an empty folder with another one.",
        )
    ledger.keep(given=schema)


def given_columns(to: Path) -> TableSchema | None:
    """Return what is given for entries that name no table in the tables' folder ``to``; None if nothing is."""
    file = read_tables_file(to)
    return (file.given or None) if file is not None else None
