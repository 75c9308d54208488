"""Frames: round trips, the tag-length-value area, and that no flipped bit ever yields other data than was written."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import google_crc32c
import pytest

from headrace.entries.entry import Change
from headrace.entries.lsn import Lsn
from headrace.errors import FormatTooNew, JournalCorrupt
from headrace.wire.entry import decode_entry, digest, encode_half, stamp
from headrace.wire.frame import (
    FRAME_BYTES_MAX,
    HEADER_SIZE,
    Area,
    Frame,
    FrameHeader,
    FrameKind,
    decode_area,
    encode_area,
    encode_frame,
    frames_of,
    parse_header,
)
from tests.scale import scaled

TS = 1_760_000_000_000 << 18
AREA = encode_area({Area.SOURCE_POSITION: b"p7", Area.PRODUCER: b"agent-1", Area.TRACEPARENT: b""})


def header(**fields: Any) -> FrameHeader:
    plain = FrameHeader(FrameKind.ENTRIES, 0x100, 63, TS, 3, digest([b"x"]), 7, 2, 0, 0, 0)
    return plain._replace(**fields)


def frame(position: int = 0x100, first: int = 63, values: tuple[bytes, ...] = (b'{"a":1}', b"")) -> bytes:
    halves = [encode_half(Change(value, key=b"k")) for value in values]
    body, lengths = stamp(
        halves, global_ts=TS, region_id=7, first_sequence_id=first, tenant="t", key_prefix="r:t:f:"
    )
    own = header(position=position, first_sequence_id=first, count=len(values), digest=digest(halves))
    return encode_frame(own, AREA, body, lengths)


def flips(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Every bit of every byte, one at a time."""
    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            yield at, bytes(changed)


def content(read: Frame) -> tuple[object, ...]:
    return read.header, bytes(read.area), bytes(read.body), list(read.lengths)


def test_header_round_trip() -> None:
    wanted = FrameHeader(
        1, (1 << 64) - 1, (1 << 63) + 1, TS, 1 << 40, bytes(range(16)), 2**32 - 1, 9, 8, 7, 6
    )
    assert len(wanted.encode()) == HEADER_SIZE
    assert parse_header(b"junk" + wanted.encode(), 4) == wanted


def test_frame_round_trip() -> None:
    data = frame()
    read = Frame(data)
    assert read.header.size == len(data)
    assert (read.header.position, read.header.end) == (0x100, 0x100 + len(data))
    assert (read.header.first_sequence_id, read.header.last_sequence_id, read.header.count) == (63, 64, 2)
    assert [decode_entry(stored, 63 + at).change.value for at, stored in enumerate(read.entries())] == [
        b'{"a":1}',
        b"",
    ]
    assert [decode_entry(stored, 0).lsn for stored in read.entries()] == [
        read.header.lsn(0),
        read.header.lsn(1),
    ]
    assert decode_area(read.area) == {Area.PRODUCER: b"agent-1", Area.SOURCE_POSITION: b"p7"}
    assert data[:HEADER_SIZE] == data[-HEADER_SIZE:]


def test_frames_one_after_another() -> None:
    first = frame()
    second = frame(0x100 + len(first), 65, (b"v",) * 5)
    third = encode_frame(header(kind=FrameKind.CONTROL, count=0), b"", b"{}", b"")
    read = list(frames_of(first + second + third))
    assert [found.header.first_sequence_id for found in read] == [63, 65, 63]
    assert bytes(read[2].body) == b"{}"
    assert not list(read[2].entries())
    assert not list(frames_of(b""))


def test_header_of_a_control_frame() -> None:
    control = header(kind=FrameKind.CONTROL, count=0)
    assert (control.last_sequence_id, control.last_global_ts) == (62, TS)


def test_greatest_timestamp_counts_a_wrap() -> None:
    assert header(first_sequence_id=(1 << 32) - 1).last_global_ts == TS + 1
    assert header(first_sequence_id=(1 << 32) - 1).lsn(1) == Lsn(TS + 1, 7, 0)


