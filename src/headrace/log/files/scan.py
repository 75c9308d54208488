"""Frames found despite damage: by a header's second copy, or by the next header that stands where it says it does.

Pure: bytes come from ``read(position, size)``, which returns fewer at the end of what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from headrace.wire.frame import FRAME_BYTES_MAX, HEADER_SIZE, MAGIC, FrameHeader, parse_header

Read = Callable[[int, int], bytes]

CHUNK_BYTES: Final = 8 << 20


class Hole(NamedTuple):
    """Positions ``position`` … ``end`` - 1, where no frame can be made out: both its headers are damaged."""

    position: int
    end: int


def header_at(read: Read, position: int, stop: int) -> FrameHeader | None:
    """Return the header of the frame at ``position``, from its second copy if need be; None if both are damaged."""
    header = parse_header(read(position, HEADER_SIZE))
    if header is not None and header.position == position:
        return header
    return spare_header(read(position, min(FRAME_BYTES_MAX, stop - position)), position)


def spare_header(data: bytes, position: int) -> FrameHeader | None:
    """Return the second header of the frame that begins at ``data[0]`` = ``position``; None if it is damaged too."""
    at = data.find(MAGIC, HEADER_SIZE)
    while at >= 0:
        header = parse_header(data, at, stands=partial(_ends_or_follows, position, at))
        if header is not None:
            # The next frame begins here: both headers of this one are damaged.
            return None if header.position == position + at else header
        at = data.find(MAGIC, at + 1)
    return None


def _ends_or_follows(position: int, at: int, header: FrameHeader) -> bool:
    ends = header.position == position and header.size == at + HEADER_SIZE
    return ends or header.position == position + at


def next_frame(read: Read, position: int, stop: int) -> int:
    """Return where the first frame after ``position`` begins that either of its headers tells of; ``stop`` if none."""
    base = position + 1
    while base < stop:
        data = read(base, min(CHUNK_BYTES + HEADER_SIZE, stop - base))
        at = data.find(MAGIC)
        while at >= 0:
            header = parse_header(data, at, stands=partial(_stands_at, base + at))
            if header is not None and position < header.position:
                return header.position
            at = data.find(MAGIC, at + 1)
        base += CHUNK_BYTES
    return stop


def scan(read: Read, position: int, stop: int) -> Iterator[tuple[FrameHeader, bytes] | Hole]:
    """Yield each frame of ``position`` … ``stop`` - 1 as (header, its bytes), and a :class:`Hole` where there is none.

    The bytes begin with an intact header even where only the second copy was one; the payload is not verified. A frame
    that reaches beyond ``stop`` is the last and comes short.
    """
    buffer, base = b"", position
    while position < stop:
        if position + HEADER_SIZE > base + len(buffer):
            buffer, base = read(position, min(CHUNK_BYTES, stop - position)), position
        header = parse_header(buffer, position - base)
        if header is None or header.position != position:
            found = frame_or_hole(read, position, stop)
            yield found
            position = found.end if isinstance(found, Hole) else found[0].end
            buffer, base = b"", position
            continue
        if header.end > base + len(buffer):
            size = min(max(header.size, CHUNK_BYTES), stop - position)
            buffer, base = read(position, size), position
        yield header, buffer[position - base : position - base + header.size]
        position = header.end


def frame_or_hole(read: Read, position: int, stop: int) -> tuple[FrameHeader, bytes] | Hole:
    """Return what stands at ``position``, below ``stop``, as :func:`scan` yields it."""
    header = header_at(read, position, stop)
    if header is None:
        return Hole(position, next_frame(read, position, stop))
    data = read(position, min(header.size, stop - position))
    is_damaged = parse_header(data) != header
    return header, data[-HEADER_SIZE:] + data[HEADER_SIZE:] if is_damaged else data


def _stands_at(position: int, header: FrameHeader) -> bool:
    """Is this one of the two places where this header belongs?"""
    return position in {header.position, header.end - HEADER_SIZE}
