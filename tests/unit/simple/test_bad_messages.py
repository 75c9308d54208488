"""Bad messages: cut, of wrong types, out of bounds, nested without end. Each error names message, field, expected type."""

from __future__ import annotations

import json
import re
from types import MappingProxyType
from typing import Any

import cramjam
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import SimpleInvalid, SimpleUnsupported
from headrace.simple.json_codec import decode, decode_schema, encode, encode_schema
from headrace.simple.message import (
    Bootstrap,
    Checksum,
    Ddl,
    Dml,
    Float32,
    Message,
    MessageType,
    UnsignedBigint,
    Watermark,
)
from headrace.simple.schema import Column, DataType, Index, TableSchema
from tests.scale import scaled, sized
from tests.simple import SAMPLES

MESSAGES = {name: sample for name, sample in SAMPLES.items() if name != "table-schema"}
ID = Column("id", DataType("int", "binary", "binary", 11), nullable=False, default=None)
TABLE = TableSchema("db", "t", 7, 9, (ID,), (Index("primary", True, True, False, ("id",)),))


def insert(**more: Any) -> Dml:
    given: dict[str, Any] = {"data": {"id": "1"}, **more}
    return Dml(given.pop("type", MessageType.INSERT), "db", "t", 7, 5, 6, 9, **given)


def refused(data: bytes) -> SimpleInvalid | SimpleUnsupported:
    with pytest.raises((SimpleInvalid, SimpleUnsupported)) as caught:
        decode(data)
    error = caught.value
    assert isinstance(error, SimpleInvalid | SimpleUnsupported)
    assert {"message", "field", "expected"} <= error.members.keys()
    assert all(error.members.values())
    assert error.members["message"] in error.detail
    return error


@pytest.mark.parametrize("name", MESSAGES)
def test_cut_at_every_byte(name: str) -> None:
    whole = MESSAGES[name]
    for size in range(len(whole)):
        assert refused(whole[:size]).members["field"] == "the whole message"
    assert refused(whole + b"}").members["expected"] == "one whole JSON object"
    kind = name.upper()
    assert refused(whole[:-1]).members["message"].startswith(kind)


OTHERS: tuple[Any, ...] = ("text", 1.5, -1, 1 << 70, True, None, [], ["a"], {}, {"a": 1})


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    children: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for name, child in children:
        found += places(child, (*path, name))
    return found


def changed(document: Any, path: tuple[Any, ...], other: Any) -> Any:
    copy = json.loads(json.dumps(document))
    at = copy
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = other
    return copy


@pytest.mark.parametrize("name", MESSAGES)
def test_the_wrong_type_in_every_field(name: str) -> None:
    document = json.loads(MESSAGES[name])
    refusals = 0
    for path in places(document):
        for other in OTHERS:
            data = json.dumps(changed(document, path, other), separators=(",", ":")).encode()
            try:
                message = decode(data)
            except (SimpleInvalid, SimpleUnsupported):
                error = refused(data)
                refusals += 1
                # The error names the member itself, or what it is a member of.
                named = re.sub(r"\[\d+\]", "", error.members["field"])
                words = [step for step in path if isinstance(step, str)]
                assert named in {
                    ".".join(words),
                    *[".".join(words[:end]) for end in range(1, len(words))],
                } or (named.split(".")[0] == words[0])
                continue
            if (name, *path) == ("bootstrap", "commitTs"):
                continue  # it means nothing and is always written as 0
            # Nothing became null silently: what was accepted is written out as it came, or was as good as absent.
            again = json.loads(encode(message))
            at: Any = again
            for step in path:
                at = at.get(step) if isinstance(at, dict) else at[step]
            assert at == other or not other
    assert refusals > 4 * len(places(document))


