"""Bytes that are no message in Avro: an error that names message, field and expected type, whatever they are."""

from __future__ import annotations

import tracemalloc

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import SimpleInvalid, SimpleUnsupported
from headrace.simple import json_codec
from headrace.simple.avro_codec import decode, encode
from headrace.simple.avro_read import read_message
from headrace.simple.avro_rows import UNUSUAL, row_message
from headrace.simple.avro_varint import long_bytes
from headrace.simple.message import (
    Bootstrap,
    Checksum,
    Ddl,
    Dml,
    Float32,
    Message,
    MessageType,
    Raw,
    Timestamp,
    UnsignedBigint,
    Watermark,
)
from headrace.simple.schema import Column, DataType, Index, TableSchema
from headrace.simple.values import Encoding
from tests.scale import scaled, sized
from tests.simple import messages

ID = Column("id", DataType("int", "binary", "binary", 11), nullable=False, default=None)
LABEL = Column("e", DataType("enum", "utf8", "utf8_bin", 3, 0, ("a", "bc")), nullable=True, default="bc")
BITS = Column("b", DataType("bit", "binary", "binary", 10, unsigned=True), nullable=True, default=682)
TABLE = TableSchema("db", "t", 7, 9, (ID, LABEL, BITS), (Index("primary", True, True, False, ("id",)),))
TIMES = (447984084414103554, 1708923662983, 447984074911121426)
ROW: dict[str, Raw] = {
    "id": -5,
    "far": 1 << 40,
    "f": Float32(90.5),
    "d": 2.71,
    "s": "héé",
    "long": "x" * 100,
    "b": b"\x00\xff",
    "t": Timestamp("UTC", "2020-02-20 10:20:20"),
    "u": UnsignedBigint(1 << 63),
    "n": None,
}
INSERT = Dml(MessageType.INSERT, "db", "t", 7, *TIMES, ROW)
UPDATE = Dml(MessageType.UPDATE, "db", "t", 7, *TIMES, ROW, {"id": 1}, Checksum(1, False, 5, 6))
MESSAGES: dict[str, Message] = {
    "watermark": Watermark(TIMES[0], TIMES[1]),
    "bootstrap": Bootstrap(TIMES[1], TABLE),
    "ddl": Ddl(MessageType.ALTER, "ALTER TABLE t", TIMES[0], TIMES[1], TABLE, TABLE),
    "insert": INSERT,
    "update": UPDATE,
}
HEAD = encode(Dml(MessageType.INSERT, "db", "t", 7, *TIMES, {"": None}))[:-9]
"""A row's message up to its schemaVersion."""
FIELDS = b"\x00\x00\x00\x02"
"""No claim check, no handleKeyOnly, no checksum, but data."""
NAME = "INSERT of db.t at commitTs 447984084414103554"


@pytest.fixture(autouse=True)
def _known_by_heart() -> None:
    """The table, and a column of every type: the short way goes as far as it can."""
    for value in ROW.values():
        for data, old in (({"id": value}, None), (None, {"id": value}), ({"id": value}, {"id": value})):
            kind = (
                MessageType.DELETE
                if data is None
                else MessageType.INSERT
                if old is None
                else MessageType.UPDATE
            )
            decode(encode(Dml(kind, "db", "t", 7, *TIMES, data, old)))


def refused(data: bytes) -> SimpleInvalid | SimpleUnsupported:
    with pytest.raises((SimpleInvalid, SimpleUnsupported)) as caught:
        decode(data)
    error = caught.value
    assert isinstance(error, SimpleInvalid | SimpleUnsupported)
    assert all(error.members[name] for name in ("message", "field", "expected"))
    return error


def outcome(data: bytes) -> str:
    """What becomes of ``data``, as text (a NaN is not equal to itself): a message, on both ways the same, or an error."""
    try:
        found = repr(decode(data))
    except (SimpleInvalid, SimpleUnsupported):
        return type(refused(data)).__name__
    assert found == repr(read_message(data))
    return found


@pytest.mark.parametrize("kind", MESSAGES)
def test_cut_at_every_byte(kind: str) -> None:
    data = encode(MESSAGES[kind])
    assert decode(data) == MESSAGES[kind]
    for end in range(len(data)):
        assert outcome(data[:end]) == "SimpleInvalid"


@pytest.mark.parametrize("kind", MESSAGES)
def test_every_bit_flipped_and_every_byte_at_its_limits(kind: str) -> None:
    data = encode(MESSAGES[kind])
    assert decode(data) == MESSAGES[kind]
    for place, byte in enumerate(data):
        for other in (*(byte ^ 1 << bit for bit in range(8)), 0x00, 0x7F, 0x80, 0xFF):
            outcome(data[:place] + bytes([other]) + data[place + 1 :])


@settings(max_examples=sized(scaled(90), soak=scaled(300)))
@given(st.binary(max_size=300), st.sampled_from([b"", b"\x16", b"\x16\x06\x06\x02", HEAD, HEAD + FIELDS]))
def test_any_bytes(data: bytes, start: bytes) -> None:
    outcome(start + data)


