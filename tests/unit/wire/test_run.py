"""Frames in a row: what one loop takes for intact is exactly what stands there whole and unharmed."""

from __future__ import annotations

import google_crc32c
import pytest

from headrace.wire.frame import HEADER_SIZE, Frame, FrameHeader, FrameKind, encode_frame
from headrace.wire.run import RUN_BYTES, intact_frames, intact_run

POSITION = 0x1000


def row(*body_sizes: int) -> list[bytes]:
    """Frames of one entry each that stand in a row from POSITION on."""
    found: list[bytes] = []
    at = POSITION
    for number, size in enumerate(body_sizes):
        header = FrameHeader(FrameKind.ENTRIES, at, number + 1, 7, 1, bytes(16), 3, 1, 0, 0, 0)
        found.append(encode_frame(header, b"area", bytes([number % 256]) * size, size.to_bytes(4, "little")))
        at += len(found[-1])
    return found


def read(data: bytes) -> list[tuple[FrameHeader, bytes]]:
    return [(frame.header, bytes(frame.body)) for frame in intact_run(data, POSITION).frames()]


FRAMES = row(5, 0, 9)
ROW = b"".join(FRAMES)


def test_a_row_is_what_looking_at_each_frame_says() -> None:
    at, wanted = 0, []
    while at < len(ROW):
        frame = Frame(ROW, at)
        wanted.append((frame.header, bytes(frame.body)))
        at += frame.header.size
    assert read(ROW) == wanted
    assert [bytes(frame.area) for frame in intact_run(ROW, POSITION).frames()] == [b"area"] * 3
    assert [list(frame.lengths) for frame in intact_run(ROW, POSITION).frames()] == [[5], [0], [9]]


def test_nothing_is_no_row() -> None:
    assert intact_run(b"", POSITION).headers == []
    assert intact_run(bytes(1000), POSITION).headers == []


def test_every_flipped_bit_ends_the_row_before_its_frame() -> None:
    ends = [sum(map(len, FRAMES[: number + 1])) for number in range(3)]
    for bit in range(8 * len(ROW)):
        changed = bytearray(ROW)
        changed[bit // 8] ^= 1 << bit % 8
        hurt = next(number for number, end in enumerate(ends) if bit // 8 < end)
        assert read(bytes(changed)) == read(ROW)[:hurt]


def test_every_cut_ends_the_row_before_its_frame() -> None:
    for size in range(len(ROW)):
        whole = [header for header in intact_run(ROW, POSITION).headers if header.end - POSITION <= size]
        assert intact_run(ROW[:size], POSITION).headers == whole


def test_frames_that_stand_elsewhere_are_no_row() -> None:
    assert intact_run(ROW, POSITION + 1).headers == []
    assert len(intact_run(FRAMES[0] + FRAMES[2], POSITION).headers) == 1


@pytest.mark.parametrize(("at", "taken"), [(4, 1), (5, 0)], ids=["written-as", "readable-from"])
def test_a_newer_format_ends_the_row_unless_it_can_be_read(at: int, taken: int) -> None:
    head = bytearray(FRAMES[0][:HEADER_SIZE])
    head[at] = 99
    head[-4:] = int(google_crc32c.value(bytes(head[:-4]))).to_bytes(4, "little")
    changed = bytes(head) + FRAMES[0][HEADER_SIZE:-HEADER_SIZE] + bytes(head)
    assert len(intact_run(changed, POSITION).headers) == taken


def test_a_long_row_is_read_in_parts_whatever_the_frames_sizes() -> None:
    frames = row(10, RUN_BYTES * 3, 10, RUN_BYTES - 100, *[900] * 700, RUN_BYTES + 1)
    data = b"".join(frames)
    assert [frame.header for frame in intact_frames(data, POSITION)] == [Frame(one).header for one in frames]
    torn = data[:-1]
    assert len(list(intact_frames(torn, POSITION))) == len(frames) - 1
