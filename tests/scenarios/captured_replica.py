"""A consumer of a feed that keeps a copy of the source in a MariaDB of its own: all it knows comes by Simple messages.

It does what docs/howto/consume-simple.md says. A statement is executed; rows that come between two statements are put down
before the next one. A table that was there before the capture is made from the schema of its first row.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from headrace.simple import avro_codec, json_codec
from headrace.simple.assembler import Assembler
from headrace.simple.cache import SchemaKey
from headrace.simple.delivery import Delivery, Progress, RowChange, Statement, Transaction
from headrace.simple.message import Bootstrap, Ddl, Dml, Message
from headrace.simple.schema import Column, Index, TableSchema
from headrace.simple.temporal import IrregularDate
from headrace.simple.values import Encoding, Image, Row, RowTypes, Value

Contents = dict[str, tuple[list[str], list[tuple[Any, ...]]]]
"""The columns of each table, and its rows."""

_LOGICAL_BITS = 18
_DELETED_AT_ONCE = 200
_NO_SUCH_TABLE = {1051, 1146}
_LONG = ("text", "blob")
_SIZED = {"char", "varchar", "binary", "varbinary", "bit", "year"}


class IntoAvro:
    """What lies between a writer of JSON and a reader of Avro: each message as the bytes that Avro has for it."""

    def __init__(self) -> None:
        self._types: dict[SchemaKey, tuple[RowTypes, RowTypes]] = {}

    def encode(self, message: Message) -> bytes:
        """Return the Avro form; the schemas of rows come before them."""
        match message:
            case Bootstrap():
                self._learn(message.table_schema)
            case Ddl():
                for schema in (message.pre_table_schema, message.table_schema):
                    if schema is not None:
                        self._learn(schema)
            case Dml():
                read, write = self._types[message.schema_key]
                images = {
                    image.value: write.write(read.read(message, image), "an Avro row", image)
                    for image in Image
                    if getattr(message, image.value) is not None
                }
                message = msgspec.structs.replace(message, **images)
            case _:
                pass
        return avro_codec.encode(message)

    def _learn(self, schema: TableSchema) -> None:
        if schema.key not in self._types:
            self._types[schema.key] = RowTypes(schema), RowTypes(schema, Encoding.AVRO)


class Replica:
    """``database`` is made empty in the server that ``connection`` leads to, and holds all tables of the feed."""

    def __init__(self, connection: Connection[Cursor], database: str, encoding: Encoding) -> None:
        self._cursor = connection.cursor()
        self._encoding = encoding
        self._assembler = Assembler(1)
        self._types: dict[SchemaKey, RowTypes] = {}
        self._made: set[tuple[str, str]] = set()
        self._changed: dict[tuple[str, str], _Changed] = {}
        self._run("SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00'")
        self._run(f"CREATE OR REPLACE DATABASE `{database}` CHARACTER SET utf8mb4")
        self._run(f"USE `{database}`")

    def take(self, position: int, data: bytes) -> None:
        """Take the next message of the feed, in this consumer's encoding."""
        codec = avro_codec if self._encoding is Encoding.AVRO else json_codec
        self._do(self._assembler.take(0, codec.decode(data), size=len(data), position=position))

    def settle(self) -> int:
        """Put down what is left. Returns how many rows the last WATERMARK has not released yet."""
        self._put_down()
        return self._assembler.rows

    def _do(self, deliveries: Sequence[Delivery]) -> None:
        for one in deliveries:
            match one:
                case Transaction(_, rows):
                    for change in rows:
                        self._note(change)
                case Statement(message):
                    self._put_down()
                    self._execute(message)
                case Progress():
                    pass
                case _:
                    raise AssertionError(f"{one}: every schema stands before the rows that need it")

    def _note(self, change: RowChange) -> None:
        schema = change.schema
        name = (schema.schema, schema.table)
        types = self._types.get(schema.key)
        if types is None:
            types = self._types[schema.key] = RowTypes(schema, self._encoding)
        if name not in self._made:
            self._made.add(name)
            if not self._run(f"SHOW TABLES LIKE '{schema.table}'"):
                self._run(create_statement(schema))
        changed = self._changed.setdefault(name, _Changed(schema.handle_key))
        if changed.key != schema.handle_key:
            self._put_down()
            changed = self._changed[name] = _Changed(schema.handle_key)
        changed.note(types, change.message)

    def _execute(self, message: Ddl) -> None:
        """Execute a statement at its time. A table that it does not find had no rows yet, and is made with the first one."""
        self._made.clear()
        self._run(f"SET timestamp = {(message.commit_ts >> _LOGICAL_BITS) / 1000:.3f}")
        try:
            self._run(message.sql)
        except pymysql.err.MySQLError as error:
            if error.args[0] not in _NO_SUCH_TABLE:
                raise AssertionError(f"{message} can't be executed: {error}") from error

    def _put_down(self) -> None:
        for (database, table), changed in self._changed.items():
            name = f"`{database}`.`{table}`"
            keys = list(changed.rows)
            where = " AND ".join(f"`{one}` = %s" for one in changed.key)
            for start in range(0, len(keys), _DELETED_AT_ONCE):
                some = keys[start : start + _DELETED_AT_ONCE]
                words = " OR ".join([f"({where})"] * len(some))
                self._run(f"DELETE FROM {name} WHERE {words}", [part for key in some for part in key])
            self._insert(name, table, [row for row in changed.rows.values() if row is not None])
        self._changed.clear()

    def _insert(self, name: str, table: str, rows: Sequence[Row]) -> None:
        computed = {
            one
            for (one,) in self._run(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() "
                "AND table_name = %s AND is_generated <> 'NEVER'",
                [table],
            )
        }
        by_columns: dict[tuple[str, ...], list[list[object]]] = {}
        for row in rows:
            given = {one: sql_value(found) for one, found in row.items() if one not in computed}
            by_columns.setdefault(tuple(given), []).append(list(given.values()))
        for columns, values in by_columns.items():
            words = ", ".join(f"`{one}`" for one in columns)
            marks = ", ".join(["%s"] * len(columns))
            self._cursor.executemany(f"INSERT INTO {name} ({words}) VALUES ({marks})", values)

    def _run(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        self._cursor.execute(statement, list(values) if values else None)
        return list(self._cursor.fetchall())


class _Changed:
    """Rows of a table that were changed, by their key: as they are now, None for those that are gone."""

    def __init__(self, key: tuple[str, ...]) -> None:
        self.key = key
        self.rows: dict[tuple[object, ...], Row | None] = {}

    def note(self, types: RowTypes, message: Dml) -> None:
        for image in (Image.OLD, Image.DATA):
            if getattr(message, image.value) is not None:
                row = types.read(message, image)
                key = tuple(sql_value(row[name]) for name in self.key)
                self.rows.pop(key, None)
                self.rows[key] = row if image is Image.DATA else None


def sql_value(value: Value) -> object:
    """A value of a row as the driver takes it."""
    match value:
        case IrregularDate():
            return value.text
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).replace(tzinfo=None)
        case frozenset():
            return ",".join(sorted(value))
        case _:
            return value


