"""Records of wal2json from attached and captured tables: which schema a row has, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.entries.entry import Change, Op
from headrace.errors import InvalidRequest, ValueUnfit
from headrace.server.pg.output.contract import Piece
from headrace.server.pg.output.registry import OUTPUTS
from headrace.server.pg.output.wal2json import Wal2Json
from headrace.simple import json_codec
from headrace.simple.message import Bootstrap, Ddl, MessageType
from headrace.simple.schema import Column, DataType, Index, TableSchema
from headrace.wire.generated import wal_pb2
from tests.pg_pieces import (
    FEED,
    INCARNATION,
    XID,
    GivenSchemas,
    Place,
    documents,
    frame_of,
    piece_of,
    rendered,
)

TABLE: dict[str, Any] = {"table": ("public", "t")}
GOLDEN = Path(__file__).parents[4] / "golden" / "simple"


def schema_of(version: int, *names: str) -> bytes:
    columns = [{"name": name, "type": "int64", "source-type": "integer", "nullable": False} for name in names]
    document = {"database": "public", "table": "t", "version": version, "columns": columns, "key": ["id"]}
    return json.dumps(document).encode()


def schema(version: int, *names: str) -> Change:
    key = b"\0schema/public/t/%d" % version
    return Change(schema_of(version, *names), key=key, control="schema", **TABLE)


def put(**row: int) -> Change:
    return Change(json.dumps(row).encode(), key=b"k%d" % row["id"], **TABLE)


def row(record: dict[str, Any]) -> dict[str, Any]:
    return {column["name"]: column["value"] for column in record["columns"]}


def actions(records: list[dict[str, Any]]) -> str:
    return "".join(record["action"] for record in records)


def test_a_row_has_the_schema_in_front_of_it() -> None:
    entries = [schema(1, "id"), put(id=1), schema(2, "id", "a"), put(id=2, a=5), put(id=3)]
    records = documents(rendered("wal2json", entries, {"include-transaction": "off"}).payloads)
    assert [row(one) for one in records] == [{"id": 1}, {"id": 2, "a": 5}, {"id": 3, "a": None}]


def test_what_is_not_in_the_frames_is_asked_for_once() -> None:
    """A stream that begins behind the schema; then frames that follow, a repeated one, and a gap in which it changed."""
    schemas = GivenSchemas(
        {(FEED, "public", "t"): [(1, 1, schema_of(1, "id")), (30, 2, schema_of(2, "id", "a"))]}
    )
    output = OUTPUTS["wal2json"]({"include-transaction": "off"}, schemas)
    asked = []
    shown = []
    for first in (10, 11, 10, 12, 40, 5, 41):
        piece = piece_of(frame_of([put(id=first)], Place(first)))
        shown.append(row(documents(output.render(piece).payloads)[0]))
        asked.append(schemas.asked)
    assert shown == [
        {"id": 10}, {"id": 11}, {"id": 10}, {"id": 12}, {"id": 40, "a": None}, {"id": 5}, {"id": 41, "a": None},
    ]  # fmt: skip
    assert asked == [1, 1, 1, 1, 2, 3, 4]


def test_another_incarnation_is_another_feed() -> None:
    output = OUTPUTS["wal2json"]({"include-transaction": "off"}, GivenSchemas({}))
    frame = frame_of([schema(1, "id"), put(id=1)])
    assert documents(output.render(piece_of(frame)).payloads)[0]["columns"][0]["type"] == "integer"
    later = Piece(FEED, "another", frame_of([put(id=1)], Place(3)), 0, 0, True, True, XID)
    assert documents(output.render(later).payloads)[0]["columns"] == [{"name": "id", "type": "", "value": 1}]


def test_a_schema_that_the_filters_took_away_counts() -> None:
    entries = [schema(1, "id"), put(id=1)]
    found = rendered("wal2json", entries, {"include-transaction": "off"}, wanted=[1])
    assert (documents(found.payloads)[0]["columns"][0]["type"], found.entries) == ("integer", [1])


def test_begin_and_commit_belong_to_the_first_and_the_last_entry() -> None:
    output = OUTPUTS["wal2json"]({"include-xids": "on"}, GivenSchemas({}))
    frame = frame_of([put(id=1), put(id=2), put(id=3), put(id=4)])
    found = output.render(Piece(FEED, INCARNATION, frame, 1, 2, True, False, 9, wanted=[2]))
    assert (actions(documents(found.payloads)), found.entries) == ("BI", [1, 2])
    found = output.render(Piece(FEED, INCARNATION, frame, 1, 2, False, True, 9, wanted=[]))
    assert (documents(found.payloads), found.entries) == ([{"action": "C", "xid": 9}], [2])
    found = output.render(Piece(FEED, INCARNATION, frame, 1, 2, True, True, 9, wanted=[]))
    assert found.payloads == []


def test_a_captured_feed() -> None:
    """Messages of the golden files, with the schema whose version they name; a DDL's TRUNCATE empties the table."""
    messages = {
        name: (GOLDEN / f"{name}.json").read_bytes() for name in ("bootstrap", "insert", "update", "delete")
    }
    known = json_codec.decode(messages["bootstrap"])
    assert isinstance(known, Bootstrap)
    table: dict[str, Any] = {"table": ("simple", "user")}
    version = known.table_schema.version
    schemas = GivenSchemas({(FEED, "simple", "user"): [(1, version, messages["bootstrap"])]})
    truncate = json_codec.encode(Ddl(MessageType.TRUNCATE, "TRUNCATE user", 5, 5, known.table_schema))
    alter = (GOLDEN / "alter.json").read_bytes()
    entries = [
        Change(messages["insert"], key=b"1", **table),
        Change(messages["update"], key=b"1", **table),
        Change(messages["delete"], key=b"1", op=Op.DELETE, **table),
        Change(alter, key=b"\0ddl/simple/user/4", control="ddl", **table),
        Change(truncate, key=b"\0ddl/simple/user/5", control="ddl", **table),
        Change(b'{"version":1,"type":"WATERMARK"}', key=b"\0watermark/6", control="watermark"),
    ]
    records = documents(
        rendered("wal2json", entries, {"include-pk": "on"}, place=Place(9), schemas=schemas).payloads
    )
    assert actions(records) == "BIUDTC"
    assert records[2] == {
        "action": "U",
        "schema": "simple",
        "table": "user",
        "columns": [
            {"name": "id", "type": "int", "value": 1},
            {"name": "name", "type": "varchar(255)", "value": "John Doe"},
            {"name": "age", "type": "int", "value": 25},
            {"name": "score", "type": "float", "value": 95},
        ],
        "identity": [{"name": "id", "type": "int", "value": 1}],
        "pk": [{"name": "id", "type": "int"}],
    }
    assert records[3]["identity"] == [{"name": "id", "type": "int", "value": 1}]
    assert records[4] == {"action": "T", "schema": "simple", "table": "user"}


