"""Where every entry of a KWAL segment stands, found without a step of Python for each.

Sizes stand before the entries, so each place follows from the one before it. The walk therefore begins at many places at
once, wherever the bytes look like the beginning of an entry, and afterwards proves that all of it is one chain. If it is not
(bytes inside a value may look like an entry, foreign writers lay entries out otherwise), places are found one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace.errors import JournalCorrupt
from headrace.wire import varint
from headrace.wire.kwal import FOOTER_SIZE, SegmentHead, places_of
from headrace.wire.walk import Ints

LANE_BYTES: Final = 32 << 10
"""How far apart the walk begins, at least: some hundred entries in a lane, some thousand lanes in a segment."""
_STEPS_MAX: Final = 4_096
"""Most entries of a lane: the smallest ones, twice over. A lane that is longer has missed its end."""
_SIZE_BYTES_MAX: Final = 4
"""Bytes of a size: entries have a few MiB at most."""
_BEGIN: Final = re.compile(rb"\x0a\x26[0-9a-f]{16}\.[0-9]{10}\.[0-9]{10}")
"""The first field of an entry as our server writes it: its LSN."""


def find_entries(data: bytes | memoryview, head: SegmentHead, where: str) -> tuple[Ints, Ints]:
    """Return the bytes at which the segment's entries begin, their sizes left out, and those behind their ends.

    SegmentCorrupt, naming ``where`` and the byte, if the entries don't fill the segment.
    """
    buffer = np.frombuffer(data, np.uint8)
    limit = len(data) - FOOTER_SIZE
    anchors = np.asarray([head.size, *_anchors(data, head.size, limit)], np.int64)
    found = _chained(buffer, anchors, limit)
    if found is not None and len(found[0]) == head.entries:
        return found
    places = np.asarray([place[1:] for place in places_of(data, head, where)], np.int64)
    return places[:, 0].copy(), places[:, 1].copy()


def _anchors(data: bytes | memoryview, begin: int, limit: int) -> Iterator[int]:
    """Yield bytes at which entries seem to begin, size included, at least :data:`LANE_BYTES` apart."""
    at = begin + LANE_BYTES
    while (match := _BEGIN.search(data, at, limit)) is not None:
        anchor = _anchor(data, match.start(), limit)
        if anchor is not None:
            yield anchor
        at = match.start() + (1 if anchor is None else LANE_BYTES)


def _anchor(data: bytes | memoryview, start: int, limit: int) -> int | None:
    """Return where the size of the entry at ``start`` begins: another entry or the end must follow where it says."""
    for width in range(1, _SIZE_BYTES_MAX + 1):
        try:
            size, after = varint.decode(data, start - width)
            end = start + size
            if after != start or end > limit:
                continue
            if end == limit or _BEGIN.match(data, varint.decode(data, end)[1]):
                return start - width
        except JournalCorrupt:
            continue
    return None


def _chained(buffer: NDArray[np.uint8], anchors: Ints, limit: int) -> tuple[Ints, Ints] | None:
    """Walk from each anchor to the next one, all at once: (where entries begin, where they end), in order.

    None unless every walk ends exactly where the next one began, and the last at ``limit``: then all of it is one chain.
    """
    at, stops, lanes = anchors, np.append(anchors[1:], limit), np.arange(len(anchors))
    steps: list[tuple[Ints, Ints, Ints]] = []
    counts = np.zeros(len(anchors), np.int64)
    while len(at):
        sizes, starts = _sizes(buffer, at)
        ends = starts + sizes
        steps.append((lanes, starts, ends))
        counts[lanes] += 1
        going = ends < stops
        if (sizes < 0).any() or (ends > stops).any() or len(steps) > _STEPS_MAX:
            return None
        at, stops, lanes = (ends, stops, lanes) if going.all() else (ends[going], stops[going], lanes[going])
    rows = np.cumsum(counts) - counts
    placed = np.empty((2, int(counts.sum())), np.int64)
    for step, (lanes, starts, ends) in enumerate(steps):
        placed[0][rows[lanes] + step] = starts
        placed[1][rows[lanes] + step] = ends
    return placed[0], placed[1]


def _sizes(buffer: NDArray[np.uint8], at: Ints) -> tuple[Ints, Ints]:
    """Read the sizes at these bytes: (sizes, where they end); -1 for one of more than :data:`_SIZE_BYTES_MAX` bytes."""
    last = len(buffer) - 1
    byte = buffer[np.minimum(at, last)]
    sizes = (byte & 0x7F).astype(np.int64)
    after = at + 1
    more = np.flatnonzero(byte >= 0x80)
    for shift in range(7, 7 * _SIZE_BYTES_MAX, 7):
        if not len(more):
            return sizes, after
        if len(more) == len(at):  # as nearly always at the second byte
            byte = buffer[np.minimum(after, last)]
            sizes |= (byte & 0x7F).astype(np.int64) << shift
            after += 1
            more = np.flatnonzero(byte >= 0x80)
            continue
        byte = buffer[np.minimum(after[more], last)]
        sizes[more] |= (byte & 0x7F).astype(np.int64) << shift
        after[more] += 1
        more = more[byte >= 0x80]
    sizes[more] = -1
    return sizes, after