@settings(max_examples=sized(scaled(150), soak=scaled(500)))
@given(messages(Encoding.AVRO), st.data())
def test_messages_with_pieces_changed_put_in_and_taken_out(message: Message, draw: st.DataObject) -> None:
    data = encode(message)
    for _ in range(draw.draw(st.integers(1, 4))):
        start = draw.draw(st.integers(0, len(data)))
        end = draw.draw(st.integers(start, min(len(data), start + 4)))
        data = data[:start] + draw.draw(st.binary(max_size=4)) + data[end:]
    found = outcome(data)
    try:
        short = row_message(data)
    except UNUSUAL:
        return
    assert repr(short) == found  # what the short way takes, the long one takes too


ENTRY = b"\x02\x04id"


@pytest.mark.parametrize(
    ("tail", "field", "expected", "found"),
    [
        (FIELDS + ENTRY + b"\x10", "data.id", "one of null, long, float, double", "number 8 of 8"),
        (FIELDS + ENTRY + b"\x01", "data.id", "one of null, long, float, double", "number -1 of 8"),
        (FIELDS + ENTRY + b"\x02" + b"\x80" * 10, "data.id", "a long", "more than 64 bits"),
        (FIELDS + ENTRY + b"\x02" + b"\xff" * 9 + b"\x02", "data.id", "a long", "more than 64 bits"),
        (FIELDS + ENTRY + b"\x02" + b"\xff" * 9, "data.id", "a long", "cut off"),
        (FIELDS + ENTRY + b"\x08\x04\xff\xfe\x00\x00", "data.id", "a string in UTF-8", "the byte 0xff"),
        (FIELDS + ENTRY + b"\x08\x03\x00\x00", "data.id", "a string of a length from 0", "of the length -2"),
        (FIELDS + ENTRY + b"\x08\x7f", "data.id", "a string of a length from 0", "of the length -64"),
        (FIELDS + ENTRY + b"\x0a" + long_bytes(1 << 62), "data.id", "bytes within the message", "0 are left"),
        (FIELDS + ENTRY + b"\x04\x00\x00", "data.id", "a float of 4 bytes", "cut off"),
        (FIELDS + ENTRY + b"\x06\x00\x00", "data.id", "a double of 8 bytes", "cut off"),
        (FIELDS + ENTRY + b"\x0c\x06UTC\x04", "data.id.value", "a string", "2 bytes where 0 are left"),
        (FIELDS + ENTRY + b"\x0e", "data.id.value", "unsigned", "cut off"),
        (FIELDS + b"\x04\x04id\x00\x04id\x02\x0a\x00\x00", "data.id", "there once", "there twice"),
        (FIELDS + b"\x02\x04id\x00\x02\x04id\x00\x00\x00", "data.id", "there once", "there twice"),
        (FIELDS + b"\x02\x04\xff\xff\x00", "the name of column 0 in data", "a string in UTF-8", "0xff"),
        (FIELDS + long_bytes(1 << 40), "data", "a number of columns", "1099511627776 of them"),
        (FIELDS + long_bytes(-(1 << 63)) + b"\x00", "data", "a number of columns", "of them where"),
        (FIELDS + b"\x01\x7f\x04id\x00\x00", "data", "a block within the message", "-64 bytes"),
        (FIELDS + b"\x01\x40\x04id\x00\x00", "data", "a block within the message", "32 bytes where"),
        (
            FIELDS + b"\x01\x06\x04id\x00\x00\x00",
            "data",
            "a block of the size that it gives",
            "one that ends",
        ),
        (FIELDS + b"\x00\x00", "data", "a value for each column", "nothing"),
        (FIELDS + b"\x00\x00\x00\x00", "data", "a value for each column", "nothing"),
        (b"\x00\x00\x00\x00\x00", "data", "a value for each column", "nothing"),
        (FIELDS + ENTRY + b"\x02\x02\x00" + b"\x02\x02\x02a\x00\x00", "old", "absent", "a row"),
        (b"\x00\x00\x00\x04", "data", "one of null, map", "number 2 of 2"),
        (b"\x00\x02\x02", "handleKeyOnly", "a boolean (0 or 1)", "the byte 0x02"),
        (b"\x00\x00\x02" + long_bytes(1 << 31), "checksum.version", "an int of 32 bits", "2147483648"),
        (
            b"\x00\x00\x02\x02\x00\x01\x00" + FIELDS[3:] + ENTRY + b"\x00\x00\x00",
            "checksum.current",
            "",
            "-1",
        ),
        (
            b"\x00\x00\x02\x02\x00"
            + long_bytes(1 << 32)
            + b"\x00"
            + FIELDS[3:]
            + ENTRY
            + b"\x02\x00\x00\x00",
            "checksum.current",
            "",
            "4294967296",
        ),
        (
            b"\x00\x00\x02\x02\x02\x00\x00" + FIELDS[3:] + ENTRY + b"\x02\x00\x00\x00",
            "checksum.corrupted",
            "a boolean (0 or 1)",
            "the byte 0x02",
        ),
    ],
)
def test_what_is_wrong_with_a_row(tail: bytes, field: str, expected: str, found: str) -> None:
    error = refused(HEAD + tail)
    assert isinstance(error, SimpleInvalid)
    assert error.members["message"] == NAME
    assert error.members["field"] == field
    assert expected in error.members["expected"]
    assert str(error).startswith(f"{NAME}: {field} must be ")
    assert found in str(error)


