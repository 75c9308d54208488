"""Frames that stand in a row, found and verified in one loop: what reading and opening a journal spend their time on.

It takes only what is whole and as it was written. Everything else (damage, a newer format, a frame that is not all there)
ends the row, and is for those who look at one frame with care: :func:`headrace.wire.frame.parse_header` and its callers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import google_crc32c

from headrace.wire.frame import FRAME_BYTES_MAX, HEADER_SIZE, MAGIC, Frame, FrameHeader
from headrace.wire.versions import FRAME

RUN_BYTES: Final = 1 << 18
"""Bytes to look for a row in at a time: enough to make the loop's own costs small, few enough to stay in a core's cache."""

_OWN_CRC = HEADER_SIZE - 4
_PLACED = struct.Struct("<4sxBBxQQQQ16sIIIII16xI")
_READABLE_FROM, _POSITION, _COUNT, _AREA, _BODY, _PAYLOAD_CRC, _CRC = 1, 3, 9, 10, 11, 12, 13


class Run(NamedTuple):
    """Verified frames in a row. ``payloads``: of each, area, body and lengths.

    Two lists instead of pairs: every object that is made for each frame costs Python's garbage collector time, too.
    """

    headers: list[FrameHeader]
    payloads: list[bytes]

    def frames(self) -> list[Frame]:
        """Return them as frames whose parts can be asked for."""
        return list(map(Frame.verified, self.headers, self.payloads))


def intact_run(data: bytes, position: int) -> Run:
    """Return the frames at the beginning of ``data``, whose first byte stands at ``position`` in the journal.

    Each is whole and joins on to the one before it; both copies of its header and its payload fit their checksums. The row
    ends where the next one does not, or at the end of ``data``.
    """
    headers: list[FrameHeader] = []
    payloads: list[bytes] = []
    at, size = 0, len(data)
    unpack, crc, made, newest = _PLACED.unpack_from, google_crc32c.value, tuple.__new__, FRAME.written_as
    while at + 2 * HEADER_SIZE <= size:
        fields = unpack(data, at)
        if fields[0] != MAGIC or fields[_POSITION] != position + at or fields[_READABLE_FROM] > newest:
            break
        payload_at = at + HEADER_SIZE
        payload_end = payload_at + fields[_AREA] + fields[_BODY] + 4 * fields[_COUNT]
        end = payload_end + HEADER_SIZE
        head = data[at:payload_at]
        if end > size or end - at > FRAME_BYTES_MAX or crc(head[:_OWN_CRC]) != fields[_CRC]:
            break
        payload = data[payload_at:payload_end]
        if crc(payload) != fields[_PAYLOAD_CRC] or data[payload_end:end] != head:
            break
        # As in parse_header: made in one step, without the constructor's own Python.
        headers.append(made(FrameHeader, fields[2:_CRC]))
        payloads.append(payload)
        at = end
    return Run(headers, payloads)


def intact_frames(data: bytes, position: int) -> Iterator[Frame]:
    """Yield the frames that :func:`intact_run` finds, without holding the payloads of all of ``data`` at once."""
    at, is_done = 0, False
    while not is_done:
        is_done = True
        for size in (RUN_BYTES, FRAME_BYTES_MAX):
            run = intact_run(data[at : at + size], position + at)
            if run.headers:
                yield from run.frames()
                at, is_done = run.headers[-1].end - position, False
                break