def test_every_flipped_bit_is_detected_or_in_the_spare_header() -> None:
    data = frame()
    wanted = content(Frame(data))
    for at, changed in flips(data):
        spare = at >= len(data) - HEADER_SIZE
        try:
            read = content(Frame(changed))
        except JournalCorrupt:
            assert not spare, f"byte {at} is not needed for reading"
        else:
            assert spare, f"a flip in byte {at} went unnoticed"
            assert read == wanted


def test_every_overwritten_byte_is_detected() -> None:
    data, rng = frame(values=(b"x" * 300,)), random.Random(2260)
    for _ in range(scaled(2000)):
        at, size = rng.randrange(len(data) - HEADER_SIZE), rng.choice((1, 1, 2, 8, 64))
        changed = bytearray(data)
        changed[at : at + size] = rng.randbytes(size)
        if changed[:-HEADER_SIZE] != data[:-HEADER_SIZE]:
            with pytest.raises(JournalCorrupt):
                Frame(bytes(changed[: len(data)]))


def test_every_cut_is_detected() -> None:
    data = frame()
    for size in range(len(data)):
        with pytest.raises(JournalCorrupt):
            Frame(data[:size])
        if size:
            with pytest.raises(JournalCorrupt):
                list(frames_of(data + data[:size]))


def test_damage_is_named() -> None:
    data = bytearray(frame())
    data[HEADER_SIZE + 40] ^= 1
    with pytest.raises(
        JournalCorrupt, match=r"journal\.seg: .*0x100 \(region 7, sequence ids 63 to 64\) fails"
    ):
        Frame(bytes(data), where="journal.seg")
    with pytest.raises(JournalCorrupt, match=r"a\.seg: .*0x100 .*is cut off"):
        Frame(frame()[:-1], where="a.seg")


def test_absurd_size_is_not_believed() -> None:
    huge = header(body_size=FRAME_BYTES_MAX)
    assert parse_header(huge.encode()) is None


def newer(data: bytes) -> bytes:
    """The same header as a format that takes a newer reader."""
    changed = bytearray(data[:HEADER_SIZE])
    changed[4:6] = bytes((9, 8))
    changed[-4:] = int(google_crc32c.value(bytes(changed[:-4]))).to_bytes(4, "little")
    return bytes(changed)


def test_newer_format_is_refused_by_name() -> None:
    with pytest.raises(FormatTooNew, match=r"frame at position 0x100 .* version 8, .* knows up to 2"):
        parse_header(newer(frame()))


def test_newer_writer_that_older_readers_understand_is_read() -> None:
    data = bytearray(frame())
    data[4] = 9
    data[HEADER_SIZE - 4 : HEADER_SIZE] = int(google_crc32c.value(bytes(data[: HEADER_SIZE - 4]))).to_bytes(
        4, "little"
    )
    assert content(Frame(bytes(data))) == content(Frame(frame()))


def test_damaged_header_is_never_called_newer() -> None:
    data = bytearray(frame())
    data[5] = 8
    assert parse_header(bytes(data)) is None


def test_area_is_in_tag_order_without_empty_values() -> None:
    assert bytes.fromhex("0100 07000000") + b"agent-1" + bytes.fromhex("0200 02000000") + b"p7" == AREA
    assert decode_area(b"") == {}


def test_area_passes_unknown_tags_on() -> None:
    assert decode_area(AREA + bytes.fromhex("ff7f 01000000 2a"))[0x7FFF] == b"*"


@pytest.mark.parametrize("size", range(1, len(AREA)))
def test_cut_area_is_refused(size: int) -> None:
    if size == 13:  # exactly between two values
        assert decode_area(AREA[:size]) == {Area.PRODUCER: b"agent-1"}
        return
    with pytest.raises(JournalCorrupt, match="inside a"):
        decode_area(AREA[:size])