@pytest.mark.parametrize(
    ("old", "new", "field", "expected"),
    [
        (b'"version":1,', b"", "version", "present"),
        (b'"type":"INSERT",', b"", "type", "present"),
        (b'"type":"INSERT"', b'"type":"DML"', "type", "one of WATERMARK, BOOTSTRAP"),
        (b'"commitTs":447984084414103554,', b"", "commitTs", "an integer"),
        (b'"commitTs":447984084414103554', b'"commitTs":18446744073709551616', "commitTs", "an integer from 0 to"),
        (b'"commitTs":447984084414103554', b'"commitTs":' + b"9" * 4000, "commitTs", "an integer"),
        (b'"commitTs":447984084414103554', b'"commitTs":4.47984084414103554e17', "commitTs", "an integer"),
        (b'"buildTs":1708923662983,', b"", "buildTs", "present"),
        (b'"buildTs":1708923662983', b'"buildTs":"1708923662983"', "buildTs", "an integer"),
        (b'"tableID":148', b'"tableID":9223372036854775808', "tableID", "an integer from -9223372036854775808"),
        (b'"schemaVersion":', b'"schemaVersion":-', "schemaVersion", "an integer from 0"),
        (b'"schemaVersion":4', b'"schemaVersion":1844674407370955161', "schemaVersion", "an integer from 0"),
        (b'"database":"simple",', b"", "database", "the name of a database"),
        (b'"table":"user",', b"", "table", "the name of a table"),
        (b'"age":"25"', b'"age":25', "data.age", "a string, null, or an object"),
        (b'"age":"25"', b'"age":true', "data.age", "a string, null, or an object"),
        (b'"age":"25"', b'"age":{"value":"x"}', "data.age", "a string, null, or an object"),
        (b'"age":"25"', b'"age":{"location":"UTC","value":null}', "data.age", "a string, null, or an object"),
        (b'"age":"25"', b'"age":["25"]', "data.age", "a string, null, or an object"),
        (b'"data":{', b'"old":{"id":"1"},"data":{', "old", "absent in a message of type INSERT"),
        (b',"data":{"age":"25","id":"1","name":"John Doe","score":"90.5"}', b"", "data", "an object with a value"),
        (b'{"age":"25","id":"1","name":"John Doe","score":"90.5"}', b"{}", "data", "an object with a value"),
        (b'"type"', b'"checksum":{"version":0,"corrupted":false,"current":1},"type"', "checksum.previous", "present"),
        (
            b'"type"',
            b'"checksum":{"version":0,"corrupted":false,"current":4294967296,"previous":0},"type"',
            "checksum.current",
            "an integer from 0 to 4294967295",
        ),
        (b'"type"', b'"startTs":-1,"type"', "startTs", "an integer from 0"),
        (b'"John Doe"', b'"John \xff"', "the whole message", "UTF-8"),
        (b'"John Doe"', rb'"John \ud800"', "the whole message", "one whole JSON object"),
    ],
)  # fmt: skip
def test_a_row_that_is_none(old: bytes, new: bytes, field: str, expected: str) -> None:
    assert old in SAMPLES["insert"]
    error = refused(SAMPLES["insert"].replace(old, new, 1))
    assert isinstance(error, SimpleInvalid)
    assert error.members["field"] == field
    assert error.members["expected"].startswith(expected)
    if b"database" not in old and b'"table"' not in old and b'"type":"' not in old:
        assert error.members["message"].startswith("INSERT of simple.user")