def create_statement(schema: TableSchema) -> str:
    """A table that can hold what messages of this schema say. It does not tell how much of a column an index takes."""
    parts = [_column(column) for column in schema.columns]
    types = {column.name: column.data_type.mysql_type for column in schema.columns}
    parts += [_index(index, types) for index in schema.indexes]
    return f"CREATE TABLE `{schema.schema}`.`{schema.table}` ({', '.join(parts)})"


def _column(column: Column) -> str:
    kind = column.data_type
    words = [f"`{column.name}`", kind.mysql_type]
    if kind.mysql_type in _SIZED:
        words.append(f"({kind.length})")
    elif kind.mysql_type == "decimal":
        words.append(f"({kind.length},{kind.decimal})")
    elif kind.mysql_type in {"datetime", "timestamp", "time"}:
        words.append(f"({kind.decimal})")
    elif kind.elements:
        words.append("({})".format(",".join("'" + one.replace("'", "''") + "'" for one in kind.elements)))
    if kind.unsigned and kind.mysql_type not in {"bit", "year"}:
        words.append("UNSIGNED")
    if kind.charset not in {"binary", ""}:
        words.append(f"CHARACTER SET {kind.charset} COLLATE {kind.collate}")
    words.append("NULL" if column.nullable else "NOT NULL")
    return " ".join(words)


def _index(index: Index, types: dict[str, str]) -> str:
    kind = "PRIMARY KEY" if index.primary else f"{'UNIQUE' if index.unique else 'INDEX'} `{index.name}`"
    cut = {name: "(20)" for name in index.columns if not index.unique and types[name].endswith(_LONG)}
    columns = ", ".join(f"`{name}`" + cut.get(name, "") for name in index.columns)
    return f"{kind} ({columns})"


def contents(connection: Connection[Cursor], database: str) -> Contents:
    """Each table's columns in their order, and its rows, as SELECT gives them; floating numbers with all their digits."""
    with connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(
            "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = %s "
            "ORDER BY table_name, ordinal_position",
            [database],
        )
        columns: dict[str, dict[str, str]] = {}
        for table, name, kind in cursor.fetchall():
            columns.setdefault(table, {})[name] = kind
        found: Contents = {}
        for table, kinds in columns.items():
            words = [
                f"CAST(`{name}` AS DOUBLE)" if kind == "float" else f"`{name}`"
                for name, kind in kinds.items()
            ]
            cursor.execute(f"SELECT {', '.join(words)} FROM `{database}`.`{table}`")
            found[table] = (list(kinds), sorted(cursor.fetchall(), key=repr))
    return found
