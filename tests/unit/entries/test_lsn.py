"""The LSN: its text and integer forms, what is refused, and the wrap of its last part (RFC-010 §2)."""

from __future__ import annotations

import pytest

from headrace.entries.lsn import TEXT_SIZE, ZERO, Lsn, lsn_of
from headrace.errors import InvalidRequest

U32 = (1 << 32) - 1
U64 = (1 << 64) - 1


def test_text_form_is_the_one_of_the_rfc_padded() -> None:
    assert str(Lsn(0x66A1B2C3D4E5F607, 7, 63)) == "66a1b2c3d4e5f607.0000000007.0000000063"
    assert str(ZERO) == "0000000000000000.0000000000.0000000000"
    assert len(str(Lsn(U64, U32, U32))) == len(str(ZERO)) == TEXT_SIZE


def test_integer_form_is_the_concatenation() -> None:
    assert int(Lsn(1, 2, 3)) == 1 << 64 | 2 << 32 | 3
    assert Lsn.from_int((1 << 128) - 1) == Lsn(U64, U32, U32)
    assert Lsn.from_int(0) == ZERO


@pytest.mark.parametrize("number", [-1, 1 << 128])
def test_integer_outside_128_bits_is_refused(number: int) -> None:
    with pytest.raises(InvalidRequest):
        Lsn.from_int(number)


@pytest.mark.parametrize(
    ("text", "lsn"),
    [
        ("1.2.3", Lsn(1, 2, 3)),
        ("FF.10.20", Lsn(255, 10, 20)),
        ("00000000000000ff.0000000010.0000000020", Lsn(255, 10, 20)),
        ("0.0.0", ZERO),
        ("ffffffffffffffff.4294967295.4294967295", Lsn(U64, U32, U32)),
    ],
)
def test_padded_and_unpadded_parts_are_read(text: str, lsn: Lsn) -> None:
    assert Lsn.parse(text) == lsn


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "..", "1.2", "1.2.3.4", "1..3", "g.1.1", "1.a.1", "1.1.f", "-1.1.1", "+1.1.1", " 1.1.1", "1.1.1 ",
        "1.1.1\n", "1_0.1.1", "0x10.1.1", "1,1,1", "٣.1.1", "1.²2.3", "1.4294967296.1", "1.1.4294967296",
        "10000000000000000.1.1", "1." + "0" * 5000 + "1.1", "9" * 5000,
    ],
)  # fmt: skip
def test_bad_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        Lsn.parse(text)
    assert len(refusal.value.detail) < 200


def test_commit_time_is_the_physical_half() -> None:
    assert Lsn(1_760_000_000_123 << 18 | 5, 1, 1).committed_at_ms == 1_760_000_000_123


def test_wrap_inside_an_append_raises_the_timestamp() -> None:
    before, after = (lsn_of(1000, 7, U32, index) for index in (0, 1))
    assert before == Lsn(1000, 7, U32)
    assert after == Lsn(1001, 7, 0)
    assert before < after


def test_sequence_ids_beyond_32_bits_keep_their_low_half() -> None:
    assert lsn_of(1000, 7, (5 << 32) + 9, 1) == Lsn(1000, 7, 10)
