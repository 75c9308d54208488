"""The Avro form: reference vectors byte for byte, the short way of rows beside the long one, what each type becomes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import SimpleInvalid
from headrace.simple import avro_rows
from headrace.simple.avro_codec import decode, encode
from headrace.simple.avro_read import read_message
from headrace.simple.avro_rows import learn_to_read, learn_to_write, row_bytes, row_message
from headrace.simple.avro_schema import RECORDS, SCHEMA
from headrace.simple.avro_write import write_message
from headrace.simple.message import (
    DDL_TYPES,
    Bootstrap,
    Checksum,
    Ddl,
    Dml,
    Float32,
    Message,
    MessageType,
    Raw,
    RawRow,
    Timestamp,
    UnsignedBigint,
    Watermark,
)
from headrace.simple.schema import Column, DataType, Index, TableSchema
from headrace.simple.values import Encoding, RowTypes
from tests.scale import scaled, sized
from tests.simple import U64_MAX, dmls, i64s, messages, u64s

TIMES = (447984084414103554, 1708923662983, 447984074911121426)
INSERT_START = "160606020c73696d706c650875736572a802008480c088d7c9c7b70c8ecacdbcbc63a480e0a190c9c7b70c000000"
VALUES: dict[str, Raw] = {
    "0209": -5,
    "040000b542": Float32(90.5),
    "06ae47e17a14ae0540": 2.71,
    "080a68c3a9c3a9": "héé",
    "0a0400ff": b"\x00\xff",
    "0c0655544326323032302d30322d32302031303a32303a3230": Timestamp("UTC", "2020-02-20 10:20:20"),
    "0e01": UnsignedBigint(U64_MAX),
    "0effffffffffffffffff01": UnsignedBigint(1 << 63),
    "00": None,
}
ID = Column("id", DataType("int", "binary", "binary", 11), nullable=False, default=None)


def row(data: RawRow | None = None, old: RawRow | None = None, **more: Any) -> Dml:
    kind = MessageType.UPDATE if data and old else MessageType.DELETE if old else MessageType.INSERT
    return Dml(kind, "simple", "user", 148, *TIMES, data, old, **more)


def table(*columns: Column) -> TableSchema:
    return TableSchema("db", "t", 7, U64_MAX, columns, (Index("primary", True, True, False, ("id",)),))


def column_type(mysql_type: str, **more: Any) -> bytes:
    """The bytes of a column's type behind its length: decimal, elements, unsigned, zerofill."""
    of = DataType(mysql_type, "", "", 0, **more)
    data = encode(
        Bootstrap(0, TableSchema("", "", 0, 0, (Column("c", of, nullable=True, default=None),), ()))
    )
    return data[data.index(mysql_type.encode()) + len(mysql_type) + 3 : -4]


def raw_types(message: Message) -> list[type]:
    if not isinstance(message, Dml):
        return []
    return [type(value) for found in (message.data, message.old) for value in (found or {}).values()]


@pytest.mark.parametrize(
    ("message", "vector"),
    [
        (
            Watermark(447984124732375041, 1708923816911),
            "16000002828080bb83ccc7b70c9eafe0bcbc63",
        ),
        (
            Ddl(MessageType.QUERY, "DROP DATABASE x", 5, 6),
            "160404020e1e44524f5020444154414241534520780a0c0000",
        ),
        *((row({"a": value}), f"{INSERT_START}02020261{end}0000") for end, value in VALUES.items()),
    ],
    ids=lambda value: value[-12:] if isinstance(value, str) else "",
)
def test_reference_vectors(message: Message, vector: str) -> None:
    for _ in range(2):  # the first time the long way, then the short one
        assert encode(message).hex() == vector
        found = decode(bytes.fromhex(vector))
        assert found == message
        assert raw_types(found) == raw_types(message)


@settings(max_examples=sized(scaled(90), soak=scaled(300)))
@given(messages(Encoding.AVRO))
def test_every_message_comes_back(message: Message) -> None:
    for _ in range(2):
        found = decode(encode(message))
        assert found == message
        assert raw_types(found) == raw_types(message)


usual_times = st.tuples(
    st.integers(1 << 55, (1 << 62) - 1),
    st.integers(1 << 34, (1 << 41) - 1),
    st.integers(1 << 55, (1 << 62) - 1),
)


@settings(max_examples=sized(scaled(90), soak=scaled(300)))
@given(dmls(Encoding.AVRO), usual_times, st.booleans())
def test_the_short_way_is_taken_and_leads_to_the_same(
    generated: tuple[TableSchema, Dml], times: tuple[int, int, int], is_wide: bool
) -> None:
    message = generated[1]
    commit_ts, build_ts, version = times
    message = msgspec.structs.replace(message, commit_ts=commit_ts, build_ts=build_ts, schema_version=version)
    if is_wide and message.data is not None:
        message = msgspec.structs.replace(
            message, data={**message.data, **{f"c{n}": n * n for n in range(70)}}
        )
    data = write_message(message)
    learn_to_write(message)
    learn_to_read(data, message)
    if message.checksum is None:
        assert row_bytes(message) == data
    found = row_message(data)
    assert found == read_message(data) == message
    assert raw_types(found) == raw_types(message)


