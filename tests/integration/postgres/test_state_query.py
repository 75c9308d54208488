"""The operator's query on PostgreSQL: its tables can't be emptied under it, and its JSON comes out digit by digit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from headrace.errors import SnapshotUnavailable, SourceUnavailable
from headrace.publisher.outbox import Outbox
from headrace.publisher.owner import FeedPlace
from headrace.publisher.postgres import connection as connections
from headrace.publisher.postgres.source import PostgresSource, state_reader
from headrace.publisher.postgres.state import PostgresStateReader
from headrace.publisher.postgres.state_query import Relation, read_relations
from headrace.runtime.dsn import parse_dsn
from tests.postgres import Database
from tests.states import take
from tests.waiting import wait_until

FEED, AGENT = "shop", "shop-1"
STATE = "headrace.publisher.postgres.state"
THROUGH_A_VIEW = "SELECT key, changes FROM seen"


@pytest.fixture
def source(database: Database) -> Iterator[PostgresSource]:
    with database.connect() as app:
        Outbox.create(app)
        app.execute("CREATE TABLE object (key text, changes jsonb, part int) PARTITION BY LIST (part)")
        app.execute("CREATE TABLE object_1 PARTITION OF object FOR VALUES IN (1)")
        app.execute("CREATE TABLE object_2 (key text, changes jsonb, part int)")
        app.execute(
            "INSERT INTO object SELECT 'k' || n, jsonb_build_object('n', n), 1 FROM generate_series(1, 5) n"
        )
        app.execute("INSERT INTO object_2 VALUES ('other', '{}', 2)")
        app.execute("CREATE VIEW seen AS SELECT key, changes FROM object")
    with closing(PostgresSource(parse_dsn(database.dsn))) as source:
        source.claim(FEED, AGENT, FeedPlace("incarnation-1", 1, 1), 0)
        yield source


def reader_of(database: Database, query: str) -> PostgresStateReader:
    return state_reader(parse_dsn(database.dsn), FEED, query)


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE object",
        "TRUNCATE object_1",
        "ALTER TABLE object ADD COLUMN tag uuid NOT NULL DEFAULT gen_random_uuid()",
        "ALTER TABLE object DETACH PARTITION object_1",
        "DROP TABLE object CASCADE",
        "ALTER TABLE object RENAME TO old",
    ],
)
def test_what_the_query_reads_stays_as_it_is_until_it_is_read(
    database: Database, source: PostgresSource, statement: str
) -> None:
    reader = reader_of(database, THROUGH_A_VIEW)
    reader.open()
    try:
        source.begin_snapshot(FEED, AGENT, 1, reader, lambda *_: None)
        with database.connect() as app:
            app.execute("SET lock_timeout = '100ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                app.execute(statement)
        assert len(list(reader.lines())) == 5
    finally:
        reader.close()


@pytest.mark.parametrize(
    "statements",
    [
        "TRUNCATE object_1",
        "ALTER TABLE object ADD COLUMN tag uuid NOT NULL DEFAULT gen_random_uuid()",
        "ALTER TABLE object ATTACH PARTITION object_2 FOR VALUES IN (2)",
        "ALTER TABLE object RENAME TO old; CREATE TABLE object (LIKE old); DROP VIEW seen; "
        "CREATE VIEW seen AS SELECT key, changes FROM object",
    ],
)
def test_what_changes_around_the_snapshot_makes_none(
    database: Database, source: PostgresSource, statements: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two looks: the window in which a snapshot is older than the lock."""
    looks: list[set[Relation]] = []

    def and_then_change(connection: connections.Source) -> set[Relation]:
        looks.append(read_relations(connection))
        return looks[-1]

    def change() -> None:
        with database.connect() as app:
            app.execute(statements.encode())

    monkeypatch.setattr(f"{STATE}.read_relations", and_then_change)

    def change_and_export(
        connection: connections.Source, query: str, names: object = None
    ) -> tuple[object, ...]:
        found = connections.fetch_one(connection, query, names)
        if "pg_export_snapshot" in query:
            change()
        return found

    monkeypatch.setattr(f"{STATE}.fetch_one", change_and_export)
    with pytest.raises(SourceUnavailable, match="changed just now"):
        take(source, reader_of(database, THROUGH_A_VIEW), FEED, AGENT)
    assert len(looks) == 2
    monkeypatch.undo()
    take(source, reader_of(database, THROUGH_A_VIEW), FEED, AGENT)


