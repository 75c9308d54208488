"""Attached PostgreSQL tables, whatever a session has set and whoever owns the types."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.rows import TupleRow

from headrace.errors import AttachUnsafe
from tests.integration.postgres.captured import Captured, captured
from tests.postgres import Database

App = psycopg.Connection[TupleRow]


@pytest.fixture
def app(database: Database) -> Iterator[App]:
    with database.connect() as connection:
        yield connection


@pytest.fixture
def source(app: App, database: Database) -> Iterator[Captured]:
    with captured(database) as found:
        yield found


def test_a_session_with_old_string_literals_can_write(app: App, source: Captured) -> None:
    """standard_conforming_strings = off changes what a backslash means, also in the text of a function."""
    app.execute("CREATE TABLE doc (id int PRIMARY KEY, body jsonb)")
    source.attach("doc")
    app.execute("SET standard_conforming_strings = off")
    app.execute("INSERT INTO doc VALUES (1, 'null'), (2, NULL)")
    app.execute("SET standard_conforming_strings = on")
    rows = [row.values for row in source.rows() if row.control is None]
    assert rows == [{"id": 1, "body": {"json": None}}, {"id": 2, "body": None}]


def test_a_type_of_another_role_is_refused(app: App, source: Captured, database: Database) -> None:
    """Its owner could give it a cast to json, which would run with our rights."""
    role = f"{database.name}_mallory"
    app.execute(f'CREATE ROLE "{role}"'.encode())
    try:
        app.execute("CREATE TYPE mood AS ENUM ('ok')")
        app.execute("CREATE TABLE diary (id int PRIMARY KEY, moods mood[])")
        app.execute(f'ALTER TYPE mood OWNER TO "{role}"'.encode())
        with pytest.raises(AttachUnsafe, match="the type mood belongs to"):
            source.attach("diary")
        source.attach("diary", accept="the role is ours")
    finally:
        app.execute(f'ALTER TYPE mood OWNER TO postgres; DROP ROLE "{role}"'.encode())


ODD_SETTINGS = {
    "datestyle": "SQL, DMY",
    "intervalstyle": "sql_standard",
    "timezone": "Asia/Kathmandu",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "lc_monetary": "C",
    "search_path": "pg_temp",
    "standard_conforming_strings": "off",
    "xmloption": "document",
}
SETTLED = (
    "a int2, b int8, c numeric, d bool, e text, f varchar(9), g char(4), h uuid, i oid, j date, k time, l timestamp, "
    "m name"
)
VALUES = (
    "7, -9, 12345678901234567890.50, true, E'é\\\\n\"', 'v', 'c', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 9, "
    "'0044-03-15 BC', '24:00', '2024-02-03 04:05:06.7', 'n'"
)


def test_no_setting_changes_the_values_of_plain_types(app: App, source: Captured) -> None:
    """Their triggers set nothing but the search path."""
    app.execute(f"CREATE TABLE settled (id int PRIMARY KEY, {SETTLED})".encode())
    app.execute("CREATE TABLE floating (id int PRIMARY KEY, a float8)")
    source.attach("settled", "floating")
    functions = app.execute(
        "SELECT tgrelid::regclass::text, bool_and(tgfoid::regproc::text LIKE '%plain') FROM pg_trigger "
        "WHERE tgname IN ('!headrace_write', '!headrace_update', '!headrace_rekey') GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert functions == [("floating", False), ("settled", True)]
    app.execute(f"INSERT INTO public.settled VALUES (1, {VALUES})".encode())
    for name, value in ODD_SETTINGS.items():
        app.execute("SELECT set_config(%s, %s, false)", (name, value))
    app.execute("UPDATE public.settled SET id = 1")
    app.execute("RESET ALL")
    inserted, updated = (row.values for row in source.rows() if row.control is None)
    assert inserted == updated
    source.assert_equal("settled", "floating")


def test_a_copy_writes_names_of_the_catalogue_as_a_trigger_does(app: App, source: Captured) -> None:
    """What a regclass looks like depends on the search path."""
    app.execute("CREATE TABLE watched (id int PRIMARY KEY, what regclass)")
    app.execute("INSERT INTO watched VALUES (1, 'watched')")
    source.attach("watched")
    source.copy()
    app.execute("UPDATE watched SET id = 1")
    copied, updated = (row.values for row in source.rows() if row.control is None)
    assert copied == updated == {"id": 1, "what": "public.watched"}
