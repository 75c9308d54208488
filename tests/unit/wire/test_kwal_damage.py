"""Nothing of a segment can be cut off or flipped unseen, and what is damaged is named."""

from __future__ import annotations

import random
import re
import zlib

import pytest

from headrace.errors import HeadraceError, SegmentCorrupt
from headrace.wire.kwal import decode_head, places_of
from headrace.wire.kwal_columns import Segment
from headrace.wire.kwal_damage import first_fault, flipped_bit
from tests.kwal import bytes_of, numbered, sealed

DATA = bytes_of(sealed([numbered(1, 3), numbered(4, 2, size=150)]))
PLACES = list(places_of(DATA, decode_head(DATA, ""), ""))


def refusal(data: bytes) -> HeadraceError:
    with pytest.raises(SegmentCorrupt) as caught:
        Segment(data, where="s.bin")
    assert caught.value.detail.startswith("s.bin")
    return caught.value


def test_every_flipped_bit_is_found_to_the_bit() -> None:
    assert first_fault(DATA, "s") is None
    chosen = [*random.Random(3).sample(range(8 * len(DATA)), 12), 0, 8 * len(DATA) - 1]
    for number in chosen:
        byte, bit = divmod(number, 8)
        torn = bytearray(DATA)
        torn[byte] ^= 1 << bit
        syndrome = zlib.crc32(torn[:-4]) ^ int.from_bytes(torn[-4:], "big")
        assert syndrome, "every flipped bit shows"
        assert flipped_bit(syndrome, len(DATA)) == (byte, bit)


@pytest.mark.parametrize(
    ("byte", "part"),
    [
        (0, "in the head"),
        (5, "in the head"),
        (PLACES[0].head, r"in entry 1 of 5, lsn=\S+0000000001\)"),
        (PLACES[3].start + 70, r"in entry 4 of 5, lsn=\S+0000000004\)"),
        (len(DATA) - 2, "in the checksum"),
    ],
    ids=["magic", "version", "size", "value", "crc"],
)
def test_what_a_flipped_bit_is_in_is_named(byte: int, part: str) -> None:
    torn = bytearray(DATA)
    torn[byte] ^= 4
    error = refusal(bytes(torn))
    assert error.members["byte"] == byte
    assert error.exit_code == 3
    assert f"bit 2 of byte {byte} is flipped" in error.detail
    assert re.search(part, error.detail)


def test_every_truncation_is_found() -> None:
    for size in range(len(DATA)):
        refusal(DATA[:size])
    cut = refusal(DATA[: PLACES[2].start + 40])
    assert "entry 3 of 5" in cut.detail
    assert "the last entry before that has lsn=" in cut.detail
    assert cut.members["entry"] == 3
    longer = refusal(DATA + b"more")
    assert "4 bytes more stand before the checksum" in longer.detail


def torn_at(byte: int) -> bytes:
    torn = bytearray(DATA)
    torn[byte] ^= 0x11
    torn[byte + 1] ^= 0x28
    return bytes(torn)


def test_what_more_damage_is_in_is_named() -> None:
    for at, part in (
        (PLACES[3].end - 12, "entry 4 of 5"),
        (PLACES[1].start + 20, "entry 2 of 5"),
        (PLACES[2].start + 43, "entry 3 of 5"),
        (7, "the head names"),
    ):
        error = refusal(torn_at(at))
        assert part in error.detail, error.detail
    assert "checksum does not cover" in refusal(torn_at(DATA.index(b"eu:acme"))).detail


def syndrome_of(byte: int, bit: int) -> int:
    """What the flip of one bit changes in the CRC."""
    torn = bytearray(DATA)
    torn[byte] ^= 1 << bit
    return zlib.crc32(torn[:-4]) ^ zlib.crc32(DATA[:-4])


def test_damage_that_looks_like_one_bit_elsewhere_is_not_taken_for_it() -> None:
    at, elsewhere = PLACES[3].start + 80, 60
    # Some pattern in any four bytes has the CRC of that one bit: solve for it over the 32 bits.
    basis: dict[int, tuple[int, int]] = {}
    for number in range(32):
        value, pattern = syndrome_of(at + number // 8, number % 8), 1 << number
        while value and (top := value.bit_length()) in basis:
            value, pattern = value ^ basis[top][0], pattern ^ basis[top][1]
        if value:
            basis[value.bit_length()] = (value, pattern)
    value, pattern = syndrome_of(elsewhere, 3), 0
    while value:
        found = basis[value.bit_length()]
        value, pattern = value ^ found[0], pattern ^ found[1]
    torn = bytearray(DATA)
    for number, mask in enumerate(pattern.to_bytes(4, "little")):
        torn[at + number] ^= mask
    seen = zlib.crc32(torn[:-4]) ^ zlib.crc32(DATA[:-4])
    assert flipped_bit(seen, len(DATA)) == (elsewhere, 3)
    error = refusal(bytes(torn))
    assert "entry 4 of 5" in error.detail
    assert "flipped" not in error.detail