def test_mysql_types() -> None:
    """One row with each kind of value that is not plain text."""
    given: dict[str, tuple[DataType, Any, str, Any]] = {
        "id": (
            DataType("bigint", "binary", "binary", 20, unsigned=True),
            str(2**64 - 1),
            "bigint unsigned",
            2**64 - 1,
        ),
        "d": (DataType("decimal", "binary", "binary", 12, 2), "5.00", "decimal(12,2)", 5.0),
        "b": (DataType("varbinary", "binary", "binary", 4), "AP8=", "varbinary(4)", "00ff"),
        "l": (DataType("longblob", "binary", "binary"), "", "longblob", ""),
        "e": (DataType("enum", "utf8mb4", "utf8mb4_bin", elements=("a", "b")), "2", "enum", "b"),
        "e0": (DataType("enum", "utf8mb4", "utf8mb4_bin", elements=("a",)), "0", "enum", ""),
        "s": (DataType("set", "utf8mb4", "utf8mb4_bin", elements=("a", "b", "c")), "5", "set", "a,c"),
        "t": (
            DataType("timestamp", "binary", "binary", 26, 6),
            {"location": "UTC", "value": "2020-02-20 02:20:20.5"},
            "timestamp(6)",
            "2020-02-20 02:20:20.5",
        ),
        "bit": (DataType("bit", "binary", "binary", 10, unsigned=True), "682", "bit(10)", 682),
        "j": (DataType("json", "binary", "binary"), '{"a": 1}', "json", '{"a": 1}'),
        "n": (DataType("int", "binary", "binary", 11), None, "int", None),
        "m": (DataType("int", "binary", "binary", 11), "***", "int", "***"),
    }
    columns = tuple(Column(name, one[0], True, None) for name, one in given.items())
    known = TableSchema("shop", "t", 1, 7, columns, (Index("PRIMARY", True, True, False, ("id",)),))
    value = {
        "version": 1, "database": "shop", "table": "t", "type": "INSERT", "schemaVersion": 7,
        "data": {name: one[1] for name, one in given.items()},
    }  # fmt: skip
    entries = [
        Change(
            json_codec.encode(Bootstrap(1, known)),
            key=b"\0schema/shop/t/7",
            control="schema",
            table=("shop", "t"),
        ),
        Change(json.dumps(value).encode(), key=b"1", table=("shop", "t")),
    ]
    (record,) = documents(rendered("wal2json", entries, {"include-transaction": "off"}).payloads)
    assert {one["name"]: (one["type"], one["value"]) for one in record["columns"]} == {
        name: one[2:] for name, one in given.items()
    }