@settings(max_examples=sized(scaled(60), soak=scaled(200)))
@given(u64s, i64s, u64s, st.integers(0, 20000))
def test_numbers_and_lengths_of_every_size(commit_ts: int, build_ts: int, version: int, length: int) -> None:
    data: dict[str, Raw] = {
        "n": build_ts,
        "u": UnsignedBigint(version),
        "s": "x" * length,
        "b": b"y" * length,
    }
    message = Dml(MessageType.INSERT, "db", "t", build_ts, commit_ts, build_ts, version, data)
    for _ in range(2):
        assert decode(encode(message)) == message


def test_what_is_known_by_heart_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_rows, "KNOWN_MAX", 4)
    for number in range(20):
        message = msgspec.structs.replace(row({f"c{number}": 1, f"d{number}": "x"}), table_id=number)
        assert decode(encode(message)) == message
        for known in ("_heads", "_entries", "_heads_read", "_entries_read"):
            assert len(getattr(avro_rows, known)) <= 4


def test_names_longer_than_a_byte_says() -> None:
    message = Dml(MessageType.INSERT, "d" * 64, "t" * 200, 1, *TIMES, {"列" * 64: 1, "c" * 64: "x"})
    for _ in range(2):
        assert decode(encode(message)) == message


def test_a_row_with_its_checksum() -> None:
    message = row({"a": 1}, {"a": 2}, checksum=Checksum(1, True, (1 << 32) - 1, 0))
    data = encode(message)
    assert data.hex().startswith(INSERT_START[:36] + "02")  # an UPDATE
    assert bytes.fromhex("0002 02 01 feffffff1f 00 02").hex() in data.hex()
    assert decode(data) == message


def test_all_ddl_types() -> None:
    for kind in DDL_TYPES:
        message = Ddl(kind, "x", U64_MAX, -1, table(ID), table(ID))
        assert decode(encode(message)) == message


@pytest.mark.parametrize("mysql_type", ["tinyint", "int", "bigint", "float", "double"])
def test_flags_of_numbers_are_written_even_if_false(mysql_type: str) -> None:
    assert column_type(mysql_type).hex() == "0000" + "0200" + "0200"
    assert column_type(mysql_type, unsigned=True, zerofill=True).hex() == "0000" + "0201" + "0201"


def test_flags_of_bit_and_year() -> None:
    assert column_type("bit", unsigned=True).hex() == "0000" + "0201" + "0200"
    assert column_type("year", unsigned=True, zerofill=True).hex() == "0000" + "0201" + "0201"


@pytest.mark.parametrize("mysql_type", ["datetime", "time", "timestamp"])
def test_decimal_of_times_is_their_fraction(mysql_type: str) -> None:
    assert column_type(mysql_type, decimal=6).hex() == "020c" + "00" + "0000"
    assert column_type(mysql_type).hex() == "0200" + "00" + "0000"


def test_decimal_of_others() -> None:
    assert column_type("decimal").hex() == "0200" + "00" + "0200" + "0200"
    assert column_type("varchar").hex() == "00" + "00" + "0000"
    assert column_type("var_string", decimal=-1).hex() == "0201" + "00" + "0000"


def test_elements() -> None:
    assert column_type("enum", elements=("a", "b")).hex() == "00" + "0204" + "02610262" + "00" + "0000"


@pytest.mark.parametrize(
    ("default", "length", "written"),
    [
        (0b1010101010, 10, "0204" + "02aa"),
        (0, 1, "020200"),
        (1, 16, "02040001"),
        (U64_MAX, 64, "0210" + "ff" * 8),
        (300, 1, "0204012c"),
        (None, 1, "00"),
    ],
)
def test_the_default_of_a_bit_is_its_bytes(default: int | None, length: int, written: str) -> None:
    bit = Column(
        "b", DataType("bit", "binary", "binary", length, unsigned=True), nullable=True, default=default
    )
    message = Bootstrap(6, TableSchema("db", "t", 7, 9, (bit,), ()))
    data = encode(message)
    assert data.hex().endswith("02010200" + "01" + written + "00" + "00")
    assert decode(data) == message


@pytest.mark.parametrize("raw", ["5", 5], ids=["digits", "long"])
def test_bits_are_read_in_both_of_their_forms_and_written_as_digits(raw: Raw) -> None:
    bit = Column("b", DataType("bit", "binary", "binary", 4, unsigned=True), nullable=True, default=None)
    types = RowTypes(TableSchema("simple", "user", 148, TIMES[2], (bit,), ()), Encoding.AVRO)
    message = decode(encode(row({"b": raw})))
    assert isinstance(message, Dml)
    assert types.read(message) == {"b": 5}
    assert types.write({"b": 5}, "a row") == {"b": "5"}


