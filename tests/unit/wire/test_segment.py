"""Segment start, index and mark: round trips, each flipped bit detected, newer formats refused by name."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import google_crc32c
import pytest

from headrace.errors import FormatTooNew, HeadraceError, JournalCorrupt
from headrace.wire.mark import FILE_SIZE, SLOT_SIZE, Mark, decode_marks
from headrace.wire.segment import (
    INDEX_FOOT_SIZE,
    START_SIZE,
    FramePlace,
    SegmentStart,
    decode_footer,
    decode_start,
    encode_index,
    index_fits,
    start_size_of,
)

START = SegmentStart(0x12345, b'{"global-ts":7}')
PLACES = [
    FramePlace(2, 1, 1, 0x900, 400),
    FramePlace(1, 3, 64, 0x500, 300),
    FramePlace(1, 1, 63, 0x100, 0x400),
]


def flips(data: bytes) -> Iterator[bytes]:
    for at in range(len(data) * 8):
        changed = bytearray(data)
        changed[at // 8] ^= 1 << at % 8
        yield bytes(changed)


def resealed(data: bytes, at: int, value: int, size: int) -> bytes:
    """Change byte ``at`` of the record of ``size`` bytes and make its checksum fit again."""
    record = bytearray(data[:size])
    record[at] = value
    record[-4:] = int(google_crc32c.value(bytes(record[:-4]))).to_bytes(4, "little")
    return bytes(record) + data[size:]


def test_start_round_trip() -> None:
    data = START.encode()
    assert len(data) == START.size == START_SIZE + 15
    assert start_size_of(data[:START_SIZE], "x") == START.size
    assert decode_start(data + b"frames", "x") == START
    assert decode_start(SegmentStart(0x100, b"").encode(), "x") == SegmentStart(0x100, b"")


def test_every_flipped_bit_of_a_start_is_detected() -> None:
    for changed in flips(START.encode()):
        with pytest.raises(JournalCorrupt, match=r"a\.seg"):
            decode_start(changed, "a.seg")


def test_every_cut_of_a_start_is_detected() -> None:
    data = START.encode()
    for size in range(len(data)):
        with pytest.raises(JournalCorrupt):
            decode_start(data[:size], "x")


def test_start_of_a_newer_format_is_refused() -> None:
    with pytest.raises(FormatTooNew, match=r"a\.seg .* version 3, .* up to 2"):
        decode_start(resealed(START.encode(), 5, 3, START_SIZE), "a.seg")
    assert decode_start(resealed(START.encode(), 4, 3, START_SIZE), "a.seg") == START
    assert decode_start(START._replace(readable_from=2).encode(), "a.seg").readable_from == 2


def test_absurd_state_size_is_not_believed() -> None:
    with pytest.raises(JournalCorrupt):
        start_size_of(resealed(START.encode(), 19, 0x7F, START_SIZE)[:START_SIZE], "x")


def test_index_is_sorted_and_round_trips() -> None:
    data = encode_index(PLACES, 0x100, 0xA90)
    footer = decode_footer(b"frames" + data, "x")
    assert footer is not None
    assert (footer.rows, footer.first_position, footer.end_position) == (3, 0x100, 0xA90)
    assert footer.index_size == len(data)
    rows = [struct.unpack_from("<IIQQI", data, 8 + 32 * at) for at in range(3)]
    assert rows == sorted(PLACES, key=lambda place: (place[0], place[2]))
    assert index_fits(data, footer)


def test_index_of_a_segment_with_control_frames_only() -> None:
    data = encode_index([], 0x100, 0x200)
    footer = decode_footer(data, "x")
    assert footer is not None
    assert footer.rows == 0
    assert index_fits(data, footer)


def test_every_flipped_bit_of_an_index_is_detected() -> None:
    for changed in flips(encode_index(PLACES, 0x100, 0xA90)):
        footer = decode_footer(changed, "x")
        assert footer is None or not index_fits(changed, footer)


def test_every_cut_of_an_index_is_detected() -> None:
    data = encode_index(PLACES, 0x100, 0xA90)
    footer = decode_footer(data, "x")
    assert footer is not None
    assert not any(decode_footer(data[:size], "x") for size in range(len(data)))
    assert not any(index_fits(data[at:], footer) for at in range(1, len(data)))


def test_index_of_a_newer_format_is_refused() -> None:
    data = encode_index(PLACES, 0x100, 0xA90)
    rows, foot = data[:-INDEX_FOOT_SIZE], data[-INDEX_FOOT_SIZE:]
    with pytest.raises(FormatTooNew, match=r"a\.seg \(index\)"):
        decode_footer(rows + resealed(foot, 5, 2, INDEX_FOOT_SIZE), "a.seg")
    assert decode_footer(rows + resealed(foot, 4, 2, INDEX_FOOT_SIZE), "a.seg") == decode_footer(
        data, "a.seg"
    )


def page(*marks: Mark) -> bytes:
    data = bytearray(FILE_SIZE)
    for mark in marks:
        data[mark.offset : mark.offset + SLOT_SIZE] = mark.encode()
    return bytes(data)


def test_newest_mark_wins_wherever_it_stands() -> None:
    older, newer = Mark(4, 0x900, 8), Mark(5, 0xA00, 9)
    assert (older.offset, newer.offset) == (0, SLOT_SIZE)
    assert decode_marks(page(older, newer), "mark") == newer
    assert decode_marks(page(older, Mark(3, 0x800, 7)), "mark") == older
    assert decode_marks(page(newer), "mark") == newer


def test_every_flipped_bit_of_a_slot_gives_the_other_one() -> None:
    older, newer = Mark(4, 0x900, 8), Mark(5, 0xA00, 9)
    for at, changed in enumerate(flips(page(older, newer)[: 2 * SLOT_SIZE])):
        assert decode_marks(changed, "mark") == (newer if at < 8 * SLOT_SIZE else older)


def test_no_intact_slot_is_no_mark() -> None:
    assert decode_marks(page(), "mark") is None
    assert decode_marks(b"", "mark") is None
    assert decode_marks(Mark(0, 1, 1).encode()[:-1], "mark") is None


@pytest.mark.parametrize("counter", [4, 5])
def test_mark_of_a_newer_format_is_refused_in_either_slot(counter: int) -> None:
    marks = [Mark(4, 0x900, 8), Mark(5, 0xA00, 9)]
    data = b"".join(
        resealed(mark.encode(), 5, 2, SLOT_SIZE) if mark.counter == counter else mark.encode()
        for mark in marks
    )
    with pytest.raises(FormatTooNew, match="the/mark"):
        decode_marks(data, "the/mark")


@pytest.mark.parametrize(
    ("record", "read"),
    [
        (START.encode(), lambda data: decode_start(data, "x")),
        (Mark(4, 1, 1).encode(), lambda data: decode_marks(data, "x")),
        (encode_index([], 1, 2)[-INDEX_FOOT_SIZE:], lambda data: decode_footer(data, "x")),
    ],
    ids=["start", "mark", "index"],
)
def test_damage_is_never_called_a_newer_format(record: bytes, read: Callable[[bytes], object]) -> None:
    for version in range(2, 256):
        changed = bytearray(record)
        changed[5] = version
        try:
            assert read(bytes(changed)) is None
        except HeadraceError as error:
            assert isinstance(error, JournalCorrupt)  # noqa: PT017  # None is fine as well
