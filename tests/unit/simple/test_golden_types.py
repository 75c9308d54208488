"""One row of every type, as TiCDC writes it: the same bytes again, and the values that it stands for."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from headrace.simple.arrow import ArrowRows
from headrace.simple.json_codec import decode, encode
from headrace.simple.message import Bootstrap, Dml
from headrace.simple.values import Encoding, Row, RowTypes
from tests.simple import GOLDEN, moment, row_of, single

VALUES: Row = {
    "id": 18446744073709551615,
    "c_tinyint": -128,
    "c_smallint": 7,
    "c_mediumint": -8388608,
    "c_int": 4294967295,
    "c_bigint": -9223372036854775808,
    "c_float": 90.5,
    "c_double": 0.00001,
    "c_decimal": Decimal("-123456.700000"),
    "c_bit": 0b1010101010,
    "c_year": 2020,
    "c_date": date(2020, 2, 20),
    "c_datetime": moment(2020, 2, 20, 2, 20, 20, 123000),
    "c_timestamp": datetime(2020, 2, 20, 10, 20, 20, tzinfo=ZoneInfo("Asia/Shanghai")),
    "c_time": -timedelta(hours=838, minutes=59, seconds=59),
    "c_char": "é",
    "c_varchar": "a<b> & c",
    "c_text": "line\nbreak",
    "c_binary": b"a\x00\x00\x00",
    "c_blob": b"\x89PNG\xff",
    "c_enum": "b",
    "c_set": frozenset({"a", "c"}),
    "c_json": '{"a": [1, "é"]}',
    "c_vector": (1.0, 2.5, single(0.1)),
    "c_null": None,
}


@pytest.fixture(scope="module")
def bootstrap() -> Bootstrap:
    message = decode((GOLDEN / "types" / "bootstrap.json").read_bytes())
    assert isinstance(message, Bootstrap)
    return message


@pytest.fixture(scope="module")
def insert() -> Dml:
    message = decode((GOLDEN / "types" / "insert.json").read_bytes())
    assert isinstance(message, Dml)
    return message


def test_the_same_bytes_again(bootstrap: Bootstrap, insert: Dml) -> None:
    assert encode(bootstrap) == (GOLDEN / "types" / "bootstrap.json").read_bytes()
    assert encode(insert) == (GOLDEN / "types" / "insert.json").read_bytes()


def test_the_values(bootstrap: Bootstrap, insert: Dml) -> None:
    types = RowTypes(bootstrap.table_schema)
    row = types.read(insert)
    assert row == VALUES
    assert list(row) == list(VALUES)
    assert types.write(row, "the row") == insert.data


def test_the_columns(bootstrap: Bootstrap, insert: Dml) -> None:
    batch = ArrowRows(RowTypes(bootstrap.table_schema)).batch([insert])
    cells = {name: column[0] for name, column in batch.to_pydict().items()}
    as_lists = {"c_set": ["a", "c"], "c_vector": [1.0, 2.5, single(0.1)]}
    assert cells == {**VALUES, **as_lists}
    assert bootstrap.table_schema.handle_key == ("id",)


def test_the_same_values_in_avro(bootstrap: Bootstrap) -> None:
    types = RowTypes(bootstrap.table_schema, Encoding.AVRO)
    raw = types.write(VALUES, "the row")
    assert types.read(row_of(bootstrap.table_schema, **raw)) == VALUES
