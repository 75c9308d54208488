"""The plugin ``wal2json`` beside the real one: the same statements, read from a slot and from what was captured.

PostgreSQL decodes its own log with Debian's ``postgresql-15-wal2json``; the same tables are attached. What differs is listed
here by name (docs/formats/pg-output.md has the same list), each difference with the exact records of both sides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from headrace.entries.entry import Change, Op
from headrace.server.pg.output.contract import Piece
from headrace.server.pg.output.registry import OUTPUTS
from tests.integration.postgres.captured import FEED, Captured, captured
from tests.pg_pieces import INCARNATION, GivenSchemas, Place, frame_of
from tests.postgres import Cluster, Database

App = psycopg.Connection[TupleRow]
Records = list[dict[str, Any]]

_TX = """
SELECT tx::text FROM headrace.headrace_outbox
WHERE change_feed_id = %s ORDER BY max(id) OVER (PARTITION BY tx), id"""


class Pair:
    """A database that both sides follow."""

    def __init__(self, app: App, source: Captured) -> None:
        self.app, self.source = app, source

    def attach(self, *tables: str, **options: Any) -> None:
        """Attach tables, and have the real plugin begin behind that."""
        self.source.attach(*tables, **options)
        self.app.execute("SELECT pg_create_logical_replication_slot('real', 'wal2json')")
        self._seen = len(self.source.rows())

    def real(self, **options: str) -> Records:
        """Return what the real plugin says of the application's tables since they were attached."""
        given = {"format-version": "2", "add-tables": "public.*"} | options
        words = [word for pair in given.items() for word in pair]
        found = self.app.execute(
            f"SELECT data FROM pg_logical_slot_peek_changes('real', NULL, NULL, {', '.join(['%s'] * len(words))})",
            words,
        )
        return without_empty([json.loads(text) for (text,) in found])

    def ours(self, **options: str) -> Records:
        """Return what our plugin says of the same time: each transaction is an append of its own."""
        given = {name: text for name, text in options.items() if name != "format-version"}
        output = OUTPUTS["wal2json"](given, GivenSchemas({}))
        names = [str(tx) for (tx,) in self.source.connection.execute(_TX, (FEED,))]
        rows = list(zip(names, self.source.rows(), strict=True))
        payloads: Records = []
        at = 0
        for tx, group in groupby(rows, key=lambda one: one[0]):
            changes = [
                Change(
                    row.changes,
                    key=(b"\0" if row.control else b"") + row.key.removeprefix("\0").encode(),
                    op=Op(row.op),
                    source_tx=tx.encode(),
                    copy=row.copy,
                    control=row.control or "",
                    changed=row.changed or (),
                    before=row.before,
                    table=row.table,
                )
                for _, row in group
            ]
            frame = frame_of(changes, Place(first=at + 1))
            found = output.render(Piece(FEED, INCARNATION, frame, 0, len(changes) - 1, True, True, 731))
            if at >= self._seen:
                payloads += [json.loads(payload) for payload in found.payloads]
            at += len(changes)
        return payloads


def without_empty(records: Records) -> Records:
    """Leave out transactions without a row: the real plugin tells of them too, such as of those of the agent."""
    found: Records = []
    for record in records:
        if record["action"] == "C" and found and found[-1]["action"] == "B":
            found.pop()
        else:
            found.append(record)
    return found


@pytest.fixture(scope="module")
def logical() -> Iterator[Cluster]:
    with Cluster(settings={"wal_level": "logical", "timezone": "UTC"}) as cluster:
        yield cluster


@pytest.fixture
def pair(logical: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    name = f"db{abs(hash(request.node.name))}"
    logical.create_database(name)
    with logical.connect(name) as app, captured(Database(logical, name)) as source:
        yield Pair(app, source)
        app.execute("SELECT pg_drop_replication_slot('real')")


def test_the_same_records_for_the_same_statements(pair: Pair) -> None:
    """Every action, several in one transaction, with all options that say more of a row."""
    pair.app.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, note varchar(20) NOT NULL, size numeric(10, 2))"
    )
    pair.app.execute("CREATE TABLE u (a integer, b text, c text, PRIMARY KEY (b, a))")
    pair.attach("t", "u")
    pair.app.execute("INSERT INTO t VALUES (1, E'a\"é\\n\\t', 1.5), (2, '', NULL)")
    with pair.app.transaction():
        pair.app.execute("UPDATE t SET note = 'z' WHERE id = 2")
        pair.app.execute("INSERT INTO u VALUES (1, 'x', 'y')")
        pair.app.execute("DELETE FROM t WHERE id = 1")
        pair.app.execute("UPDATE u SET c = NULL")
    pair.app.execute("TRUNCATE t")
    pair.app.execute("DELETE FROM u")
    real = pair.real()
    assert [one["action"] for one in real] == [*"BIIC", *"BUIDUC", *"BTC", *"BDC"]
    assert pair.ours() == real
    for options in (
        {"include-pk": "1", "include-not-null": "1"},
        {"include-types": "0", "include-schemas": "off"},
        {"include-transaction": "no"},
        {"actions": "insert,truncate"},
        {"add-tables": "public.t"},
        {"filter-tables": "*.t"},
        {"add-tables": "public.*,other.*", "filter-tables": "public.u"},
    ):
        assert pair.ours(**options) == pair.real(**options), options


