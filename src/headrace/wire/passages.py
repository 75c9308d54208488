"""When a consumer passed which place: few points that bound the time of every place, kept as bytes. Pure.

A point says "at this time it was exactly here". So what lies behind one point and not behind the next was passed between
their times. Points are taken away with age, so that they stay few: an interval then grows, and still holds the true time.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from headrace.errors import MetadataCorrupt

POINTS_MAX: Final = 48
"""Points that are kept of one consumer: 1,200 bytes. An interval is then about a third of its age long, or a second."""

_POINT: Final = struct.Struct(">QQQB")
_LOW: Final = (1 << 64) - 1


class Point(NamedTuple):
    """At ``at_ms`` (UTC milliseconds) the place was ``place``: a sequence id, a position, or an LSN as an integer.

    ``skipped``: what lies between this point and the one before it may have been passed over, and not handed out.
    """

    place: int
    at_ms: int
    skipped: bool


class Passage(NamedTuple):
    """When a place was passed: after ``after_ms`` (None: that is not known), at ``by_ms`` or earlier.

    ``skipped``: it may have been passed over.
    """

    after_ms: int | None
    by_ms: int
    skipped: bool


def extended(points: Sequence[Point], new: Sequence[Point], points_max: int = POINTS_MAX) -> list[Point]:
    """Return ``points`` with those of ``new`` that are further on, thinned to ``points_max``.

    What lies behind the first of all is not known, so that is ``skipped``. A clock that was set back moves no time back.
    """
    found = list(points)
    for one in new:
        if not found:
            found.append(one._replace(skipped=True))
        elif one.place > found[-1].place:
            found.append(one._replace(at_ms=max(one.at_ms, found[-1].at_ms)))
    while len(found) > points_max:
        _thin(found)
    return found


def returned(points: Sequence[Point], place: int) -> list[Point]:
    """Return what is still true once the consumer has gone back to ``place``: nothing behind that is passed any more."""
    kept = [one for one in points if one.place <= place]
    if len(kept) < len(points) and (not kept or kept[-1].place < place):
        kept.append(points[len(kept)]._replace(place=place))  # by then it had passed what lies up to here
    return kept


def _thin(points: list[Point]) -> None:
    """Take the point away whose absence says the least: whose interval is then the shortest, measured by its age."""
    now = points[-1].at_ms

    def loss(at: int) -> float:
        before, after = points[at - 1].at_ms, points[at + 1].at_ms
        return (after - before + 1) / (now - before + 1)

    at = min(range(1, len(points) - 1), key=loss)
    points[at + 1] = points[at + 1]._replace(skipped=points[at].skipped or points[at + 1].skipped)
    del points[at]


def passage(points: Sequence[Point], place: int) -> Passage | None:
    """Return when ``place`` was passed; None: not yet, as far as is known."""
    for before, point in zip((None, *points), points, strict=False):
        if place <= point.place:
            return Passage(before.at_ms if before is not None else None, point.at_ms, point.skipped)
    return None


def encode_points(points: Sequence[Point]) -> bytes:
    """Return the points as bytes: 25 each, big-endian."""
    return b"".join(_POINT.pack(one.place >> 64, one.place & _LOW, one.at_ms, one.skipped) for one in points)


def decode_points(data: bytes) -> list[Point]:
    """Return the points again; MetadataCorrupt if these are no points in order."""
    if len(data) % _POINT.size:
        raise MetadataCorrupt("a consumer's progress is no list of points")
    points = [
        Point(high << 64 | low, at_ms, bool(skipped))
        for high, low, at_ms, skipped in _POINT.iter_unpack(data)
    ]
    if any(one.place >= two.place for one, two in pairwise(points)):
        raise MetadataCorrupt("a consumer's progress does not go forward")
    return points
