"""Row checksums, computed from typed values as the source computed them."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zlib import crc32
from zoneinfo import ZoneInfo

import msgspec
import pytest

from headrace.errors import SimpleInvalid, SimpleUnsupported
from headrace.simple.checksum import Outcome, column_bytes, row_checksum, verify
from headrace.simple.message import Checksum, Dml, Raw, Timestamp
from headrace.simple.schema import Column
from headrace.simple.temporal import IrregularDate
from headrace.simple.values import Image, RowTypes, Value
from tests.simple_tables import change, column, table


def text(value: str) -> bytes:
    return struct.pack("<I", len(value.encode())) + value.encode()


@pytest.mark.parametrize(
    ("of", "value", "expected"),
    [
        (column("c", "int"), -1, b"\xff" * 8),
        (column("c", "tinyint", unsigned=True), 200, b"\xc8" + bytes(7)),
        (column("c", "bigint", unsigned=True), (1 << 64) - 1, b"\xff" * 8),
        (column("c", "year", unsigned=True), 2020, struct.pack("<q", 2020)),
        (column("c", "float"), 90.5, struct.pack("<d", 90.5)),
        (column("c", "double"), -0.1, struct.pack("<d", -0.1)),
        (column("c", "decimal", length=6, decimal=3), Decimal("-1.5"), text("-1.500")),
        (column("c", "varchar"), "héé", text("héé")),
        (column("c", "varbinary"), b"\x00\xff", b"\x02\x00\x00\x00\x00\xff"),
        (column("c", "blob"), b"", bytes(4)),
        (column("c", "date"), date(2020, 2, 20), text("2020-02-20")),
        (column("c", "date"), IrregularDate("0000-00-00"), text("0000-00-00")),
        (
            column("c", "datetime", decimal=3),
            datetime.fromisoformat("2020-02-20 01:02:03.004"),
            text("2020-02-20 01:02:03.004"),
        ),
        (column("c", "time"), -timedelta(hours=838), text("-838:00:00")),
        (
            column("c", "timestamp", decimal=6),
            datetime(2020, 2, 20, 10, 20, 20, 1, ZoneInfo("Asia/Shanghai")),
            text("2020-02-20 02:20:20.000001"),
        ),
        (column("c", "timestamp"), datetime(2020, 2, 20, 10, tzinfo=UTC), text("2020-02-20 10:00:00")),
        (
            column("c", "timestamp"),
            IrregularDate("0000-00-00 00:00:00", "Asia/Shanghai"),
            text("0000-00-00 00:00:00"),
        ),
        (column("c", "enum", elements=("x", "y")), "y", b"\x02" + bytes(7)),
        (column("c", "set", elements=("x", "y", "z")), frozenset({"x", "z"}), b"\x05" + bytes(7)),
        (column("c", "bit", length=64, unsigned=True), 1 << 63, bytes(7) + b"\x80"),
        (column("c", "json"), '{"a": 1}', text('{"a": 1}')),
        (column("c", "vector"), (1.0, -2.5), struct.pack("<I2f", 2, 1.0, -2.5)),
        (column("c", "vector"), (), bytes(4)),
        (column("c", "int", nullable=True), None, b""),
        (column("c", "geometry", nullable=True), None, b""),
    ],
)
def test_the_bytes_of_a_column(of: Column, value: Value, expected: bytes) -> None:
    types = RowTypes(table("s.t", of))
    assert column_bytes(types, {"c": value}) == (("c", expected),)
    assert row_checksum(types, {"c": value}) == crc32(expected)


def test_the_order_is_the_schemas_and_what_is_not_stored_does_not_count() -> None:
    types = RowTypes(table("s.t", "a", column("virtual"), column("b", "varchar")))
    one = struct.pack("<q", 7)
    assert column_bytes(types, {"b": "x", "a": 7}) == (("a", one), ("b", text("x")))
    assert row_checksum(types, {"b": "x", "a": 7}) == crc32(one + text("x"))


SCHEMA = table("s.t", "a", column("at", "timestamp"))
TYPES = RowTypes(SCHEMA)
NEW: dict[str, Raw] = {"a": "1", "at": Timestamp("Europe/Berlin", "2020-02-20 10:20:20")}
OLD: dict[str, Raw] = {"a": "2", "at": Timestamp("UTC", "2020-02-20 10:20:20")}
SUM_NEW = crc32(struct.pack("<q", 1) + text("2020-02-20 09:20:20"))
SUM_OLD = crc32(struct.pack("<q", 2) + text("2020-02-20 10:20:20"))


def update(*numbers: int, version: int = 0, corrupted: bool = False) -> Dml:
    return msgspec.structs.replace(
        change("UPDATE", SCHEMA, 5, NEW, OLD), checksum=Checksum(version, corrupted, *numbers)
    )


@pytest.mark.parametrize("version", [0, 1, 2])
def test_both_rows_of_an_update_match(version: int) -> None:
    new, old = verify(update(SUM_NEW, SUM_OLD, version=version), TYPES)
    assert (new.image, new.outcome, new.actual) == (Image.DATA, Outcome.MATCHES, SUM_NEW)
    assert (old.image, old.outcome, old.actual) == (Image.OLD, Outcome.MATCHES, SUM_OLD)


def test_a_difference_shows_the_bytes() -> None:
    new, old = verify(update(SUM_NEW ^ 1, SUM_OLD, corrupted=True), TYPES)
    assert (new.outcome, old.outcome) == (Outcome.DIFFERS, Outcome.MATCHES)
    assert (new.expected, new.actual, new.corrupted) == (SUM_NEW ^ 1, SUM_NEW, True)
    assert new.columns == (("a", struct.pack("<q", 1)), ("at", text("2020-02-20 09:20:20")))
    assert str(new) == (
        f"data: checksum {SUM_NEW ^ 1} expected, {SUM_NEW} computed over a=0100000000000000, "
        f"at=13000000{b'2020-02-20 09:20:20'.hex()}"
    )


def test_nought_is_never_verified() -> None:
    new, old = verify(update(0, SUM_OLD), TYPES)
    assert (new.outcome, old.outcome) == (Outcome.NOT_GIVEN, Outcome.MATCHES)
    assert str(new) == "data: not-given"


def test_without_a_checksum_nothing_is_verified() -> None:
    (result,) = verify(change("INSERT", SCHEMA, 5, NEW), TYPES)
    assert result.outcome is Outcome.NOT_GIVEN
    assert result.version is None


def test_a_version_that_is_not_known_says_so() -> None:
    results = verify(update(1, 2, version=3), TYPES)
    assert {result.outcome for result in results} == {Outcome.VERSION_UNSUPPORTED}
    assert results[0].version == 3


def test_a_delete_has_its_old_row_verified() -> None:
    message = msgspec.structs.replace(
        change("DELETE", SCHEMA, 5, None, OLD), checksum=Checksum(0, False, 0, SUM_OLD)
    )
    (result,) = verify(message, TYPES)
    assert (result.image, result.outcome) == (Image.OLD, Outcome.MATCHES)


def test_values_that_do_not_fit_are_named() -> None:
    with pytest.raises(SimpleInvalid, match="row: a must be an integer"):
        row_checksum(TYPES, {"a": "x"})
    with pytest.raises(SimpleInvalid, match="row: c must be"):
        row_checksum(RowTypes(table("s.t", column("c", "double"))), {"c": 1})
    with pytest.raises(SimpleUnsupported, match="geometry"):
        row_checksum(RowTypes(table("s.t", column("c", "geometry"))), {"c": "x"})