def test_the_same_values_of_every_type(pair: Pair) -> None:
    pair.app.execute(
        """CREATE TABLE v (id bigint PRIMARY KEY, small smallint, digits numeric, f float8, r real, b bytea, yes boolean,
           at timestamptz(3), wall timestamp, day date, clock time, j json, jb jsonb, token uuid, padded char(4), ip inet)"""
    )
    pair.attach("v")
    pair.app.execute(
        """INSERT INTO v VALUES (9223372036854775807, -5, 12345678901234567890.123450, 0.1, 0.1, '\\x00ff', true,
           '2026-02-28T12:00:00.5Z', '2026-02-28 12:00', '2026-02-28', '23:59:59.5', '{"a":  [1,2]}', '{"a": null}',
           '123e4567-e89b-12d3-a456-426655440000', 'ab', '10.0.0.1')"""
    )
    pair.app.execute(
        "INSERT INTO v (id, f, r, digits) VALUES (1, 'NaN', '-Infinity', 'NaN'), (2, 1e20, 1e-7, 0)"
    )
    pair.app.execute(
        "INSERT INTO v (id, j, jb) VALUES (3, 'null', 'null'), (4, '{\"json\": 1}', '\"x\"'), (5, '[]', '7')"
    )
    pair.app.execute("INSERT INTO v (id, at, wall, day) VALUES (6, 'infinity', '-infinity', '0044-03-15 BC')")
    assert pair.ours() == pair.real()


def test_named_difference_key_change(pair: Pair) -> None:
    """An UPDATE of a key's column is a D and an I: a feed tells it as a delete and a put."""
    pair.app.execute("CREATE TABLE t (id integer PRIMARY KEY, note text)")
    pair.attach("t")
    pair.app.execute("INSERT INTO t VALUES (1, 'a')")
    pair.app.execute("UPDATE t SET id = 2")
    table = {"schema": "public", "table": "t"}
    new = [
        {"name": "id", "type": "integer", "value": 2},
        {"name": "note", "type": "text", "value": "a"},
    ]
    old = [{"name": "id", "type": "integer", "value": 1}]
    assert pair.real()[4] == {"action": "U", **table, "columns": new, "identity": old}
    assert pair.ours()[4:6] == [
        {"action": "D", **table, "identity": old},
        {"action": "I", **table, "columns": new},
    ]


def test_named_difference_unchanged_update(pair: Pair) -> None:
    """An UPDATE that changed no value is an I, save where the table is attached with --before."""
    pair.app.execute("CREATE TABLE t (id integer PRIMARY KEY)")
    pair.attach("t")
    pair.app.execute("INSERT INTO t VALUES (1)")
    pair.app.execute("UPDATE t SET id = id")
    assert [one["action"] for one in pair.real()] == [*"BIC", *"BUC"]
    assert [one["action"] for one in pair.ours()] == [*"BIC", *"BIC"]


def test_named_difference_composite_values(pair: Pair) -> None:
    """Arrays are JSON lists in their text, and an interval is ISO 8601: what the feed has of them."""
    pair.app.execute("CREATE TABLE t (id integer PRIMARY KEY, list integer[], span interval)")
    pair.attach("t")
    pair.app.execute("INSERT INTO t VALUES (1, '{1,NULL}', '1 day 02:00')")
    real, ours = pair.real()[1]["columns"], pair.ours()[1]["columns"]
    assert [one["value"] for one in real] == [1, "{1,NULL}", "1 day 02:00:00"]
    assert [one["value"] for one in ours] == [1, "[1,null]", "P1DT2H"]
    assert [one["type"] for one in ours] == [one["type"] for one in real]
