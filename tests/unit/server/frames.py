"""Stored frames made without a log, for the tests of what reads them."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.entries.entry import Change
from headrace.log.tail import FeedTail
from headrace.server.reading import Piece
from headrace.wire.entry import digest, encode_half, stamp
from headrace.wire.frame import Frame, FrameHeader, encode_frame

GLOBAL_TS = 1_790_000_000_000 << 18


def frame_of(first: int, changes: Sequence[Change]) -> Frame:
    """One stored append whose first entry has sequence id ``first``."""
    halves = [encode_half(change) for change in changes]
    body, lengths = stamp(
        halves,
        global_ts=GLOBAL_TS + first,
        region_id=1,
        first_sequence_id=first,
        tenant="default",
        key_prefix="local:default:feed:",
    )
    header = FrameHeader(0, 256, first, GLOBAL_TS + first, 1, digest(halves), 1, len(halves), 0, 0, 0)
    return Frame(encode_frame(header, b"", body, lengths))


def piece_of(
    *appends: Sequence[Change], begins: int = 1, first: int | None = None, last: int | None = None
) -> Piece:
    """The appends of a feed that begins at ``begins``, as read for ``first`` … ``last`` (default: all)."""
    frames, at = [], begins
    for changes in appends:
        frames.append(frame_of(at, changes))
        at += len(changes)
    tail = FeedTail(
        name="feed",
        region_id=1,
        tenant="default",
        incarnation="incarnation-1",
        owner="agent-1",
        instance="agent-1",
        epoch=1,
        next_sequence_id=at,
        first_sequence_id=begins,
    )
    return Piece(tail, frames, begins if first is None else first, at - 1 if last is None else last)
