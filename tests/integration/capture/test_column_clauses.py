"""What clauses of one statement do to columns together: as the server does it."""

from __future__ import annotations

from typing import Final

from headrace.capture.catalogue_schema import from_catalogue
from headrace.capture.ddl import TableName
from headrace.capture.ddl.columns import column_changes
from headrace.capture.mariadb.catalogue import read_table
from headrace.capture.mariadb.connection import Source
from headrace.simple.mysql_types import Family, family_of
from headrace.simple.schema import DataType
from tests.integration.capture.every_type import COLUMNS
from tests.mariadb import Database

TOGETHER: Final = (
    "RENAME COLUMN a TO b, RENAME COLUMN b TO a",
    "RENAME COLUMN a TO b, RENAME COLUMN b TO c, RENAME COLUMN c TO a",
    "CHANGE a b INT, CHANGE b a INT",
    "DROP a, ADD a VARCHAR(3)",
    "ADD a VARCHAR(3), DROP COLUMN A",
    "RENAME COLUMN a TO x, ADD a INT",
    "DROP b, RENAME COLUMN a TO b",
    "CHANGE a B INT, DROP b",
    "ADD COLUMN IF NOT EXISTS a INT, ADD COLUMN IF NOT EXISTS x INT",
    "ADD COLUMN IF NOT EXISTS a INT, DROP COLUMN a",
    "DROP COLUMN IF EXISTS x, MODIFY COLUMN IF EXISTS x INT, RENAME COLUMN IF EXISTS x TO y, ADD x INT",
    "ADD (x INT, INDEX (x), y INT), DROP COLUMN c",
    "ADD COLUMN x INT FIRST, ADD `order` INT AFTER x, MODIFY c BIGINT FIRST",
    "ALTER COLUMN a SET DEFAULT 5, RENAME INDEX i TO j, ADD CONSTRAINT k CHECK (a > b), ADD UNIQUE u (a)",
    "DROP INDEX i, DROP PRIMARY KEY, ADD PRIMARY KEY (a), COMMENT 'DROP COLUMN b', ALGORITHM = COPY",
    "RENAME COLUMN a TO A",
    "/*!50100 ADD x INT COMMENT 'a, b' */, ADD y ENUM('(', ')', ',')",
)


def test_clauses_together(database: Database) -> None:
    with database.connect(autocommit=True) as app, app.cursor() as cursor:
        for number, clauses in enumerate(TOGETHER):
            table = f"t{number}"
            cursor.execute(
                f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT NOT NULL, b INT, c INT, INDEX i (b))"
            )
            sql = f"ALTER TABLE {table} {clauses}"
            changes = column_changes(sql)
            assert not changes.unread, clauses
            cursor.execute(sql)
            asked = "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
            cursor.execute(asked, (database.name, table))
            there = {name for (name,) in cursor.fetchall()}
            assert set(changes.applied(["id", "a", "b", "c"]).names) == there, clauses


def test_types_are_those_of_the_catalogue(database: Database, source: Source) -> None:
    definitions = {name: sql for name, sql in COLUMNS.items() if name not in {"id", "x_auto"}}
    with database.connect(autocommit=True) as app, app.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute("CREATE TABLE every (id INT PRIMARY KEY)")
        clauses = ", ".join(f"ADD COLUMN {name} {sql}" for name, sql in definitions.items())
        cursor.execute(f"ALTER TABLE every {clauses}")
    catalogue = read_table(source, TableName(database.name, "every"))
    assert catalogue is not None
    shown = {column.name: column for column in from_catalogue(catalogue, 1, 1).columns}
    changes = column_changes(f"ALTER TABLE every {clauses}")
    added = {column.name: column for column in changes.applied(["id"]).added}
    assert added.keys() == definitions.keys()
    for name, definition in added.items():
        found = shown[name].data_type
        if definition.data_type is None:
            assert family_of(found) is None
            continue
        assert (name, told(definition.data_type)) == (name, told(found))
        assert (definition.nullable is not False) == shown[name].nullable


def told(data_type: DataType) -> tuple[object, ...]:
    """What a statement and the catalogue both tell of a type; JSON is MariaDB's LONGTEXT."""
    family = family_of(data_type)
    name = "longtext" if data_type.mysql_type == "json" else data_type.mysql_type
    exact = family not in {Family.FLOAT, Family.DOUBLE}
    sizes = (data_type.length, data_type.decimal) if exact else ()
    return name, sizes, data_type.elements, data_type.unsigned