@pytest.mark.parametrize(
    ("tail", "field"),
    [
        (b"\x02\x06s3:", "claimCheckLocation"),
        (b"\x00\x02\x01", "handleKeyOnly"),
        (b"\x02\x06s3:\x02\x01", "claimCheckLocation"),
    ],
)
def test_large_rows_are_not_read(tail: bytes, field: str) -> None:
    error = refused(HEAD + tail + b"\x00\x00\x00")
    assert isinstance(error, SimpleUnsupported)
    assert (error.members["message"], error.members["field"]) == (NAME, field)


@pytest.mark.parametrize("version", [0, 2, -1, 1 << 30])
@pytest.mark.parametrize("kind", MESSAGES)
def test_other_versions(kind: str, version: int) -> None:
    data = encode(MESSAGES[kind])
    error = refused(data[:3] + long_bytes(version) + data[4:])
    assert isinstance(error, SimpleUnsupported)
    assert error.members["field"] == "version"
    assert f"{version} is a version" in str(error)


@pytest.mark.parametrize(
    ("data", "looks_like"),
    [
        (b"\x00\x00\x00\x00\x07" + encode(INSERT), "Confluent"),
        (b"\x00", "Confluent"),
        (b"Obj\x01\x04\x14avro.codec", "an Avro file (object container)"),
        (b"\xc3\x01\x00\x00\x00\x00\x00\x00\x00\x00" + encode(INSERT), "framed as a single object"),
        (bytes(cramjam.lz4.compress(encode(INSERT))), "large-message-handle-compression (LZ4)"),
        (bytes(cramjam.gzip.compress(encode(INSERT))), "compressed (gzip)"),
        (bytes(cramjam.zstd.compress(encode(INSERT))), "compressed (Zstandard)"),
        *(
            (bytes(cramjam.snappy.compress_raw(encode(message))), "large-message-handle-compression (Snappy)")
            for message in MESSAGES.values()
        ),
    ],
    ids=str,
)
def test_frames_and_compression_are_told_apart(data: bytes, looks_like: str) -> None:
    error = refused(data)
    assert isinstance(error, SimpleUnsupported)
    assert looks_like in str(error)
    assert error.members["field"] == "the whole message"


@pytest.mark.parametrize(
    ("data", "field", "found"),
    [
        (json_codec.encode(Watermark(5, 6)), "the whole message", "in JSON"),
        (b"", "the record", "cut off at byte 0"),
        (b"\x0a\x02\x00\x00", "the record", "not Watermark"),
        (b"\x18", "the record", "number 12 of 12"),
        (b"\x16\x08", "type", "number 4 of 4"),
        (b"\x16\x00\x02", "payload", "not that of a BOOTSTRAP"),
        (b"\x16\x00\x00\x02" + b"\xff" * 10, "commitTs", "more than 64 bits"),
        (b"\x16\x04\x04\x02\x10", "type", "number 8 of 8"),
        (b"\x16\x06\x06\x02\x04db\x02t\x0e\x06", "type", "number 3 of 3"),
        (encode(INSERT).replace(b"\x04db", b"\x00"), "database", "nothing"),
        (b"\x16\x02\x02\x02\x00\x04\xc3\x28", "tableSchema.database", "0xc3"),
    ],
    ids=str,
)
def test_what_is_no_message(data: bytes, field: str, found: str) -> None:
    error = refused(data)
    assert isinstance(error, SimpleInvalid)
    assert error.members["field"] == field
    assert found in str(error)


def test_faults_in_schemas_name_the_column() -> None:
    data = encode(Bootstrap(6, TABLE))
    bits = b"\x04\x02\xaa"
    error = refused(data.replace(bits, b"\x12" + b"\xff" * 9))
    assert error.members["message"] == "BOOTSTRAP of db.t"
    assert error.members["field"] == "tableSchema.columns[2].default"
    error = refused(data.replace(b"\x04bc\x00", b"\x04\xff\xff\x00", 1))
    assert error.members["field"] == "tableSchema.columns[1].dataType.elements[1]"
    error = refused(data.replace(b"\x04id\x00\x00", b"\x04id\x00\x01", 1))
    assert error.members["field"] == "tableSchema.indexes"


@pytest.mark.parametrize("count", [1 << 20, 1 << 40, (1 << 63) - 1, -(1 << 63)])
def test_huge_counts_and_lengths_take_no_memory(count: int) -> None:
    number = long_bytes(count)
    tracemalloc.start()
    try:
        for data in (
            HEAD + FIELDS + number + b"\x00" * 50,
            HEAD + FIELDS + ENTRY + b"\x08" + number + b"\x00" * 50,
            b"\x16\x02\x02\x02\x00\x00\x00\x00\x00" + number + b"\x00" * 50,
            b"\x16\x04\x04\x02\x00" + number + b"\x00" * 50,
        ):
            assert isinstance(refused(data), SimpleInvalid)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