def test_values_that_do_not_fit_their_column() -> None:
    """SQLite lets columns hold anything: what is in the object that names the kind comes out."""
    columns = [
        {"name": name, "type": kind, "source-type": ""}
        for name, kind in {
            "i": "int64",
            "f": "float64",
            "b": "binary",
            "y": "boolean",
            "j": "json",
            "s": "string",
        }.items()
    ]
    described = Change(
        json.dumps({"columns": columns, "key": []}).encode(),
        key=b"\0schema/public/t/1",
        control="schema",
        **TABLE,
    )
    value = (
        b'{"i":{"text":"abc"},"f":{"blob":"/w=="},"b":{"integer":5},"y":{"integer":2},"j":{"real":"Infinity"},'
        b'"s":{"invalid-utf8":"/0E="}}'
    )
    (record,) = documents(
        rendered("wal2json", [described, Change(value, **TABLE)], {"include-transaction": "off"}).payloads
    )
    assert row(record) == {"i": "abc", "f": "ff", "b": 5, "y": 2, "j": None, "s": "ff41"}


def test_digits_are_kept_as_they_are() -> None:
    columns = [{"name": "d", "type": "decimal", "source-type": "numeric"}]
    described = Change(
        json.dumps({"columns": columns}).encode(), key=b"\0schema/public/t/1", control="schema", **TABLE
    )
    entries = [described, Change(b'{"d":"12345678901234567890.123450"}', **TABLE)]
    assert b'"value":12345678901234567890.123450}' in rendered("wal2json", entries).payloads[1]


def test_a_batch_has_no_record() -> None:
    value = wal_pb2.BatchWrite(mutations=[wal_pb2.Mutation(key=b"k")]).SerializeToString()
    assert rendered("wal2json", [Change(value, key=b"k", op=Op.BATCH, **TABLE)]).payloads == []


def test_a_row_that_is_no_object_is_named() -> None:
    with pytest.raises(ValueUnfit, match=r"vmapi::vm, sequence id 7, table public\.t"):
        rendered("wal2json", [Change(b"[1]", **TABLE)], place=Place(7))


@pytest.mark.parametrize(
    ("options", "member"),
    [
        ({"format-version": "1"}, "format-version"),
        ({"include-typmod": "on"}, "include-typmod"),
        ({"pretty-print": "on"}, "pretty-print"),
        ({"include-xids": "perhaps"}, "include-xids"),
        ({"actions": "insert,message"}, "actions"),
        ({"add-tables": "t"}, "add-tables"),
        ({"filter-tables": "public.t,"}, "filter-tables"),
    ],
)
def test_options_that_are_refused(options: dict[str, str], member: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Wal2Json(options, GivenSchemas({}))
    assert refused.value.members["member"] == member


def test_a_name_with_dots_and_commas() -> None:
    entries = [Change(b'{"id":1}', table=("a.b", "c, d")), Change(b'{"id":2}', table=("a.b", "e"))]
    found = rendered("wal2json", entries, {"add-tables": r"a\.b.c\,\ d", "include-transaction": "off"})
    assert found.entries == [0]
