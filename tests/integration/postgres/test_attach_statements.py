"""Attached PostgreSQL tables: what each kind of statement becomes, whoever runs it and whatever the session has set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.integration.postgres import awkward
from tests.integration.postgres.captured import Captured, captured
from tests.postgres import Database

App = psycopg.Connection[TupleRow]


@pytest.fixture
def app(database: Database) -> Iterator[App]:
    with database.connect() as connection:
        connection.execute("CREATE TABLE account (id int PRIMARY KEY, owner text, amount float8)")
        yield connection


@pytest.fixture
def source(app: App, database: Database) -> Iterator[Captured]:
    with captured(database) as found:
        yield found


def test_schema_first_then_copies_then_changes(app: App, source: Captured) -> None:
    app.execute("INSERT INTO account VALUES (1, 'a', 1.5), (2, 'b', 2)")
    source.attach("account")
    app.execute("UPDATE account SET amount = 3 WHERE id = 1")
    rows = source.rows()
    assert [(row.control, row.copy) for row in rows] == [
        ("schema", False), ("copy-begin", False), (None, True), (None, True), ("copy-end", False), (None, False),
    ]  # fmt: skip
    assert rows[0].key == "schema/public/account/1"
    assert rows[0].values == {
        "database": "public",
        "table": "account",
        "version": 1,
        "columns": [
            {"name": "id", "type": "int64", "source-type": "integer", "nullable": False},
            {"name": "owner", "type": "string", "source-type": "text", "nullable": True},
            {"name": "amount", "type": "float64", "source-type": "double precision", "nullable": True},
        ],
        "key": ["id"],
    }
    assert {row.table for row in rows} == {("public", "account")}
    assert (rows[5].changed, rows[5].changes) == (("amount",), b'{"id":1,"owner":"a","amount":3.0}')
    source.assert_equal("account")


def test_insert_update_delete_and_what_was_rolled_back(app: App, source: Captured) -> None:
    source.attach("account", before=True)
    source.skip()
    with app.transaction():
        app.execute("INSERT INTO account VALUES (1, 'a', 1)")
        with app.transaction(force_rollback=True):
            app.execute("INSERT INTO account VALUES (9, 'z', 1)")
        app.execute("UPDATE account SET owner = 'b'")
        app.execute("UPDATE account SET owner = owner")
    with app.transaction(force_rollback=True):
        app.execute("DELETE FROM account")
    app.execute("DELETE FROM account")
    rows = source.new_rows()
    assert [row.short for row in rows] == [("put", [1]), ("put", [1]), ("put", [1]), ("delete", [1])]
    assert [row.changed for row in rows] == [None, ("owner",), (), None]
    assert [row.before for row in rows] == [
        None,
        b'{"id":1,"owner":"a","amount":1.0}',
        b'{"id":1,"owner":"b","amount":1.0}',
        None,
    ]
    assert rows[3].changes == b'{"id":1,"owner":"b","amount":1.0}'


def test_change_of_key_is_delete_and_put(app: App, source: Captured) -> None:
    source.attach("account")
    app.execute("INSERT INTO account VALUES (3, 'a', 1), (2, 'b', 1), (1, 'c', 1)")
    source.skip()
    app.execute("UPDATE account SET id = id + 1")
    assert [row.short for row in source.new_rows()] == [
        ("delete", [3]), ("put", [4]), ("delete", [2]), ("put", [3]), ("delete", [1]), ("put", [2]),
    ]  # fmt: skip
    source.assert_equal("account")


def test_on_conflict_merge_and_statements_that_move_rows(app: App, source: Captured) -> None:
    source.attach("account")
    source.skip()
    app.execute("INSERT INTO account VALUES (1, 'a', 1) ON CONFLICT DO NOTHING")
    app.execute("INSERT INTO account VALUES (1, 'x', 1), (2, 'b', 1) ON CONFLICT DO NOTHING")
    app.execute(
        "INSERT INTO account VALUES (1, 'c', 3) ON CONFLICT (id) DO UPDATE SET owner = excluded.owner WHERE account.id > 0"
    )
    app.execute(
        "WITH gone AS (DELETE FROM account WHERE id = 2 RETURNING *) INSERT INTO account SELECT * FROM gone"
    )
    with app.cursor().copy("COPY account FROM STDIN") as copy:
        copy.write_row((5, "e", 1.0))
    assert [row.short for row in source.new_rows()] == [
        ("put", [1]), ("put", [2]), ("put", [1]), ("delete", [2]), ("put", [2]), ("put", [5]),
    ]  # fmt: skip
    source.assert_equal("account")


def test_cascades(app: App, source: Captured) -> None:
    app.execute(
        "CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES account ON DELETE CASCADE ON UPDATE CASCADE)"
    )
    app.execute(
        "CREATE TABLE tree (id int PRIMARY KEY, up int REFERENCES tree ON DELETE SET NULL ON UPDATE CASCADE)"
    )
    app.execute("INSERT INTO account VALUES (1, 'a', 1), (2, 'b', 1)")
    app.execute("INSERT INTO child VALUES (5, 1), (6, 1), (7, 2)")
    app.execute("INSERT INTO tree VALUES (1, NULL), (2, 1), (3, 2), (4, 1)")
    source.attach("account", "child", "tree")
    source.skip()
    app.execute("DELETE FROM account WHERE id = 1")
    app.execute("UPDATE account SET id = 20")
    app.execute("UPDATE tree SET id = id + 10")
    app.execute("DELETE FROM tree WHERE id < 13")
    source.assert_equal("account", "child", "tree")


def test_truncate(app: App, source: Captured) -> None:
    app.execute("CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES account)")
    app.execute("INSERT INTO account VALUES (1, 'a', 1)")
    app.execute("INSERT INTO child VALUES (1, 1)")
    source.attach("account", "child")
    app.execute("TRUNCATE account CASCADE")
    app.execute("INSERT INTO account VALUES (2, 'b', 1)")
    assert source.controls()[-2:] == ["truncate", "truncate"]
    gone = [row for row in source.rows() if row.control == "truncate"]
    assert [row.table for row in gone] == [("public", "account"), ("public", "child")]
    assert gone[0].values == {"database": "public", "table": "account", "version": 1}
    source.assert_equal("account", "child")


def test_generated_and_identity_columns(app: App, source: Captured) -> None:
    app.execute(
        "CREATE TABLE g (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int, "
        "twice int GENERATED ALWAYS AS (n * 2) STORED)"
    )
    source.attach("g")
    app.execute("INSERT INTO g (n) VALUES (1)")
    app.execute("UPDATE g SET n = 5")
    assert [(row.values, row.changed) for row in source.new_rows()] == [
        ({"id": 1, "n": 1, "twice": 2}, None),
        ({"id": 1, "n": 5, "twice": 10}, ("n", "twice")),
    ]


def test_before_triggers_and_rules_change_what_is_captured(app: App, source: Captured) -> None:
    app.execute(
        """CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN NEW.owner := 'stamped'; RETURN CASE WHEN NEW.id = 13 THEN NULL ELSE NEW END; END $$"""
    )
    app.execute("CREATE TRIGGER stamp BEFORE INSERT ON account FOR EACH ROW EXECUTE FUNCTION stamp()")
    app.execute("CREATE TABLE log (id serial PRIMARY KEY, note text)")
    app.execute(
        "CREATE RULE redirect AS ON DELETE TO account DO INSTEAD UPDATE account SET owner = 'kept' WHERE id = OLD.id"
    )
    app.execute("CREATE RULE also AS ON UPDATE TO account DO ALSO INSERT INTO log (note) VALUES (NEW.owner)")
    source.attach("account", "log")
    app.execute("INSERT INTO account VALUES (1, 'a', 1), (13, 'b', 1)")
    app.execute("DELETE FROM account")
    source.assert_equal("account", "log")


def test_replica_role_loses_nothing(app: App, source: Captured) -> None:
    source.attach("account")
    app.execute("SET session_replication_role = replica")
    app.execute("INSERT INTO account VALUES (1, 'a', 1), (2, 'b', 1)")
    app.execute("UPDATE account SET id = 3 WHERE id = 2")
    source.assert_equal("account")
    app.execute("TRUNCATE account")
    source.assert_equal("account")


def test_session_settings_and_impostors_change_nothing(
    app: App, source: Captured, database: Database
) -> None:
    with database.connect() as other:
        other.execute("CREATE SCHEMA evil")
        other.execute(
            "CREATE FUNCTION evil.row_to_json(anyelement) RETURNS json LANGUAGE sql AS $$ SELECT '{}'::json $$"
        )
        other.execute(
            "CREATE FUNCTION evil.pg_notify(text, text) RETURNS void LANGUAGE sql AS $$ SELECT 1/0 $$"
        )
        other.execute("CREATE TABLE evil.headrace_outbox (id int)")
        other.execute("CREATE FUNCTION evil.eq(int, int) RETURNS bool LANGUAGE sql AS $$ SELECT false $$")
        other.execute("CREATE OPERATOR evil.= (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.eq)")
    app.execute(
        "CREATE TABLE odd (id timestamptz PRIMARY KEY, raw bytea, f float8, g float4, i interval, m money, r tstzrange, "
        "d date, ts timestamp, list timestamptz[], b bytea[])"
    )
    source.attach("odd", "account")
    insert = """INSERT INTO odd VALUES ('2026-07-01 12:00+00', '\\x00ff5c', 0.1, 0.1, '1 day 02:00', '1.50',
        '[2026-07-01 00:00+00,2026-07-02 00:00+00)', '2026-07-01', '2026-07-01 12:00',
        '{2026-07-01 12:00+00}', '{"\\\\x00ff"}')"""
    app.execute(insert)
    settings = {
        **awkward.SESSION,
        "extra_float_digits": "-15",
        "lc_monetary": "C.UTF-8",
        "search_path": "evil, pg_catalog, public",
        "enable_indexscan": "off",
    }
    for name, value in settings.items():
        app.execute("SELECT set_config(%s, %s, false)", (name, value))
    app.execute("UPDATE public.odd SET f = 0.30000000000000004 WHERE true")
    app.execute("INSERT INTO public.account VALUES (1, 'a', 0.1)")
    first, second, third = source.new_rows()
    assert third.values == {"id": 1, "owner": "a", "amount": 0.1}
    assert second.changed == ("f",)
    assert second.values == {
        "id": "2026-07-01T12:00:00+00:00",
        "raw": "AP9c",
        "f": 0.30000000000000004,
        "g": 0.1,
        "i": "P1DT2H",
        "m": "$1.50",
        "r": '["2026-07-01 00:00:00+00","2026-07-02 00:00:00+00")',
        "d": "2026-07-01",
        "ts": "2026-07-01T12:00:00",
        "list": ["2026-07-01T12:00:00+00:00"],
        "b": ["\\x00ff"],
    }
    assert {**first.values, "f": 0.30000000000000004} == second.values


def test_columns_left_out_and_masked_never_reach_the_outbox(app: App, source: Captured) -> None:
    app.execute("CREATE TABLE person (id int PRIMARY KEY, name text, ssn int, seen text, doc json)")
    app.execute("INSERT INTO person VALUES (1, 'a', 12345, 'secret-x', 'null')")
    source.attach("person", mask=("person.ssn",), exclude_columns=("seen",), before=True)
    app.execute("UPDATE person SET seen = 'secret-y'")
    app.execute("UPDATE person SET ssn = 45678, seen = 'secret-z'")
    app.execute('UPDATE person SET ssn = NULL, doc = \'{"a": "\\u0000"}\'')
    app.execute("UPDATE person SET ssn = 45678, id = 2")
    app.execute("ALTER TABLE person RENAME ssn TO hidden")
    app.execute("UPDATE person SET hidden = 12345, seen = 'secret-w', name = 'b'")
    app.execute("DELETE FROM person")
    rows = [row for row in source.rows() if row.control is None]
    assert [(row.op, row.changed) for row in rows] == [
        ("put", None),
        ("put", ("ssn",)),
        ("put", ("ssn", "doc")),
        ("delete", None),
        ("put", ("id", "ssn")),
        ("put", ("name",)),
        ("delete", None),
    ]
    assert rows[0].values == {"id": 1, "name": "a", "ssn": "***", "doc": {"json": None}}
    assert rows[1].before == b'{"id":1,"name":"a","ssn":"***","doc":{"json":null}}'
    assert rows[2].values["ssn"] is None
    assert rows[2].values["doc"] == {"a": "\0"}
    stored = source.connection.execute(
        "SELECT changes || coalesce(before, '') FROM headrace.headrace_outbox"
    ).fetchall()
    for secret in ("12345", "45678", "secret"):
        assert not [text for (text,) in stored if secret in text]
    schema = next(row for row in source.rows() if row.control == "schema")
    assert [(column["name"], column["type"]) for column in schema.values["columns"]] == [
        ("id", "int64"), ("name", "string"), ("ssn", "string"), ("doc", "json"),
    ]  # fmt: skip


def test_only_named_columns(app: App, source: Captured) -> None:
    source.attach("account", columns=("amount",))
    app.execute("INSERT INTO account VALUES (1, 'a', 1)")
    app.execute("UPDATE account SET owner = 'b'")
    assert [row.values for row in source.new_rows()] == [{"id": 1, "amount": 1.0}]


def test_json_nulls_and_documents_that_look_wrapped(app: App, source: Captured) -> None:
    app.execute('CREATE TABLE doc (id int PRIMARY KEY, "a ""b" json, b jsonb)')
    source.attach("doc")
    documents: list[tuple[str | None, Any]] = [
        (None, None),
        ("null", {"json": None}),
        ('{"json": 1}', {"json": {"json": 1}}),
        ('{"text": "x"}', {"json": {"text": "x"}}),
        ('{"json": 1, "x": 2}', {"json": 1, "x": 2}),
        ('"null"', "null"),
        ('[1, null, {"a": null}]', [1, None, {"a": None}]),
        ("1e400", float("inf")),
    ]
    for number, (text, _) in enumerate(documents):
        app.execute("INSERT INTO doc VALUES (%s, %s, %s)", (number, text, text if text != "1e400" else None))
    rows = source.new_rows()
    for row, (text, wanted) in zip(rows, documents, strict=True):
        assert row.values['a "b'] == wanted
        assert row.values["b"] == (wanted if text != "1e400" else None)
    deep = "[" * 2_000 + "]" * 2_000
    app.execute("INSERT INTO doc VALUES (99, %s, NULL)", (deep,))
    assert source.new_rows()[0].values['a "b'] == {"text": deep}


def test_keys_whose_equal_values_are_written_differently(app: App, source: Captured) -> None:
    app.execute("CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    tables = {
        "k_num": ("numeric", "1.0", "1.00"),
        "k_float": ("float8", "0", "-0"),
        "k_text": ("text COLLATE loose", "a", "A"),
        "k_char": ("bpchar", "a", "a  "),
        "k_span": ("interval", "1 month", "30 days"),
        "k_list": ("numeric[]", "{1.0}", "{1.00}"),
        "k_inet": ("inet", "10.0.0.1", "10.0.0.2"),
    }
    for table, (kind, value, _) in tables.items():
        app.execute(f"CREATE TABLE {table} (k {kind} PRIMARY KEY, v int)".encode())
        app.execute(f"INSERT INTO {table} VALUES (%s, 1)".encode(), (value,))
    source.attach(*tables)
    for table, (_, _, value) in tables.items():
        app.execute(f"UPDATE {table} SET k = %s".encode(), (value,))
        app.execute(f"UPDATE {table} SET v = 2".encode())
    source.assert_equal(*tables)


def test_names_that_need_quoting(app: App, source: Captured) -> None:
    app.execute('CREATE SCHEMA "s%x"')
    app.execute(
        """CREATE TABLE "s%x"."it's ""quoted"" %s" ("select" text, "a b" int, "c""d'\\" int, "100%" int, "Ä" json,
        PRIMARY KEY ("select", "c""d'\\"))"""
    )
    app.execute("""INSERT INTO "s%x"."it's ""quoted"" %s" VALUES ('k', 1, 2, 3, 'null')""")
    name = """s%x.it's "quoted" %s"""
    for options in ({"before": True}, {"mask": ("100%",)}):
        source.attach(name, **options)
        app.execute("""UPDATE "s%x"."it's ""quoted"" %s" SET "a b" = "a b" + 1, "100%" = 8""")
        last = source.new_rows()[-1]
        assert json.loads(last.key) == ["s%x", 'it\'s "quoted" %s', "k", 2]
        source.assert_equal(name)


def test_awkward_values_folded_are_the_table(app: App, source: Captured, database: Database) -> None:
    awkward.create(database)
    source.attach(awkward.TABLE)
    with database.connect() as writer:
        writer.execute("UPDATE awkward SET small = 1, tag = tag || '!' WHERE id > 0")
        writer.execute("UPDATE awkward SET double = -double, doc = NULL WHERE id < 2")
        writer.execute("DELETE FROM awkward WHERE id = 2")
    source.assert_equal(awkward.TABLE)
