"""Which rows a copy takes: keys of every kind, partitions, wide rows, conditions, and tables that change under it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from headrace.errors import SourceForbidden, TableNotFound, Usage
from headrace.publisher.copies import CopyRequest, CopyStanding, CopyState
from headrace.publisher.postgres.copies import read_copies, request_copy, set_copy_state
from headrace.publisher.postgres.copy_step import CHUNK_BYTES_MAX
from headrace.publisher.postgres.copying import copy_chunk
from tests.integration.postgres.captured import Captured, captured
from tests.postgres import Database
from tests.waiting import wait_until

App = psycopg.Connection[TupleRow]


@pytest.fixture
def app(database: Database) -> Iterator[App]:
    with database.connect() as connection:
        yield connection


@pytest.fixture
def source(app: App, database: Database) -> Iterator[Captured]:
    with captured(database) as found:
        yield found


def drive(source: Captured, number: int, rows_max: int = 1_000) -> CopyStanding:
    """Take a copy to its end."""
    wait_until(lambda: copy_chunk(source.connection, number, rows_max) is None, 120, what="the copy to end")
    return standing_of(source, number)


def standing_of(source: Captured, number: int) -> CopyStanding:
    return next(one for one in read_copies(source.connection) if one.number == number)


def copied_keys(source: Captured, number: int) -> list[Any]:
    """The keys that a copy copied, in the order of the feed."""
    found: list[Any] = []
    inside = False
    for row in source.rows():
        if row.control in {"copy-begin", "copy-end"} and row.key.endswith(f"/{number}"):
            inside = row.control == "copy-begin"
        elif inside and row.copy:
            found.append(row.short[1][0] if len(row.short[1]) == 1 else tuple(row.short[1]))
    return found


KEYS = {
    "bigint": "generate_series(-9223372036854775808, -9223372036854775801) AS k",
    "numeric": "unnest('{-1e40,-0.5,0,1.00,1.000000000000000000001,1e130,Infinity,NaN}'::numeric[]) AS k",
    "double precision": "unnest('{-Infinity,-1e308,0,1e-320,0.1,1,Infinity,NaN}'::float8[]) AS k",
    "uuid": "(SELECT gen_random_uuid() AS k FROM generate_series(1, 8)) AS u",
    "timestamptz": "unnest('{-infinity,4713-01-01 BC,2000-01-01,2024-03-31 02:30+01,2024-03-31 02:30:00.000001+01,"
    "294276-12-31 23:59:59,infinity}'::timestamptz[]) AS k",
    "interval": "unnest('{-1 day,1 hour,25 hours,1 mon}'::interval[]) AS k",
    "bytea": "unnest(ARRAY['', '\\x00', '\\x00ff', '\\xff'::bytea]) AS k",
    "character(4)": "unnest('{a,ab,b,zz}'::char(4)[]) AS k",
    '"char"': "unnest('{a,b,z}'::\"char\"[]) AS k",
    "date[]": "unnest(ARRAY[1, 2, 3]) AS n, LATERAL (SELECT ARRAY[date '2020-01-01' + n] AS k) AS l",
    'text COLLATE "C"': 'unnest(\'{A,Z,a,z,é,%,"a\\"b",a\\\\b,Ä}\'::text[]) AS k',
    'text COLLATE "und-x-icu"': "unnest('{A,Z,a,z,é,%,coop,co-op,Ä,''q}'::text[]) AS k",
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_kind_are_passed_in_their_order(app: App, source: Captured, kind: str) -> None:
    app.execute(f"CREATE TABLE item (k {kind} PRIMARY KEY, v int)".encode())
    app.execute(f"INSERT INTO item SELECT k, 0 FROM {KEYS[kind]} ORDER BY random()".encode())
    source.attach("item", copy=False)
    number = request_copy(source.connection, CopyRequest("item"))
    assert drive(source, number, rows_max=2).rows == len(copied_keys(source, number))
    source.assert_equal("item")
    ordered = app.execute("SELECT row_to_json(item) ->> 'k' FROM item ORDER BY k").fetchall()
    with app.transaction():
        app.execute("UPDATE item SET v = 1")  # every row is left, and comes by its key's text
        number = request_copy(source.connection, CopyRequest("item"))
        wait_until(lambda: copy_chunk(source.connection, number) and standing_of(source, number).detail)
        assert standing_of(source, number).rows_left == len(ordered)
    assert drive(source, number).rows == len(ordered)
    source.assert_equal("item")


def test_key_of_three_columns_in_another_order_and_another_collation_than_its_index(
    app: App, source: Captured
) -> None:
    app.execute(
        'CREATE TABLE "it em" (v int, c text COLLATE "und-x-icu" NOT NULL, a int NOT NULL, "b%" text NOT NULL)'
    )
    app.execute('CREATE UNIQUE INDEX ON "it em" (a DESC, c COLLATE "C" DESC, "b%" DESC)')
    app.execute(
        'INSERT INTO "it em" SELECT n, c, n, b FROM generate_series(1, 3) AS n, '
        "unnest('{a,B,é}'::text[]) AS c, unnest('{x,Y}'::text[]) AS b"
    )
    source.attach("it em", key=("b%", "a", "c"), copy=False)
    number = request_copy(source.connection, CopyRequest("it em", '"b%" LIKE \'%\' AND "it em".v > 0'))
    standing = drive(source, number, rows_max=2)
    assert standing.rows == app.execute('SELECT count(*) FROM "it em"').fetchall()[0][0]
    keys = copied_keys(source, number)
    ordered = app.execute('SELECT a, c, "b%" FROM "it em" ORDER BY a, c COLLATE "C", "b%"').fetchall()
    assert [(a, c, b) for b, a, c in keys] == ordered
    source.assert_equal("it em")


def test_column_called_like_its_table(app: App, source: Captured) -> None:
    app.execute("CREATE TABLE item (id int PRIMARY KEY, item text, v int)")
    app.execute("INSERT INTO item VALUES (1, 'a', 1), (2, 'b', 2)")
    source.attach("item")
    number = request_copy(source.connection, CopyRequest("item", "item = 'b' AND item.v = 2"))
    assert drive(source, number).rows == 1
    assert copied_keys(source, number) == [2]
    source.assert_equal("item")


def test_where_takes_the_rows_that_meet_it_in_bounded_steps(app: App, source: Captured) -> None:
    app.execute("CREATE TABLE item (id int PRIMARY KEY, v int)")
    app.execute("INSERT INTO item SELECT g, g % 1000 FROM generate_series(1, 5000) AS g")
    source.attach("item", copy=False)
    number = request_copy(source.connection, CopyRequest("item", "v = 7 -- a comment"))
    steps = 0
    while copy_chunk(source.connection, number, rows_max=50) is not None:
        steps += 1
    assert steps > 5_000 / 500
    assert copied_keys(source, number) == [7, 1007, 2007, 3007, 4007]
    assert standing_of(source, number)._replace(rows_estimated=None) == CopyStanding(
        number, "item", "shop", CopyState.DONE, "v = 7 -- a comment", None, 5, 0, None, ""
    )


def test_row_that_no_longer_meets_the_condition_when_its_lock_is_had(
    app: App, source: Captured, database: Database
) -> None:
    app.execute("CREATE TABLE item (id int PRIMARY KEY, v int)")
    app.execute("INSERT INTO item SELECT g, 1 FROM generate_series(1, 3) AS g")
    source.attach("item")
    with database.connect(autocommit=False) as other:
        other.execute("UPDATE item SET v = 2 WHERE id = 2")
        number = request_copy(source.connection, CopyRequest("item", "v = 1"))
        wait_until(lambda: copy_chunk(source.connection, number) and standing_of(source, number).rows_left)
        other.commit()
    assert drive(source, number).rows == 2
    assert copied_keys(source, number) == [1, 3]


def test_conditions_that_are_refused_at_once(app: App, source: Captured) -> None:
    app.execute("CREATE TABLE item (id int PRIMARY KEY, v int)")
    source.attach("item")
    before = len(source.rows())
    for condition in (
        "nope = 1",
        "v",
        "count(*) > 1",
        "v = $1",
        "true; DROP TABLE item",
        "true) OR (true",
        "v = 'a'",
        "'",
    ):
        with pytest.raises(Usage, match="--where: the database refuses it: "):
            request_copy(source.connection, CopyRequest("item", condition))
        assert len(source.rows()) == before, condition


def test_condition_that_fails_on_a_row_ends_the_copy_and_says_why(app: App, source: Captured) -> None:
    app.execute("CREATE TABLE item (id int PRIMARY KEY, v int)")
    app.execute("INSERT INTO item VALUES (1, 1), (2, 0)")
    source.attach("item")
    number = request_copy(source.connection, CopyRequest("item", "10 / v = 10"))
    standing = drive(source, number)
    assert (standing.state, "division by zero" in standing.detail) == (CopyState.FAILED, True)


def test_condition_that_is_too_slow_ends_the_copy_and_says_so(app: App, source: Captured) -> None:
    app.execute("CREATE TABLE item (id int PRIMARY KEY)")
    app.execute("INSERT INTO item VALUES (1), (2)")
    source.attach("item")
    number = request_copy(source.connection, CopyRequest("item", "pg_sleep(100) IS NOT NULL"))
    assert drive(source, number).detail == "a chunk took longer than 10 s"


def test_wide_rows_make_short_transactions(app: App, source: Captured) -> None:
    app.execute("CREATE TABLE item (id int PRIMARY KEY, v text)")
    app.execute("ALTER TABLE item ALTER v SET STORAGE EXTERNAL")
    app.execute("INSERT INTO item SELECT g, repeat('x', 1000000) FROM generate_series(1, 30) AS g")
    source.attach("item")
    sizes = app.execute(
        "SELECT sum(length(changes)) FROM headrace.headrace_outbox WHERE copy GROUP BY tx ORDER BY min(id)"
    ).fetchall()
    assert len(sizes) > 5
    assert max(size for (size,) in sizes) < 2 * CHUNK_BYTES_MAX
    source.assert_equal("item")


def test_partitions_are_copied_and_a_row_may_move_between_them(app: App, source: Captured) -> None:
    app.execute("CREATE TABLE item (id int, day date, v int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)")
    for month in (1, 2, 3):
        bounds = f"FROM ('2024-{month:02}-01') TO ('2024-{month + 1:02}-01')"
        app.execute(f"CREATE TABLE item_{month} PARTITION OF item FOR VALUES {bounds}".encode())
    app.execute("INSERT INTO item SELECT g, date '2024-01-01' + g % 90, 0 FROM generate_series(1, 500) AS g")
    source.attach("item", copy=False)
    number = request_copy(source.connection, CopyRequest("item"))
    with app.transaction():
        app.execute("UPDATE item SET day = '2024-03-03' WHERE id % 50 = 0")
        wait_until(lambda: copy_chunk(source.connection, number, 40) and standing_of(source, number).detail)
    drive(source, number, rows_max=40)
    source.assert_equal("item")
    assert len(copied_keys(source, number)) >= 490


def test_copies_are_filtered_and_masked_as_changes_are(app: App, source: Captured) -> None:
    app.execute("CREATE TABLE item (id int PRIMARY KEY, secret text, hidden text, j json)")
    app.execute("INSERT INTO item VALUES (1, 's1', 'h1', 'null'), (2, NULL, 'h2', NULL)")
    source.attach("item", mask=("secret",), exclude_columns=("hidden",))
    number = request_copy(source.connection, CopyRequest("item", "hidden = 'h1'"))
    assert drive(source, number).rows == 1
    stored = app.execute("SELECT string_agg(changes, '') FROM headrace.headrace_outbox").fetchall()[0][0]
    assert "s1" not in stored
    assert "h1" not in stored
    assert [row.changes for row in source.rows() if row.copy] == [
        b'{"id":1,"secret":"***","j":{"json":null}}',
        b'{"id":2,"secret":null,"j":null}',
        b'{"id":1,"secret":"***","j":{"json":null}}',
    ]


def test_row_level_security_is_an_error_and_never_fewer_rows(
    app: App, database: Database, source: Captured
) -> None:
    role = f"{database.name}_reader"
    app.execute(f"CREATE ROLE {role} LOGIN".encode())
    try:
        app.execute("CREATE TABLE item (id int PRIMARY KEY, v int)")
        app.execute("INSERT INTO item VALUES (1, 1), (2, 2)")
        source.attach("item")
        number = request_copy(source.connection, CopyRequest("item"))
        app.execute("ALTER TABLE item ENABLE ROW LEVEL SECURITY")
        app.execute("CREATE POLICY half ON item USING (v = 1)")
        app.execute(f"GRANT ALL ON item TO {role}; GRANT USAGE ON SCHEMA headrace TO {role}".encode())
        app.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA headrace TO {role}".encode())
        app.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA headrace TO {role}".encode())
        app.execute(f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA headrace TO {role}".encode())
        with captured(database, role) as limited:
            standing = drive(limited, number)
        assert standing.state is CopyState.FAILED
        assert "row-level security" in standing.detail
    finally:
        app.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def test_copy_goes_on_under_a_rebuilt_attachment(app: App, source: Captured) -> None:
    app.execute("CREATE TABLE item (id int PRIMARY KEY, v int)")
    app.execute("INSERT INTO item SELECT g, 0 FROM generate_series(1, 50) AS g")
    source.attach("item", copy=False)
    running = request_copy(source.connection, CopyRequest("item"))
    paused = request_copy(source.connection, CopyRequest("item", "id > 40"))
    set_copy_state(source.connection, paused, CopyState.PAUSED)
    wait_until(lambda: standing_of(source, running).rows or not copy_chunk(source.connection, running, 10))
    app.execute("UPDATE item SET v = 1 WHERE id IN (3, 44)")
    app.execute("ALTER TABLE item ADD COLUMN w text")
    app.execute("UPDATE item SET w = 'late' WHERE id IN (5, 45)")
    assert source.mend() == []
    set_copy_state(source.connection, paused, CopyState.RUNNING)
    assert [drive(source, number).state for number in (running, paused)] == [CopyState.DONE] * 2
    assert (standing_of(source, running).rows, standing_of(source, paused).rows) == (50, 10)
    source.assert_equal("item")


def test_whole_copy_takes_the_place_of_others_and_a_detached_table_ends_them(
    app: App, source: Captured
) -> None:
    app.execute("CREATE TABLE item (id int PRIMARY KEY, v int)")
    app.execute("INSERT INTO item SELECT g, 0 FROM generate_series(1, 50) AS g")
    source.attach("item", copy=False)
    part = request_copy(source.connection, CopyRequest("item", "id > 3", rows_per_second=100))
    assert request_copy(source.connection, CopyRequest("item", "id > 3")) == part
    whole = request_copy(source.connection, CopyRequest("item"))
    assert (standing_of(source, part).state, copy_chunk(source.connection, part)) == (
        CopyState.CANCELLED,
        None,
    )
    copy_chunk(source.connection, whole, 10)
    source.detach("item")
    assert drive(source, whole)._replace(rows=0, rows_estimated=None, rows_left=0) == CopyStanding(
        whole, "item", "shop", CopyState.FAILED, None, None, 0, 0, None, "the table is not attached any more"
    )
    with pytest.raises(TableNotFound, match="attached are: none") as refused:
        request_copy(source.connection, CopyRequest("item"))
    assert "publisher attach" in refused.value.advice


def test_table_of_another_schema_is_named_with_it(app: App, source: Captured) -> None:
    app.execute("CREATE SCHEMA sales")
    app.execute("CREATE TABLE sales.item (id int PRIMARY KEY)")
    app.execute("INSERT INTO sales.item VALUES (1)")
    source.attach("sales.item")
    assert drive(source, request_copy(source.connection, CopyRequest("Sales.Item"))).rows == 1
    with pytest.raises(TableNotFound, match=r"attached are: sales\.item"):
        request_copy(source.connection, CopyRequest("item"))


def test_end_does_not_run_away_from_the_copy(app: App, source: Captured) -> None:
    app.execute("CREATE TABLE item (id int PRIMARY KEY)")
    app.execute("INSERT INTO item SELECT generate_series(1, 30)")
    source.attach("item")
    number = request_copy(source.connection, CopyRequest("item"))
    for step in range(1, 1_000):
        if copy_chunk(source.connection, number, rows_max=10) is None:
            break
        app.execute(f"INSERT INTO item SELECT generate_series({step * 100}, {step * 100 + 20})".encode())
    assert standing_of(source, number).rows == 30
    source.assert_equal("item")


def test_role_that_may_not_is_told(app: App, database: Database, source: Captured) -> None:
    role = f"{database.name}_nobody"
    app.execute(f"CREATE ROLE {role} LOGIN".encode())
    try:
        app.execute("CREATE TABLE item (id int PRIMARY KEY)")
        source.attach("item")
        with captured(database, role) as limited, pytest.raises(SourceForbidden):
            request_copy(limited.connection, CopyRequest("item"))
    finally:
        app.execute(f"DROP ROLE {role}".encode())


def test_nothing_is_copied_while_the_triggers_are_rebuilt(
    app: App, source: Captured, database: Database
) -> None:
    """What a copy wrote then would stand behind the new schema's entry, without the new columns."""
    app.execute("CREATE TABLE item (id int PRIMARY KEY)")
    app.execute("INSERT INTO item VALUES (1)")
    source.attach("item", copy=False)
    number = request_copy(source.connection, CopyRequest("item"))
    with database.connect(autocommit=False) as rebuilding:
        rebuilding.execute("UPDATE headrace.headrace_attached SET state = 'superseded'")
        for _ in range(5):
            step = copy_chunk(source.connection, number)
            assert step is not None
            assert step.rows == 0
        rebuilding.rollback()
    assert drive(source, number).rows == 1


def test_table_locked_by_others_is_asked_for_again_later(
    app: App, source: Captured, database: Database
) -> None:
    app.execute("CREATE TABLE item (id int PRIMARY KEY)")
    app.execute("INSERT INTO item VALUES (1)")
    source.attach("item", copy=False)
    number = request_copy(source.connection, CopyRequest("item"))
    with database.connect(autocommit=False) as migration:
        migration.execute("LOCK TABLE item IN ACCESS EXCLUSIVE MODE")
        assert wait_until(
            lambda: copy_chunk(source.connection, number) and standing_of(source, number).detail
        )
        found = standing_of(source, number)
        assert (found.state, str(migration.info.backend_pid) in found.detail) == (CopyState.RUNNING, True)
        migration.rollback()
    assert drive(source, number).rows == 1