@pytest.mark.parametrize(
    ("sample", "old", "new", "field", "expected"),
    [
        ("bootstrap", b'"tableSchema":', b'"x":', "tableSchema", "an object"),
        ("bootstrap", b'"mysqlType":"int",', b"", "tableSchema.columns[0].dataType.mysqlType", "present"),
        ("bootstrap", b'"version":4', b'"version":-4', "tableSchema.version", "an integer from 0"),
        ("bootstrap", b'"length":11', b'"length":9223372036854775808', "tableSchema.columns[0].dataType.length", "an int"),
        ("bootstrap", b'"default":null', b'"default":-1', "tableSchema.columns[0].default", "an integer from 0"),
        ("bootstrap", b'"default":null', b'"default":true', "tableSchema.columns[0].default", "a string, an integer or"),
        ("bootstrap", b'"columns":["id"]', b'"columns":null', "tableSchema.indexes[0].columns", "an array"),
        ("alter", b'"preTableSchema":{', b'"preTableSchema":[],"x":{', "preTableSchema", "an object or null"),
        ("alter", b'"commitTs":447987408682614795,', b"", "commitTs", "an integer"),
        ("watermark", b'"commitTs":447984124732375041,', b"", "commitTs", "an integer"),
        ("watermark", b'"type"', b'"data":{"a":"1"},"type"', "data", "absent in a message of type WATERMARK"),
        ("alter", b'"type"', b'"old":{"a":"1"},"type"', "old", "absent in a message of type ALTER"),
        ("delete", b'"old"', b'"data":{"a":"1"},"old"', "data", "absent in a message of type DELETE"),
        ("update", b'"old"', b'"former"', "old", "an object with a value"),
    ],
)  # fmt: skip
def test_other_messages_that_are_none(sample: str, old: bytes, new: bytes, field: str, expected: str) -> None:
    assert old in SAMPLES[sample]
    error = refused(SAMPLES[sample].replace(old, new, 1))
    assert error.members["field"] == field
    assert error.members["expected"].startswith(expected)
    assert error.members["message"].startswith(sample.upper())


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (SAMPLES["insert"].replace(b'"version":1', b'"version":2'), "version"),
        (SAMPLES["insert"].replace(b'"version":1', b'"version":' + b"9" * 400), "version"),
        (
            SAMPLES["insert"].replace(b'"type"', b'"claimCheckLocation":"s3://b/x.json","type"'),
            "claimCheckLocation",
        ),
        (SAMPLES["insert"].replace(b'"type"', b'"handleKeyOnly":true,"type"'), "handleKeyOnly"),
    ],
    ids=["version", "huge version", "claim check", "handle key only"],
)
def test_features_that_are_not_read(data: bytes, field: str) -> None:
    error = refused(data)
    assert isinstance(error, SimpleUnsupported)
    assert error.members["field"] == field


@pytest.mark.parametrize("name", MESSAGES)
def test_compressed_messages_are_told_as_such(name: str) -> None:
    for compress in (cramjam.snappy.compress_raw, cramjam.lz4.compress):
        error = refused(bytes(compress(MESSAGES[name])))
        assert isinstance(error, SimpleUnsupported)
        assert "large-message-handle-compression" in error.detail


def test_json_that_is_none_is_not_taken_for_compressed() -> None:
    assert isinstance(refused(b'{"a":[{"version":1,'), SimpleInvalid)


def test_handle_key_only_without_a_row_is_told_as_such() -> None:
    data = SAMPLES["insert"].replace(b'"data":{', b'"handleKeyOnly":true,"x":{')
    assert isinstance(refused(data), SimpleUnsupported)


@pytest.mark.parametrize(
    "data", [b"", b"null", b"[]", b"1", b'"x"', b"{}", b"\x16\x00", b"\xff\xfe", b"{" * 9, b"nul"]
)
def test_what_is_no_message_at_all(data: bytes) -> None:
    assert isinstance(refused(data), SimpleInvalid)


@pytest.mark.parametrize("open_bracket", [b"[", b'{"a":'])
@pytest.mark.parametrize("member", [b'"data":', b'"x":', b'"tableSchema":', b'"data":{"a":'])
def test_nested_without_end(member: bytes, open_bracket: bytes) -> None:
    for depth in (900, 200_000):
        error = refused(b'{"version":1,"type":"INSERT",' + member + open_bracket * depth)
        assert error.members["message"] == "INSERT"
        if member == b'"x":' and depth > 900:
            assert error.members["expected"] == "one JSON object, a few levels deep"
    closed = {b"[": b"]", b'{"a":': b"}"}[open_bracket]
    inner = open_bracket * 5000 + b"1" + closed * 5000
    refused(b'{"version":1,"type":"INSERT",' + member + inner + (b"}" if member.count(b"{") else b"") + b"}")


@given(st.sampled_from(sorted(MESSAGES)), st.data())
@settings(max_examples=sized(scaled(150), soak=scaled(500)), deadline=None)
def test_damaged_bytes_are_a_message_or_a_clear_error(name: str, data: st.DataObject) -> None:
    damaged = bytearray(MESSAGES[name])
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = decode(bytes(damaged))
    except (SimpleInvalid, SimpleUnsupported):
        refused(bytes(damaged))
    else:
        assert decode(encode(message)) == message


