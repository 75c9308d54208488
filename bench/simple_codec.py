"""Simple messages: an INSERT of ten columns to bytes and back, each counted apart, on one core.

Processor time is what counts. The bare limits are msgspec alone: the same bytes from plain dicts, and to plain dicts, with
nothing looked at. The arms ``…-typed`` begin and end with Python values: integers, decimals, dates, a moment with its zone.
``fastavro`` is a general library, compiled from Cython, with the same messages over the same schema.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import TypeVar, cast

import fastavro
import msgspec

from bench.support.harness import Bench, Figures, arguments, publish
from headrace.simple import avro_codec, json_codec
from headrace.simple.avro_schema import SCHEMA as AVRO_SCHEMA
from headrace.simple.message import Dml, MessageType
from headrace.simple.schema import Column, DataType, Index, TableSchema
from headrace.simple.values import Encoding, Row, RowTypes

Arms = dict[str, Callable[[], None]]
Given = TypeVar("Given")

_FASTAVRO = fastavro.parse_schema(AVRO_SCHEMA)
MESSAGES = 20_000
"""Different rows, so that nothing is at hand from the message before."""

COLUMNS = {
    "id": DataType("bigint", "binary", "binary", 20),
    "name": DataType("varchar", "utf8mb4", "utf8mb4_bin", 255),
    "email": DataType("varchar", "utf8mb4", "utf8mb4_bin", 255),
    "active": DataType("tinyint", "binary", "binary", 1),
    "balance": DataType("decimal", "binary", "binary", 12, 2),
    "born": DataType("date", "binary", "binary", 10),
    "changed": DataType("timestamp", "binary", "binary", 26, 6),
    "note": DataType("text", "utf8mb4", "utf8mb4_bin", 65_535),
    "score": DataType("double", "binary", "binary", 22),
    "visits": DataType("int", "binary", "binary", 10, unsigned=True),
}
SCHEMA = TableSchema(
    "simple",
    "user",
    148,
    447_984_074_911_121_426,
    tuple(Column(name, kind, nullable=name == "note", default=None) for name, kind in COLUMNS.items()),
    (Index("primary", unique=True, primary=True, nullable=False, columns=("id",)),),
)


def row(number: int) -> Row:
    """The row of this number."""
    return {
        "id": number,
        "name": f"Customer number {number}",
        "email": f"customer{number}@example.org",
        "active": number % 2,
        "balance": Decimal(number) / 4,
        "born": date(1950 + number % 60, 1 + number % 12, 1 + number % 28),
        "changed": datetime(2024, 2, 26, 5, number % 60, 2, number % 1_000_000, tzinfo=UTC),
        "note": None,
        "score": number / 8,
        "visits": number % 1000,
    }


def insert(types: RowTypes, number: int) -> Dml:
    """The INSERT of that row, with raw values of the encoding of ``types``."""
    raw = types.write(row(number), "a row of the bench")
    commit_ts = 447_984_084_414_103_554 + number
    return Dml(
        MessageType.INSERT,
        "simple",
        "user",
        SCHEMA.table_id,
        commit_ts,
        1_708_923_662_983,
        SCHEMA.version,
        raw,
    )


def encode_arms() -> Arms:
    """What each arm of the way to bytes does with all messages."""
    types = RowTypes(SCHEMA)
    rows = [row(number) for number in range(MESSAGES)]
    messages = [insert(types, number) for number in range(MESSAGES)]
    plain = [msgspec.json.decode(json_codec.encode(message)) for message in messages]
    encoder = msgspec.json.Encoder()

    def encode_typed() -> None:
        for message, values in zip(messages, rows, strict=True):
            raw = types.write(values, "a row of the bench")
            json_codec.encode(msgspec.structs.replace(message, data=raw))

    avro_types = RowTypes(SCHEMA, Encoding.AVRO)
    in_avro = [insert(avro_types, number) for number in range(MESSAGES)]
    data = [_read_by_fastavro(avro_codec.encode(message)) for message in in_avro]
    return {
        "bare-json": lambda: _each(encoder.encode, plain),
        "json-encode": lambda: _each(json_codec.encode, messages),
        "json-encode-typed": encode_typed,
        "fastavro": lambda: _each(_written_by_fastavro, data),
        "avro-encode": lambda: _each(avro_codec.encode, in_avro),
    }


def decode_arms() -> Arms:
    """What each arm of the way from bytes does with all messages."""
    types = RowTypes(SCHEMA)
    texts = [json_codec.encode(insert(types, number)) for number in range(MESSAGES)]
    decoder = msgspec.json.Decoder()

    def decode_typed() -> None:
        for text in texts:
            types.read(cast("Dml", json_codec.decode(text)))

    avro_types = RowTypes(SCHEMA, Encoding.AVRO)
    in_avro = [avro_codec.encode(insert(avro_types, number)) for number in range(MESSAGES)]
    return {
        "bare-json": lambda: _each(decoder.decode, texts),
        "json-decode": lambda: _each(json_codec.decode, texts),
        "json-decode-typed": decode_typed,
        "fastavro": lambda: _each(_read_by_fastavro, in_avro),
        "avro-decode": lambda: _each(avro_codec.decode, in_avro),
    }


def _read_by_fastavro(data: bytes) -> object:
    return fastavro.schemaless_reader(io.BytesIO(data), _FASTAVRO, None, return_record_name=True)


def _written_by_fastavro(datum: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _FASTAVRO, datum)
    return out.getvalue()


def _each(do: Callable[[Given], object], given: list[Given]) -> None:
    for one in given:
        do(one)


def main() -> None:
    """Make the messages, let the arms take turns, and print what was found."""
    given = arguments(__doc__, seconds=0, rounds=7).parse_args()
    benches = []
    for name, arms in (("simple_encode", encode_arms()), ("simple_decode", decode_arms())):
        bench = Bench(name, tuple(arms), {"columns": len(COLUMNS), "messages": MESSAGES})
        bench.run(partial(measure, arms), given.rounds)
        benches.append(bench)
    publish(benches, ["messages/cpu-s", "messages/s"], given.json)


def measure(arms: Arms, arm: str) -> Figures:
    """Let one arm do its work on all messages."""
    begun, begun_cpu = time.perf_counter(), time.thread_time()
    arms[arm]()
    cpu_s, took_s = time.thread_time() - begun_cpu, time.perf_counter() - begun
    return {"messages/cpu-s": MESSAGES / cpu_s, "messages/s": MESSAGES / took_s}


if __name__ == "__main__":
    main()
