"""The JSON form: golden messages byte for byte, Go's ways of writing, both generations, every kind of bad message."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.simple.json_codec import decode, decode_schema, encode, encode_schema
from headrace.simple.message import (
    DDL_TYPES,
    DML_TYPES,
    Bootstrap,
    Checksum,
    Ddl,
    Dml,
    Message,
    MessageType,
    Timestamp,
    Watermark,
)
from headrace.simple.schema import Column, DataType, Index, TableSchema
from headrace.simple.values import Encoding
from tests.scale import scaled, sized
from tests.simple import SAMPLES, U64_MAX, messages, names

MESSAGES = {name: sample for name, sample in SAMPLES.items() if name != "table-schema"}
INT = DataType("int", "binary", "binary", 11)
ID = Column("id", INT, nullable=False, default=None)
TABLE = TableSchema("db", "t", 7, 9, (ID,), (Index("primary", True, True, False, ("id",)),))
TABLE_JSON = (
    b'{"schema":"db","table":"t","tableID":7,"version":9,"columns":[{"name":"id","dataType":{"mysqlType":"int",'
    b'"charset":"binary","collate":"binary","length":11},"nullable":false,"default":null}],"indexes":[{"name":"primary",'
    b'"unique":true,"primary":true,"nullable":false,"columns":["id"]}]}'
)


def insert(**more: Any) -> Dml:
    given: dict[str, Any] = {"data": {"id": "1"}, **more}
    return Dml(given.pop("type", MessageType.INSERT), "db", "t", 7, 5, 6, 9, **given)


def of(message: Message) -> Any:
    return json.loads(encode(message))


@pytest.mark.parametrize("name", MESSAGES)
def test_golden_messages_byte_for_byte(name: str) -> None:
    assert encode(decode(MESSAGES[name])) == MESSAGES[name]


def test_the_golden_insert_as_a_value() -> None:
    row = {"age": "25", "id": "1", "name": "John Doe", "score": "90.5"}
    place = (148, 447984084414103554, 1708923662983, 447984074911121426)
    assert decode(SAMPLES["insert"]) == Dml(MessageType.INSERT, "simple", "user", *place, row)


def test_a_table_schema_alone() -> None:
    schema = decode_schema(SAMPLES["table-schema"])
    assert schema.key == ("simple", "user", 447984074911121426)
    assert schema.handle_key == ("id",)
    assert encode_schema(schema) == SAMPLES["table-schema"]
    odd = msgspec.structs.replace(schema, table='<"tableSchema":')
    assert decode_schema(encode_schema(odd)) == odd
    assert b'"table":"\\u003c\\"tableSchema\\":"' in encode_schema(odd)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Watermark(5, 6), b'{"version":1,"type":"WATERMARK","commitTs":5,"buildTs":6}'),
        (
            Bootstrap(6, TABLE),
            b'{"version":1,"type":"BOOTSTRAP","commitTs":0,"buildTs":6,"tableSchema":' + TABLE_JSON + b"}",
        ),
        (
            Ddl(MessageType.QUERY, "DROP DATABASE x", 5, 6),
            b'{"version":1,"type":"QUERY","sql":"DROP DATABASE x","commitTs":5,"buildTs":6}',
        ),
        (
            Ddl(MessageType.ERASE, "DROP TABLE `db`.`t`", 5, 6, TABLE, TABLE),
            b'{"version":1,"type":"ERASE","sql":"DROP TABLE `db`.`t`","commitTs":5,"buildTs":6,"tableSchema":'
            + TABLE_JSON
            + b',"preTableSchema":'
            + TABLE_JSON
            + b"}",
        ),
        (
            insert(checksum=Checksum(0, False, 1, 0)),
            b'{"version":1,"database":"db","table":"t","tableID":7,"type":"INSERT","commitTs":5,"buildTs":6,'
            b'"schemaVersion":9,"checksum":{"version":0,"corrupted":false,"current":1,"previous":0},"data":{"id":"1"}}',
        ),
        (
            insert(data={"b": Timestamp("UTC", "2020-02-20 10:20:20"), "a": None}, start_ts=4),
            b'{"version":1,"database":"db","table":"t","tableID":7,"type":"INSERT","commitTs":5,"startTs":4,"buildTs":6,'
            b'"schemaVersion":9,"data":{"a":null,"b":{"location":"UTC","value":"2020-02-20 10:20:20"}}}',
        ),
    ],
    ids=["watermark", "bootstrap", "database", "drop", "checksum", "timestamp"],
)
def test_every_member_at_its_place(message: Message, text: bytes) -> None:
    assert encode(message) == text
    assert decode(text) == message


def test_a_data_type_leaves_out_what_is_zero() -> None:
    whole = DataType("set", "utf8mb4", "utf8mb4_bin", 5, 2, ("a", "b<"), unsigned=True, zerofill=True)
    columns = (
        Column("a", whole, nullable=True, default="x"),
        Column("b", DataType("double", "", ""), True, 2**64 - 1),
    )
    schema = msgspec.structs.replace(TABLE, columns=columns, indexes=())
    text = encode(Bootstrap(6, schema))
    assert (
        b'"columns":[{"name":"a","dataType":{"mysqlType":"set","charset":"utf8mb4","collate":"utf8mb4_bin","length":5,'
        b'"decimal":2,"elements":["a","b\\u003c"],"unsigned":true,"zerofill":true},"nullable":true,"default":"x"},'
        b'{"name":"b","dataType":{"mysqlType":"double","charset":"","collate":""},"nullable":true,'
        b'"default":18446744073709551615}],"indexes":[]}'
    ) in text
    assert decode(text) == Bootstrap(6, schema)


def test_text_is_escaped_as_go_does() -> None:
    text = '<a>&\u2028\u2029\u2027\x00\x1f\b\f\n\r\t\x7f"\\/é😀'
    sql = encode(Ddl(MessageType.QUERY, text, 5, 6))
    escaped = r'"\u003ca\u003e\u0026\u2028\u2029‧\u0000\u001f\b\f\n\r\t' + "\x7f" + r'\"\\/é😀"'
    assert f'"sql":{escaped},'.encode() in sql
    row = encode(insert(data={text: text}))
    assert f'"data":{{{escaped}:{escaped}}}}}'.encode() in row
    assert decode(row) == insert(data={text: text})
    assert decode(sql) == Ddl(MessageType.QUERY, text, 5, 6)


@given(st.lists(names, min_size=1, max_size=8, unique=True))
@settings(max_examples=sized(scaled(30), soak=scaled(100)))
def test_columns_stand_in_the_order_of_their_bytes(columns: list[str]) -> None:
    written = list(json.loads(encode(insert(data=dict.fromkeys(columns, "1"))))["data"])
    assert written == sorted(columns, key=str.encode)


@given(messages(Encoding.JSON))
@settings(max_examples=sized(scaled(90), soak=scaled(300)), deadline=None)
def test_what_was_written_is_read_again(message: Message) -> None:
    text = encode(message)
    assert decode(text) == message
    assert encode(decode(text)) == text
    # The same JSON in another order, with line breaks, and everything escaped.
    assert decode(json.dumps(json.loads(text), indent=1, sort_keys=True).encode()) == message


@pytest.mark.parametrize("kind", sorted(DDL_TYPES))
def test_every_ddl_type(kind: MessageType) -> None:
    assert decode(encode(Ddl(kind, "x", 5, 6, TABLE))) == Ddl(kind, "x", 5, 6, TABLE)


def test_every_type_is_of_one_kind() -> None:
    assert sorted([*DML_TYPES, *DDL_TYPES, "WATERMARK", "BOOTSTRAP"]) == sorted(MessageType)


def test_both_generations_are_read() -> None:
    unknown = b'"someLaterMember":{"a":[1.5,true]},'
    for name, sample in MESSAGES.items():
        assert decode(sample.replace(b'"version":1,', b'"version":1,' + unknown)) == decode(sample), name
    ddl = decode(SAMPLES["alter"])
    assert isinstance(ddl, Ddl)
    without = re.sub(rb',"preTableSchema":.*', b"}", SAMPLES["alter"])
    assert decode(without) == msgspec.structs.replace(ddl, pre_table_schema=None)
    explicit = SAMPLES["insert"].replace(
        b'"type"', b'"startTs":0,"handleKeyOnly":false,"old":null,"checksum":null,"type"'
    )
    assert decode(explicit) == decode(SAMPLES["insert"])
    assert decode(SAMPLES["delete"].replace(b'"old"', b'"data":{},"old"')) == decode(SAMPLES["delete"])
    assert decode(SAMPLES["bootstrap"].replace(b'"commitTs":0,', b"")) == decode(SAMPLES["bootstrap"])


def test_times_are_exact_beyond_doubles() -> None:
    text = encode(Watermark(U64_MAX, -(2**63)))
    assert text.endswith(b'"commitTs":18446744073709551615,"buildTs":-9223372036854775808}')
    assert decode(text) == Watermark(U64_MAX, -(2**63))
