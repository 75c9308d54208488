"""Halves on their way over gRPC: what the client joins is what the server splits, and nothing else is taken."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from headrace.entries.entry import Change, Op
from headrace.errors import InvalidRequest, TooLarge
from headrace.wire import varint
from headrace.wire.entry import checksum, encode_half
from headrace.wire.generated import wal_pb2
from headrace.wire.halves import Halves, join_halves, join_puts, split_halves
from tests.scale import scaled
from tests.unit.wire.test_entry import FULL

CONTROL = replace(FULL, key=b"\x00schema/db/table/1")
BATCH = wal_pb2.BatchWrite(mutations=[wal_pb2.Mutation(op=wal_pb2.OP_DELETE, key=b"a", value=b"b")])
CHANGES = (
    CONTROL,
    Change(b"value", key=b"key"),
    Change(b"", key=b"key", op=Op.DELETE),
    Change(b"", key=b""),
    Change(b"value"),
    Change(b"", op=Op.DELETE),
    Change(b"v" * 127, key=b"k" * 127),
    Change(b"v" * 128, key=b"k" * 128),
    Change(b"v" * 16_500, key=b"k"),
    Change(BATCH.SerializeToString(), key=b"key", op=Op.BATCH),
    Change(b'{"a":1}', key=b"key", op=Op.PATCH, changed=("a",), before=b"", table=("t",)),
    Change(b"value", key=b"key", source_tx=b"7", tx_index=3, tx_last=True),
)


def split(*halves: bytes, entries_max: int = 1000, entry_bytes_max: int = 1 << 20) -> Halves:
    entries, lengths = join_halves(halves)
    return split_halves(entries, lengths, entries_max=entries_max, entry_bytes_max=entry_bytes_max)


def refusal(*halves: bytes) -> str:
    with pytest.raises(InvalidRequest) as caught:
        split(*halves)
    assert caught.value.members["index"] == len(halves) - 1
    return caught.value.detail


def field(number: int, data: bytes) -> bytes:
    return varint.tag(number, 2) + varint.encode(len(data)) + data


def test_puts_made_in_one_go_are_the_bytes_of_each_made_alone() -> None:
    sizes = (0, 1, 4, 100, 127, 128, 129, 16_383, 16_384, 70_000)
    pairs = [(b"k" * key, bytes([value % 251]) * value) for key in sizes[:-1] for value in sizes]
    random.Random(5).shuffle(pairs)
    pairs += [(b"key-%d" % number, b"value-%d" % number) for number in range(8, 120)]
    assert join_puts(pairs) == join_halves(encode_half(Change(value, key=key)) for key, value in pairs)
    assert join_puts([]) == (b"", b"")


def test_everything_that_encode_half_makes_comes_back_as_it_was() -> None:
    halves = [encode_half(change) for change in CHANGES]
    found = split(*halves)
    assert found.halves == halves
    assert found.transaction_ends == [0, len(CHANGES) - 1]


def test_the_joined_fields_are_those_of_a_batch() -> None:
    entries, _ = join_halves([encode_half(change) for change in CHANGES])
    batch = wal_pb2.WalBatch.FromString(entries)
    assert [entry.value for entry in batch.entries] == [change.value for change in CHANGES]


def test_random_changes_come_back() -> None:
    source = random.Random(5)
    changes = [
        Change(
            source.randbytes(source.choice((0, 1, 5, 120, 130, 300, 17_000))),
            key=b"k" + source.randbytes(source.choice((0, 1, 12, 126, 127, 200))),
            op=source.choice((Op.PUT, Op.DELETE, Op.PATCH)),
            tx_last=source.random() < 0.2,
        )
        for _ in range(scaled(500))
    ]
    halves = [encode_half(change) for change in changes]
    found = split(*halves, entries_max=len(halves))
    assert found.halves == halves
    assert found.transaction_ends == [index for index, change in enumerate(changes) if change.tx_last]


def test_no_flipped_bit_is_taken_for_another_change_of_a_keyed_entry() -> None:
    half = encode_half(Change(b"value-1", key=b"key-1"))
    for at in range(len(half)):
        for bit in range(8):
            flipped = half[:at] + bytes((half[at] ^ 1 << bit,)) + half[at + 1 :]
            if flipped[:2] in {b"\x28\x00", b"\x28\x01"} and flipped[2:] == half[2:]:
                continue  # op_type itself has no checksum
            with pytest.raises((InvalidRequest, TooLarge)):
                split(flipped)


GOOD = encode_half(Change(b"value", key=b"key"))
KEYED = b"\x28\x00" + field(6, b"key") + field(7, b"value")
SUM = field(9, checksum(b"key", b"value"))


@pytest.mark.parametrize(
    ("half", "text"),
    [
        pytest.param(b"", "field of 2 bytes", id="empty"),
        pytest.param(b"\xff\xff\xff", "not a WalEntry", id="no message"),
        pytest.param(field(6, b"key") + field(9, checksum(b"key", b"")), "laid out", id="no op_type"),
        pytest.param(KEYED, "checksum", id="no checksum"),
        pytest.param(KEYED + field(9, b"1234"), "checksum", id="wrong checksum"),
        pytest.param(KEYED + field(9, checksum(b"key", b"value") + b"0"), "checksum", id="long checksum"),
        pytest.param(
            b"\x28\x00" + field(7, b"value") + field(9, checksum(b"", b"value")),
            "laid out",
            id="checksum without key",
        ),
        pytest.param(b"\x28\x00" + field(7, b"value") + field(6, b"key") + SUM, "laid out", id="order"),
        pytest.param(GOOD + field(7, b"value"), "laid out", id="value twice"),
        pytest.param(GOOD + field(1, b"x"), "field lsn", id="lsn"),
        pytest.param(GOOD + field(3, b"x"), "field tenant_id", id="tenant"),
        pytest.param(GOOD + field(4, b"x"), "field key_prefix", id="prefix"),
        pytest.param(GOOD + varint.tag(8, 0) + b"\x01", "field hlc_ts", id="hlc"),
        pytest.param(GOOD + varint.tag(100, 0) + b"\x01", "field append_end", id="append end"),
        pytest.param(GOOD + field(120, b"x"), "laid out", id="unknown field"),
        pytest.param(GOOD + varint.tag(105, 0) + b"\x00", "laid out", id="default written"),
        pytest.param(GOOD + varint.tag(103, 0) + b"\x02", "laid out", id="odd bool"),
        pytest.param(GOOD + varint.tag(102, 0) + b"\x85\x00", "laid out", id="long varint"),
        pytest.param(GOOD + field(110, b"\xff"), "not a WalEntry", id="no text"),
        pytest.param(GOOD + field(106, b"schema"), "zero byte", id="control without its key"),
        pytest.param(encode_half(Change(b"v", key=b"\x00k")), "zero byte", id="reserved key"),
        pytest.param(b"\x28\x03" + GOOD[2:], "op_type", id="unknown op"),
        pytest.param(b"\x28\x01" + GOOD[2:] + varint.tag(107, 0) + b"\x01", "laid out", id="patching delete"),
        pytest.param(encode_half(Change(b"\xff", key=b"k", op=Op.BATCH)), "BatchWrite", id="no batch"),
        pytest.param(
            encode_half(Change(field(1, b"\x08\x02"), key=b"k", op=Op.BATCH)),
            "neither put",
            id="batch in a batch",
        ),
        pytest.param(
            encode_half(Change(field(1, b"\x12\x01\x00"), key=b"k", op=Op.BATCH)),
            "zero byte",
            id="reserved mutation",
        ),
    ],
)
def test_another_layout_is_refused_by_name(half: bytes, text: str) -> None:
    assert text in refusal(half)
    assert text in refusal(GOOD, GOOD, half)


def test_one_bad_entry_among_many_is_named() -> None:
    halves = [encode_half(Change(b"value", key=b"%d" % number)) for number in range(100)]
    halves[57] = halves[57][:-1] + bytes((halves[57][-1] ^ 1,))
    with pytest.raises(InvalidRequest) as caught:
        split(*halves)
    assert caught.value.members["index"] == 57


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda entries, lengths: (entries, b""), id="no lengths"),
        pytest.param(lambda entries, lengths: (entries, lengths[:-1]), id="torn lengths"),
        pytest.param(lambda entries, lengths: (entries, lengths[:-4]), id="a length short"),
        pytest.param(lambda entries, lengths: (entries[:-1], lengths), id="entries short"),
        pytest.param(lambda entries, lengths: (entries + b"0", lengths), id="entries long"),
        pytest.param(lambda entries, lengths: (b"\x12" + entries[1:], lengths), id="another field"),
        pytest.param(
            lambda entries, lengths: (entries, lengths[4:] + lengths[:4]), id="lengths in another order"
        ),
    ],
)
def test_sizes_that_do_not_fit_are_refused(change: Callable[[bytes, bytes], tuple[bytes, bytes]]) -> None:
    joined = join_halves([GOOD, encode_half(Change(b"longer value", key=b"key"))])
    entries, lengths = change(*joined)
    with pytest.raises(InvalidRequest):
        split_halves(entries, lengths, entries_max=10, entry_bytes_max=100)


def test_what_is_too_large_is_refused() -> None:
    with pytest.raises(TooLarge, match="most is 2"):
        split(GOOD, GOOD, GOOD, entries_max=2)
    with pytest.raises(TooLarge, match=r"entries\[1\]"):
        split(GOOD, encode_half(Change(b"v" * 100, key=b"k")), entry_bytes_max=100)
