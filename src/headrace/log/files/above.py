"""What stands above the mark: what must have been durable, what is intact, and what may be the torn end. Pure.

A group is written only after the one before it was synced. So a frame that tells of a later group says that everything
before its own group was durable, whatever is damaged there: that is no torn end.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from headrace.log.files.scan import Hole, scan
from headrace.wire.frame import FrameHeader, parse_header
from headrace.wire.run import intact_frames
from headrace.wire.segment import INDEX_MAGIC

GROUP_TICKS_MAX: Final = 1 << 16
"""Frames of one group have timestamps that follow each other: none of them is later than another by more than this. It is a
quarter of a millisecond, so groups of different milliseconds are told apart while the clock does not lead the wall's."""


def durable_end(above: bytes, position: int) -> int | None:
    """Return up to where the frames of ``above``, whose first byte stands at ``position``, were durable for certain.

    None where nobody can tell: what can be read there may all be of one group, which a crash can tear. FormatTooNew.
    """

    def read(at: int, size: int) -> bytes:
        return above[at - position : at - position + size]

    found = scan(read, position, position + len(above))
    headers = [one[0] for one in found if not isinstance(one, Hole)]
    newest = headers[-1].global_ts if headers else 0
    ends = [one.end for one in headers if newest - one.last_global_ts > GROUP_TICKS_MAX]
    return ends[-1] if ends else None


def acknowledged_end(above: bytes, position: int) -> int:
    """Return the greatest :func:`durable_end` behind whatever is intact; ``position`` if all that is damaged may be torn."""
    end = at = position
    while (found := durable_end(above[at - position :], at)) is not None:
        end = found
        at = end + intact_above(above[end - position :], end)
    return end


def intact_above(above: bytes, position: int) -> int:
    """Return how many bytes of ``above``, which stand from ``position`` on, are intact frames in a row; FormatTooNew."""
    size = sum(frame.header.size for frame in intact_frames(above, position))
    parse_header(above, size, stands=partial(_stands_at, position + size))  # FormatTooNew is no torn end
    return size


def is_index(torn: bytes) -> bool:
    """Tell whether this is the index of a segment that was being sealed, or nothing: no frame was torn there."""
    return not torn or torn.startswith(INDEX_MAGIC)


def _stands_at(position: int, header: FrameHeader) -> bool:
    return header.position == position