def test_a_set_of_64_labels_wraps() -> None:
    labels = tuple(f"l{n}" for n in range(64))
    of = Column(
        "s", DataType("set", "utf8mb4", "utf8mb4_bin", 64, elements=labels), nullable=True, default=None
    )
    types = RowTypes(TableSchema("simple", "user", 148, TIMES[2], (of,), ()), Encoding.AVRO)
    raw = types.write({"s": frozenset(["l63", "l0"])}, "a row")
    data = encode(row(raw))
    assert data.hex().endswith("0273" + "02" + "fdffffffffffffffff01" + "0000")
    message = decode(data)
    assert isinstance(message, Dml)
    assert types.read(message) == {"s": frozenset(["l63", "l0"])}


def test_absent_images_may_be_empty_maps() -> None:
    data = encode(row({"a": 1}))
    assert decode(data[:-1] + b"\x02\x00") == row({"a": 1})
    data = encode(row(None, {"a": 1}))
    assert decode(data[:-8] + b"\x02\x00" + data[-7:]) == row(None, {"a": 1})


def test_bytes_behind_the_message_are_ignored() -> None:
    for message in (
        row({"a": 1}),
        row({"a": 1}, {"a": "x"}),
        Watermark(5, 6),
        Ddl(MessageType.QUERY, "x", 1, 2),
        Bootstrap(1, table(ID)),
    ):
        for _ in range(2):
            assert decode(encode(message) + b"more") == message


def test_handle_key_only_may_say_false_and_a_claim_check_be_empty() -> None:
    start, end = bytes.fromhex(INSERT_START[:-6]), bytes.fromhex("0002020261020200" + "00")
    assert decode(start + b"\x02\x00" + b"\x02\x00" + end) == row({"a": 1})


@pytest.mark.parametrize(
    ("message", "field", "expected"),
    [
        (row({"a": 1 << 63}), "data.a", "an integer from -9223372036854775808 to 9223372036854775807"),
        (row({"a": UnsignedBigint(-1)}), "data.a.value", "an integer from 0 to 18446744073709551615"),
        (row({"a": UnsignedBigint(1.5)}), "data.a.value", None),  # type: ignore[arg-type]  # what callers do wrong
        (row({"a": UnsignedBigint(1 << 64)}), "data.a.value", "an integer from 0 to 18446744073709551615"),
        (row({"a": Float32(1e300)}), "data.a", "a number of single precision"),
        (row({"a": True}), "data.a", None),
        (row({"a": 1}, {"b": [1]}), "old.b", None),  # type: ignore[dict-item]  # what callers do wrong
        (row({"a": "\ud800"}), "data.a", "Unicode text"),
        (row({"a": Timestamp("\ud800", "")}), "data.a.location", "Unicode text"),
        (row({"a": Timestamp("", "\ud800")}), "data.a.value", "Unicode text"),
        (row({"\ud800": 1}), "the name '\\ud800' in data", "Unicode text"),
        (row({"a": 1}, start_ts=4), "startTs", None),
        (row({}), "data", None),
        (row({"a": 1}, checksum=Checksum(1, False, 1 << 32, 0)), "checksum.current", None),
        (msgspec.structs.replace(row({"a": 1}), commit_ts=1 << 64), "commitTs", None),
        (msgspec.structs.replace(row({"a": 1}), schema_version=-1), "schemaVersion", None),
        (msgspec.structs.replace(row({"a": 1}), build_ts=1 << 63), "buildTs", None),
        (msgspec.structs.replace(row({"a": 1}), table_id=1 << 63), "tableID", None),
        (msgspec.structs.replace(row({"a": 1}), database="\ud800"), "database", "Unicode text"),
        (msgspec.structs.replace(row({"a": 1}), type=MessageType.DELETE), "data", None),
        (msgspec.structs.replace(row({"a": 1}), type=MessageType.UPDATE), "old", None),
        (Watermark(-1, 6), "commitTs", None),
        (Ddl(MessageType.ALTER, "\ud800", 5, 6), "sql", "Unicode text"),
        (
            Bootstrap(1, table(msgspec.structs.replace(ID, default=5))),
            "tableSchema.columns[0].default",
            "a string",
        ),
        (
            Bootstrap(1, table(Column("b", DataType("bit", "", "", 1), nullable=True, default="1"))),
            "tableSchema.columns[0].default",
            "an integer, as that of every BIT",
        ),
        (
            Bootstrap(1, table(msgspec.structs.replace(ID, name="\ud800"))),
            "tableSchema.columns[0].name",
            "Unicode text",
        ),
        (
            Bootstrap(1, table(Column("e", DataType("enum", "", "", 1, 0, ("a", "\ud800")), True, None))),
            "tableSchema.columns[0].dataType.elements[1]",
            "Unicode text",
        ),
    ],
)
def test_what_can_not_be_written(message: Message, field: str, expected: str | None) -> None:
    for _ in range(2):
        with pytest.raises(SimpleInvalid) as caught:
            encode(message)
        assert caught.value.members["field"] == field
        if expected is not None:
            assert caught.value.members["expected"] == expected


def test_the_schema_is_a_union_of_named_records_that_json_can_carry() -> None:
    schema = json.loads(json.dumps(SCHEMA))
    assert tuple(record["name"] for record in schema) == RECORDS
    assert {record["namespace"] for record in schema} == {"com.pingcap.simple.avro"}
