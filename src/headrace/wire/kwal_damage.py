"""What is damaged in a KWAL segment, and where: for files whose CRC-32 does not fit any more.

A single bit that was flipped is found by the CRC alone, to the bit. Else the segment is walked through, and the first entry
that is cut off, fails its own checksum or contradicts itself is named. Called where a segment is opened; needs no numpy.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import HeadraceError, JournalCorrupt, SegmentCorrupt
from headrace.wire import varint
from headrace.wire.batch_check import check_slices
from headrace.wire.entry import bare_message_of
from headrace.wire.kwal import FOOTER_SIZE, decode_head, places_of, stored_crc

_POLYNOMIAL: Final = 0xEDB88320
_ONE: Final = 1 << 31
"""The polynomial 1, as CRC-32 writes them: the highest bit is the lowest power."""
_STRIDE_BITS: Final = 16


def damage(data: bytes | memoryview, where: str) -> SegmentCorrupt:
    """Return the error to raise for a segment whose CRC does not fit, with the member ``byte`` where that is known."""
    if len(data) <= FOOTER_SIZE:
        return SegmentCorrupt(f"{where} is cut off: it has {len(data)} bytes", byte=len(data))
    found = first_fault(data, where)
    flipped = flipped_bit(zlib.crc32(data[:-FOOTER_SIZE]) ^ stored_crc(data), len(data))
    if flipped is not None:
        byte, bit = flipped
        mended = bytearray(data)
        mended[byte] ^= 1 << bit
        # Two damages may look like one bit elsewhere: it was that bit only if all is well without it.
        if first_fault(mended, where) is None:
            return SegmentCorrupt(
                f"{where}: bit {bit} of byte {byte} is flipped ({_part_of(mended, byte, where)})", byte=byte
            )
    return found or SegmentCorrupt(
        f"{where} fails its CRC. Every entry fits its own checksum: what is damaged is the checksum at the end, or a part "
        "of an entry that its checksum does not cover"
    )


def first_fault(data: bytes | memoryview | bytearray, where: str) -> SegmentCorrupt | None:
    """Return what is wrong with the segment's first entry that is damaged, its CRC left aside; None if nothing shows."""
    view = memoryview(data)
    last, number = ZERO, 0
    try:
        head = decode_head(view, where)
        for number, place in enumerate(places_of(view, head, where), 1):
            try:
                last = _checked(view[place.start : place.end], last)
            except JournalCorrupt as error:
                return SegmentCorrupt(
                    f"{where}: entry {number} of {head.entries}, at byte {place.head}: {error.detail}",
                    byte=place.head,
                    entry=number,
                    lsn=error.members.get("lsn"),
                )
            if number == 1 and last != head.first:
                return SegmentCorrupt(
                    f"{where}: the head names the first lsn={head.first}, it is {last}", byte=6
                )
    except SegmentCorrupt as error:
        if number:
            return SegmentCorrupt(
                f"{error.detail}; the last entry before that has lsn={last}", **error.members
            )
        return error
    except HeadraceError as error:
        return SegmentCorrupt(f"{where}: byte 4: {error.detail}", byte=4)
    if last != head.last:
        return SegmentCorrupt(f"{where}: the head names the last lsn={head.last}, it is {last}", byte=6)
    return None


def _checked(entry: memoryview, above: Lsn) -> Lsn:
    """Return the entry's LSN; JournalCorrupt if key or value don't fit its checksum, or other fields contradict the LSN."""
    lsn = check_slices([memoryview(b"\x0a" + varint.encode(len(entry)) + entry)], above)
    message = bare_message_of(entry)
    if message.committed_at_ms != lsn.committed_at_ms or message.hlc_ts not in {0, lsn.global_ts}:
        raise JournalCorrupt(f"the entry at lsn={lsn} has the times of another one", lsn=str(lsn))
    return lsn


def _part_of(data: bytearray, byte: int, where: str) -> str:
    """Say what of a sound segment the byte is in."""
    view = memoryview(data)
    head = decode_head(view, where)
    if byte < head.size:
        return "in the head"
    for number, place in enumerate(places_of(view, head, where), 1):
        if byte < place.end:
            return f"in entry {number} of {head.entries}, lsn={bare_message_of(view[place.start : place.end]).lsn}"
    return "in the checksum"


def flipped_bit(syndrome: int, size: int) -> tuple[int, int] | None:
    """Return (byte, bit) of the one flipped bit that makes a file of ``size`` bytes fail its CRC so; None if there is none.

    ``syndrome``: the CRC of all but the last 4 bytes, exclusive-or the one stored in those. A flipped bit multiplies the
    polynomial 1 by x once for every bit behind it, so the distance to the end is a discrete logarithm, found by steps of
    one and of 65,536 (files above 512 MB have several answers; the one next to the end is taken).
    """
    near, back = _logarithms()
    for stride in range((8 * size >> _STRIDE_BITS) + 1):
        if syndrome in near:
            exponent = near[syndrome] + (stride << _STRIDE_BITS)
            # 32 bits of remainder come behind the bits that the CRC is of; the checksum is stored highest byte first.
            if exponent < 32:
                return size - 1 - (31 - exponent) // 8, (31 - exponent) % 8
            byte = size - FOOTER_SIZE - 1 - (exponent - 32) // 8
            return (byte, 7 - (exponent - 32) % 8) if byte >= 0 else None
        syndrome = back(syndrome)
    return None


@lru_cache(maxsize=1)
def _logarithms() -> tuple[dict[int, int], Callable[[int], int]]:
    """Return the first powers of x with their exponents, and what divides by x so many times."""
    near: dict[int, int] = {}
    power = _ONE
    for exponent in range(1 << _STRIDE_BITS):
        near[power] = exponent
        power = _times_x(power)
    return near, _repeated(_over_x, _STRIDE_BITS)


def _times_x(value: int) -> int:
    return value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)


def _over_x(value: int) -> int:
    return (value ^ _POLYNOMIAL) << 1 | 1 if value & _ONE else value << 1


def _repeated(step: Callable[[int], int], doublings: int) -> Callable[[int], int]:
    """Return the linear ``step`` done ``2**doublings`` times over, as one lookup for each byte of a value."""
    images = [step(1 << bit) for bit in range(32)]
    for _ in range(doublings):
        images = [_combined(images, image) for image in images]
    tables = [[_combined(images, byte << shift) for byte in range(256)] for shift in (0, 8, 16, 24)]
    low, second, third, high = tables

    def many(value: int) -> int:
        return low[value & 255] ^ second[value >> 8 & 255] ^ third[value >> 16 & 255] ^ high[value >> 24]

    return many


def _combined(images: list[int], value: int) -> int:
    total = 0
    while value:
        bit = value & -value
        total ^= images[bit.bit_length() - 1]
        value ^= bit
    return total
