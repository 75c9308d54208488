"""Rows of transactions are checked fast among the halves of an append: what is taken is as the long way has it.

An append of one half is always checked the long way; behind a row the fast one comes first.
"""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headrace.entries.entry import Change, Op
from headrace.errors import InvalidRequest, TooLarge
from headrace.wire import varint
from headrace.wire.entry import checksum, encode_half
from headrace.wire.halves import Joined, join_halves, split_halves
from headrace.wire.row_halves import ends_transaction
from tests.scale import scaled, sized

ROW = encode_half(Change(b'{"a":1}', key=b"key", source_tx=b"0-1-7", tx_index=1, table=("shop", "t")))
ENTRY_BYTES_MAX = 40_000
SIZES = st.sampled_from([1, 2, 5, 100, 126, 127, 128, 129, 300, 16_383, 16_384, 16_385, 20_000])
INDEXES = st.sampled_from([0, 1, 127, 128, 16_383, 16_384, (1 << 28) - 1, 1 << 28, (1 << 64) - 1])
rows = st.builds(
    Change,
    SIZES.map(lambda size: b"v" * size),
    key=st.binary(max_size=4) | st.sampled_from([b"k" * 127, b"k" * 128]),
    op=st.sampled_from([Op.PUT, Op.DELETE]),
    source_tx=st.binary(max_size=3) | st.sampled_from([b"t" * 127, b"t" * 128]),
    tx_index=INDEXES,
    tx_last=st.booleans(),
    source_time_ms=st.sampled_from([0, 1, 1_700_000_000_000]),
    copy=st.booleans(),
    table=st.sampled_from([(), ("shop", "t"), ("", "é")]),
)
others = st.builds(
    Change,
    st.sampled_from([b"", b"v"]),
    key=st.sampled_from([None, b"", b"k", b"\0k"]),
    op=st.sampled_from([Op.PUT, Op.DELETE, Op.PATCH, Op.BATCH]),
    tx_last=st.booleans(),
    control=st.sampled_from(["", "schema"]),
    changed=st.sampled_from([(), ("a",)]),
    before=st.sampled_from([None, b"", b"old"]),
)


def outcome(joined: Joined, behind: int) -> object:
    """What splitting says of all halves but the first ``behind``."""
    try:
        found = split_halves(joined.entries, joined.lengths, entries_max=10, entry_bytes_max=ENTRY_BYTES_MAX)
    except (InvalidRequest, TooLarge) as refusal:
        return refusal.code, refusal.detail.replace(f"entries[{behind}]", "entries[0]")
    return found.halves[behind:], [index - behind for index in found.transaction_ends]


def check(half: bytes) -> None:
    """Splitting says the same of a half whether it stands behind a row or alone."""
    assert outcome(join_halves([ROW, half]), 1) == outcome(join_halves([half]), 0)


@settings(max_examples=sized(scaled(45), soak=scaled(150)), deadline=None)
@given(rows | others)
def test_whatever_stands_behind_a_row_is_split_as_it_is_alone(change: Change) -> None:
    check(encode_half(change))


@settings(max_examples=sized(scaled(120), soak=scaled(400)), deadline=None)
@given(rows, st.data())
def test_a_half_of_other_bytes_is_refused_as_it_is_alone(change: Change, data: st.DataObject) -> None:
    half = bytearray(encode_half(change))
    rest_at = half.rindex(checksum(change.key or b"", change.value)) + 4
    # Mostly where the fast way reads: the heads before key and value, and behind the checksum.
    at = data.draw(st.integers(0, 12) | st.integers(rest_at - 6, len(half)) | st.integers(0, len(half)))
    size = data.draw(st.integers(0, 3))
    put = data.draw(
        st.binary(max_size=3) | st.sampled_from([varint.tag(number, 0) for number in range(99, 112)])
    )
    half[at : at + size] = put
    if data.draw(st.booleans()):
        del half[data.draw(st.integers(rest_at - 6, len(half))) :]
    check(bytes(half))


def laid_out(value: bytes, *rest: bytes, op: bytes = b"\0", size: bytes | None = None) -> bytes:
    """A half with this value, whose size is written as ``size``, and with ``rest`` behind the checksum."""
    size = varint.encode(len(value)) if size is None else size
    middle = b"\x3a" + size + value + b"\x4a\x04" + checksum(b"key", value)
    return b"\x28" + op + b"\x32\x03key" + middle + b"".join(rest)


TX, INDEX, LAST = (varint.tag(101, 2) + b"\x01t", varint.tag(102, 0), varint.tag(103, 0) + b"\x01")
PATCH = varint.tag(107, 0) + b"\x01"


@pytest.mark.parametrize(
    "half",
    [
        pytest.param(laid_out(b"v", TX, size=b"\x81\x00"), id="value-size-in-two-bytes"),
        pytest.param(laid_out(b"v" * 128, TX, size=b"\x80\x81\x00"), id="value-size-in-three-bytes"),
        pytest.param(laid_out(b"", TX), id="value-that-is-empty"),
        pytest.param(laid_out(b"v", varint.tag(101, 2) + b"\0"), id="source-tx-that-is-empty"),
        pytest.param(laid_out(b"v", INDEX + b"\0"), id="index-0"),
        pytest.param(laid_out(b"v", INDEX + b"\x81\0"), id="index-in-two-bytes"),
        pytest.param(laid_out(b"v", INDEX + b"\x01", TX), id="index-before-source-tx"),
        pytest.param(laid_out(b"v", LAST, INDEX + b"\x01"), id="last-before-index"),
        pytest.param(laid_out(b"v", INDEX + b"\xff" * 5 + b"\x01", LAST), id="last-behind-a-large-index"),
        pytest.param(laid_out(b"v", TX, TX), id="source-tx-twice"),
        pytest.param(laid_out(b"v", LAST, LAST), id="last-twice"),
        pytest.param(laid_out(b"v", TX, PATCH), id="patch"),
        pytest.param(laid_out(b"v", TX, PATCH, op=b"\1"), id="patch-that-deletes"),
        pytest.param(laid_out(b"v", TX, op=b"\2"), id="batch"),
        pytest.param(laid_out(b"v", TX, b"\xf2\x06\x01\xff"), id="table-that-is-no-text"),
        pytest.param(laid_out(b"v", TX)[:-6], id="half-a-checksum"),
    ],
)
def test_what_looks_like_a_row_is_judged_as_it_is_alone(half: bytes) -> None:
    check(half)


@settings(max_examples=sized(scaled(30), soak=scaled(100)), deadline=None)
@given(rows)
def test_rows_as_capture_sends_them_are_known_without_the_long_way(change: Change) -> None:
    assume(change.key and 0 < len(change.key) < 128 and change.key[0])
    assume(len(change.source_tx) < 128)
    assume(change.tx_index < 1 << 28)
    field, _ = join_halves([encode_half(change)])
    _, half_at = varint.decode(field, 1)
    assert ends_transaction(field, half_at) is change.tx_last