MEMBERS = (
    "version", "database", "table", "tableID", "type", "sql", "commitTs", "startTs", "buildTs", "schemaVersion",
    "claimCheckLocation", "handleKeyOnly", "checksum", "data", "old", "tableSchema", "preTableSchema", "other",
)  # fmt: skip
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(sorted(MessageType)),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["location", "value", "columns", "a"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.lists(st.tuples(st.sampled_from(MEMBERS), anything), max_size=6))
@settings(max_examples=sized(scaled(150), soak=scaled(500)), deadline=None)
def test_members_of_any_kind_and_number(given: list[tuple[str, Any]]) -> None:
    beginning = [
        ("version", 1),
        ("type", "INSERT"),
        ("commitTs", 5),
        ("buildTs", 6),
        ("database", "d"),
        ("table", "t"),
    ]
    for first in (beginning, []):
        text = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in [*first, *given])
        data = f"{{{text}}}".encode()
        try:
            message = decode(data)
        except (SimpleInvalid, SimpleUnsupported):
            refused(data)
        else:
            assert decode(encode(message)) == message


def test_a_schema_alone_that_is_none() -> None:
    whole = SAMPLES["table-schema"]
    for old, new, field in (
        (b'"tableID":148', b'"tableID":"148"', "tableID"),
        (b'"version":', b'"version":-', "version"),
        (b'"mysqlType":"int",', b"", "columns[0].dataType.mysqlType"),
        (whole, whole[:-1], "the whole message"),
    ):
        with pytest.raises(SimpleInvalid) as caught:
            decode_schema(whole.replace(old, new, 1))
        assert caught.value.members["field"] == field
        assert "schema" in caught.value.members["message"]
    with pytest.raises(SimpleInvalid):
        encode_schema(msgspec.structs.replace(TABLE, version=-1))


def test_a_member_that_is_there_twice() -> None:
    for row in (b"[]", b'{"a":"1"}', b"null"):
        error = refused(SAMPLES["insert"][:-1] + b',"data":{"a":1},"data":' + row + b"}")
        assert error.members["field"] == "data"


# What can't be written.


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (insert(data={"id": 1}), "data.id"),
        (insert(data={"id": 1.5}), "data.id"),
        (insert(data={"id": Float32(1.5)}), "data.id"),
        (insert(data={"id": b"x"}), "data.id"),
        (insert(data={"id": True}), "data.id"),
        (insert(data={"id": UnsignedBigint(1)}), "data.id"),
        (insert(data=None), "data"),
        (insert(data={}), "data"),
        (insert(old={"id": "1"}), "old"),
        (insert(type=MessageType.UPDATE), "old"),
        (insert(type=MessageType.DELETE, old={"id": "1"}), "data"),
        (insert(type=MessageType.ALTER), "type"),
        (insert(data={"id": "\ud800"}), "data.id"),
        (insert(data={"\ud800": "x"}), r"the name '\ud800' in data"),
        (insert(start_ts=1 << 64), "startTs"),
        (insert(checksum=Checksum(0, False, -1, 0)), "checksum.current"),
        (msgspec.structs.replace(insert(), commit_ts=1 << 64), "commitTs"),
        (msgspec.structs.replace(insert(), database=""), "database"),
        (Watermark(-1, 0), "commitTs"),
        (Watermark(0, 1 << 63), "buildTs"),
        (Ddl(MessageType.INSERT, "x", 5, 6), "type"),
        (Ddl(MessageType.ALTER, "\udcff", 5, 6), "sql"),
        (Ddl(MessageType.ALTER, "x", 5, 6, msgspec.structs.replace(TABLE, version=-1)), "tableSchema.version"),
        (Bootstrap(6, msgspec.structs.replace(TABLE, table="\udcff")), "tableSchema.table"),
    ],
)  # fmt: skip
def test_what_the_form_cannot_carry(message: Message, field: str) -> None:
    with pytest.raises(SimpleInvalid) as caught:
        encode(message)
    assert caught.value.members["field"] == field
    assert caught.value.members["message"]
    assert caught.value.members["expected"]


def test_any_mapping_is_a_row() -> None:
    assert encode(insert(data=MappingProxyType({"id": "1"}))) == encode(insert())
