"""Varints against protobuf's, and their bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import JournalCorrupt
from headrace.wire import varint
from headrace.wire.generated import wal_pb2


@given(st.integers(0, (1 << 64) - 1))
def test_same_bytes_as_protobuf(number: int) -> None:
    message = wal_pb2.WalEntry(hlc_ts=number).SerializeToString()
    assert message == (b"\x40" + varint.encode(number) if number else b"")


@given(st.integers(0, (1 << 128) - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_round_trip_up_to_128_bits(number: int, before: bytes, after: bytes) -> None:
    data = before + varint.encode(number) + after
    assert varint.decode(data, len(before)) == (number, len(data) - len(after))
    assert varint.decode(memoryview(data), len(before)) == (number, len(data) - len(after))


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\xff" * 18, b"\x80" * 1000, varint.encode(1 << 128), b"\xff" * 18 + b"\x7f"]
)
def test_no_end_and_too_large_are_refused(data: bytes) -> None:
    with pytest.raises(JournalCorrupt):
        varint.decode(data, 0)


def test_negative_numbers_have_no_varint() -> None:
    with pytest.raises(ValueError, match="-1 is no varint"):
        varint.encode(-1)


def test_tags() -> None:
    assert varint.tag(1, 2) == b"\x0a"
    assert varint.tag(100, 0) == b"\xa0\x06"
