"""PostgreSQL tables that are refused by name, because a change could be lost; and names that mean nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from headrace.errors import AttachUnsafe, HeadraceError, PlatformUnsupported, TableNotFound, Usage
from headrace.publisher.attach.finding import FindingKind
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.postgres.attach import attach
from tests.integration.postgres.captured import FEED, Captured, captured
from tests.postgres import Cluster, Database

App = psycopg.Connection[TupleRow]


@pytest.fixture
def app(database: Database) -> Iterator[App]:
    with database.connect() as connection:
        connection.execute("CREATE TABLE good (id int PRIMARY KEY, a text)")
        yield connection


@pytest.fixture
def source(app: App, database: Database) -> Iterator[Captured]:
    with captured(database) as found:
        yield found


UNSAFE: dict[str, tuple[str, dict[str, Any]]] = {
    "no key": ("CREATE TABLE t (a int)", {}),
    "deferrable key": ("CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, a int)", {}),
    "view": ("CREATE VIEW t AS SELECT 1 AS a", {}),
    "materialized view": ("CREATE MATERIALIZED VIEW t AS SELECT 1 AS a", {}),
    "foreign table": (
        "CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w; CREATE FOREIGN TABLE t (a int) SERVER s",
        {},
    ),
    "foreign partition": (
        "CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w; CREATE TABLE t (a int NOT NULL, b int) "
        "PARTITION BY LIST (a); CREATE FOREIGN TABLE t1 PARTITION OF t FOR VALUES IN (1) SERVER s",
        {"key": ("a",)},
    ),
    "unlogged": ("CREATE UNLOGGED TABLE t (id int PRIMARY KEY)", {}),
    "unlogged partition": (
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY LIST (id); CREATE UNLOGGED TABLE t1 PARTITION OF t DEFAULT",
        {},
    ),
    "parent": ("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE c () INHERITS (t)", {}),
    "child": ("CREATE TABLE p (id int); CREATE TABLE t (PRIMARY KEY (id)) INHERITS (p)", {}),
    "given key may be null": ("CREATE TABLE t (k text UNIQUE)", {"key": ("k",)}),
    "given key is not unique": ("CREATE TABLE t (k text NOT NULL)", {"key": ("k",)}),
    "given key of a part": (
        "CREATE TABLE t (k text NOT NULL); CREATE UNIQUE INDEX ON t (k) WHERE k > ''",
        {"key": ("k",)},
    ),
    "given key of an expression": (
        "CREATE TABLE t (k text NOT NULL); CREATE UNIQUE INDEX ON t (lower(k))",
        {"key": ("k",)},
    ),
    "given key includes": (
        "CREATE TABLE t (k text NOT NULL, j int NOT NULL); CREATE UNIQUE INDEX ON t (k) INCLUDE (j)",
        {"key": ("k", "j")},
    ),
    "given key deferrable": ("CREATE TABLE t (k text NOT NULL UNIQUE DEFERRABLE)", {"key": ("k",)}),
    "key left out": ("CREATE TABLE t (id int PRIMARY KEY, a int)", {"exclude_columns": ("id",)}),
    "key masked": ("CREATE TABLE t (id int PRIMARY KEY, a int)", {"mask": ("id",)}),
}


@pytest.mark.parametrize("case", UNSAFE, ids=lambda case: case.replace(" ", "-"))
def test_unsafe_table_is_refused_and_nothing_is_written(app: App, source: Captured, case: str) -> None:
    script, options = UNSAFE[case]
    app.execute(script.encode())
    with pytest.raises(AttachUnsafe, match="t") as caught:
        source.attach("t", **options) if options else source.attach("good", "t")
    assert caught.value.advice
    assert app.execute("SELECT to_regnamespace('headrace')").fetchone() == (None,)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"tables": ("nope",)}, TableNotFound),
        ({"tables": ("pg_class",)}, TableNotFound),
        ({"include": ("nope*",)}, TableNotFound),
        ({}, Usage),
        ({"tables": ("good",), "mask": ("nope",)}, Usage),
        ({"tables": ("good",), "key": ("nope",)}, Usage),
    ],
    ids=["table", "system", "pattern", "nothing", "mask", "key"],
)
def test_wrong_names_are_refused(
    app: App, source: Captured, options: dict[str, Any], error: type[HeadraceError]
) -> None:
    with pytest.raises(error):
        attach(source.connection, AttachRequest(feed=FEED, **options))
    assert app.execute("SELECT to_regnamespace('headrace')").fetchone() == (None,)


def test_names_schemas_and_patterns(app: App, source: Captured) -> None:
    app.execute(
        """CREATE SCHEMA sales; CREATE TABLE sales.good (id int PRIMARY KEY); CREATE TABLE sales.app_a (id int PRIMARY KEY);
        CREATE TABLE app_a (id int PRIMARY KEY); CREATE TABLE "App_B" (id int PRIMARY KEY);
        CREATE TABLE app_p (id int PRIMARY KEY) PARTITION BY LIST (id); CREATE TABLE app_p1 PARTITION OF app_p DEFAULT"""
    )
    source.connection.execute("SET search_path = sales, public")
    found = source.attach("good", "public.good", "app_b", include=("app_*",), exclude=("sales.app_*",))
    assert [one.table for one in found] == ["App_B", "app_a", "app_p", "good", "sales.good"]


def test_given_key_and_key_beside_a_hidden_one(app: App, source: Captured) -> None:
    app.execute("CREATE TABLE t (v int, b text NOT NULL, a int NOT NULL, UNIQUE (a, b))")
    source.attach("t", key=("A", "b"))
    app.execute("INSERT INTO t VALUES (1, 'x', 2)")
    assert [row.short for row in source.new_rows()] == [("put", [2, "x"])]


def test_accepted_danger_is_attached_and_told(app: App, source: Captured) -> None:
    app.execute("CREATE UNLOGGED TABLE t (id int PRIMARY KEY)")
    source.attach("t", accept="it is a cache")
    assert source.live("t").spec.request.accept == "it is a cache"
    assert source.kinds() == []


@pytest.mark.parametrize(
    ("statement", "undo"),
    [
        ("CREATE TABLE c () INHERITS (good)", "DROP TABLE c"),
        ("ALTER TABLE good SET UNLOGGED", "ALTER TABLE good SET LOGGED"),
        ("ALTER TABLE good DROP CONSTRAINT good_pkey", "ALTER TABLE good ADD PRIMARY KEY (id)"),
    ],
    ids=["inherited", "unlogged", "key-dropped"],
)
def test_danger_that_comes_later_is_told_and_mended_once_it_is_over(
    app: App, source: Captured, statement: str, undo: str
) -> None:
    source.attach("good")
    app.execute("INSERT INTO good VALUES (1, 'a')")
    app.execute(statement.encode())
    assert source.mend() == [FindingKind.UNSAFE]
    app.execute(undo.encode())
    assert source.mend() == []
    assert source.controls()[-3:] == ["truncate", "copy-begin", "copy-end"]
    source.assert_equal("good")


def test_encoding_that_says_nothing_is_refused(cluster: Cluster) -> None:
    cluster.sql("CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
    database = Database(cluster, "ascii")
    try:
        database.sql("CREATE TABLE t (id int PRIMARY KEY)")
        with captured(database) as source, pytest.raises(PlatformUnsupported, match="SQL_ASCII"):
            source.attach("t")
    finally:
        cluster.drop_database("ascii")


def test_text_of_another_encoding_is_carried(cluster: Cluster) -> None:
    cluster.sql("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    database = Database(cluster, "latin")
    try:
        with captured(database) as source, database.connect(client_encoding="UTF8") as app:
            app.execute('CREATE TABLE "größe" (id int PRIMARY KEY, "häß" text)')
            source.attach("größe", before=True)
            app.execute("""INSERT INTO "größe" VALUES (1, 'naïve')""")
            source.assert_equal("größe")
            assert source.new_rows()[0].values == {"id": 1, "häß": "naïve"}
    finally:
        cluster.drop_database("latin")