def test_view_is_enough_of_a_right(database: Database, source: PostgresSource) -> None:
    """The role may read the view, and none of its tables: there nothing can be locked by name."""
    role = f"{database.name}_viewer"
    with database.connect() as app:
        app.execute(
            f"CREATE ROLE {role}; GRANT SELECT ON seen TO {role}; GRANT USAGE ON SCHEMA headrace TO {role}".encode()
        )
        app.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA headrace TO {role}".encode())
        app.execute(f"GRANT SELECT ON ALL SEQUENCES IN SCHEMA headrace TO {role}".encode())
    reader = reader_of(database, THROUGH_A_VIEW)
    reader.open()
    try:
        reader._opened().execute(f"SET ROLE {role}".encode())
        source.begin_snapshot(FEED, AGENT, 1, reader, lambda *_: None)
        assert len(list(reader.lines())) == 5
    finally:
        reader.close()


NUMBERS = '{"n": 12345678901234567890.12345, "m": 0.10000000000000000001, "i": 123456789012345678901234567890, "z": 1.10}'


@pytest.mark.parametrize(
    "column", ["changes", "changes::json", "changes::text", "changes::text::varchar", "row_to_json(v)"]
)
def test_json_keeps_its_digits(database: Database, source: PostgresSource, column: str) -> None:
    with database.connect() as app:
        app.execute("CREATE TABLE v (id uuid, changes jsonb)")
        app.execute("INSERT INTO v VALUES ('11111111-2222-3333-4444-555555555555', %s)", (NUMBERS,))
    _, (line,) = take(source, reader_of(database, f"SELECT id, {column} FROM v"), FEED, AGENT)
    assert line.startswith(b'{"key":"11111111-2222-3333-4444-555555555555","changes":{')
    for digits in (
        b"12345678901234567890.12345",
        b"0.10000000000000000001",
        b"123456789012345678901234567890",
        b"1.10",
    ):
        assert digits in line


def test_values_of_every_kind_are_as_row_to_json_has_them(database: Database, source: PostgresSource) -> None:
    with database.connect() as app:
        app.execute("""
            CREATE TABLE v (id text, a numeric, b numeric, c float8, d timestamptz, e interval, f bytea, g int[],
                h int4range, i money, j bigint)""")
        app.execute("""
            INSERT INTO v VALUES ('k', 1.000000000000000000000000001, 'NaN', 0.1::float8 + 0.2::float8, 'infinity',
                '1 day 2 s', '\\x00ff', '{1,NULL}', '[1,3)', 12.5, 9223372036854775807)""")
    _, (line,) = take(source, reader_of(database, "SELECT id, row_to_json(v) FROM v"), FEED, AGENT)
    assert line == (
        b'{"key":"k","changes":{"id":"k","a":1.000000000000000000000000001,"b":"NaN","c":0.30000000000000004,"d":"infinity",'
        b'"e":"P1DT2S","f":"\\\\x00ff","g":[1,null],"h":"[1,3)","i":"$12.50","j":9223372036854775807}}\n'
    )


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ("1 AS number, '{}'", "column number is of type int4"),
        ("'k', object AS whole", "column whole is of type object"),
        ("'k', ARRAY[1] AS list", "column list is of type _int4"),
        ("'k', 'x'::bytea AS raw", "column raw is of type bytea"),
        ("'k', interval '1 s' AS span", "column span is of type interval"),
        ("'k', NULL::jsonb", "must be JSON as text"),
        ("'k', '[]'::jsonb", "no JSON object"),
        ("NULL, '{}'", "key must be text"),
        ("'k', '{\"n\": NaN}'", "no JSON object"),
    ],
)
def test_what_is_no_state_is_refused_by_its_column(
    database: Database, source: PostgresSource, columns: str, named: str
) -> None:
    with pytest.raises(SnapshotUnavailable, match="snapshot-sql of shop") as caught:
        take(source, reader_of(database, f"SELECT {columns} FROM object LIMIT 1"), FEED, AGENT)
    assert named in caught.value.detail


def test_reader_may_be_idle_while_a_backlog_is_marked(
    database: Database, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.SETTINGS, "idle_in_transaction_session_timeout", "100")
    reader = reader_of(database, THROUGH_A_VIEW)
    reader.open()
    try:
        source.begin_snapshot(FEED, AGENT, 1, reader, lambda *_: None)
        with closing(connections.connect(parse_dsn(database.dsn), application_name="idle too")) as other:
            other.execute("BEGIN")
            query = "SELECT count(*)::int FROM pg_stat_activity WHERE application_name = 'idle too'"
            wait_until(lambda: database.sql(query)[0][0] == 0, what="the server to end what is idle")
        assert len(list(reader.lines())) == 5
    finally:
        reader.close()
