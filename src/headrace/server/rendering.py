"""Stored frames -> answers: the entries as JSON (RFD 5's ``changes-list``), or the stored bytes as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from headrace.server.reading import Piece
from headrace.wire.entry import message_of
from headrace.wire.frame import Frame
from headrace.wire.rendering import entry_out

ANSWER_BYTES_MAX: Final = 8 << 20
"""Largest ``changes-list`` in bytes of JSON, save that it always holds one entry: bounds what a reader costs at once."""

_encode = msgspec.json.Encoder().encode


def changes_list(piece: Piece, limit: int, *, bytes_max: int = ANSWER_BYTES_MAX) -> bytes:
    """Return the ``changes-list`` document of ``piece``: at most ``limit`` entries and ``bytes_max`` bytes of them.

    Where a bound cuts, the cut falls behind a whole source transaction or append if the answer holds a whole one, so that
    nothing is torn that need not be. The reader goes on from the last sequence id that it got.
    """
    parts: list[bytes] = []
    size = whole = 0
    last = piece.first - 1
    for sequence_id, stored in _stored(piece):
        message = message_of(stored)
        part = _encode(entry_out(message, sequence_id))
        if parts and (len(parts) == limit or size + len(part) > bytes_max):
            break
        parts.append(part)
        size += len(part) + 1
        last = sequence_id
        if message.tx_last or (message.append_end and not message.source_tx):
            whole = len(parts)
    if last < piece.last and whole:
        del parts[whole:]
    bounds = {
        "incarnation": piece.tail.incarnation,
        "head-sequence-id": piece.tail.head,
        "oldest-sequence-id": piece.tail.oldest,
    }
    return b'{"changes-list":[' + b",".join(parts) + b"]," + _encode(bounds)[1:]


def stored_frames(frames: Sequence[Frame]) -> bytes:
    """Return whole frames one after another, as they stand in the journal (media type ``application/x-headrace-frames``)."""
    parts: list[bytes | memoryview] = []
    for frame in frames:
        header = frame.header.encode()
        parts += (header, frame.area, frame.body, frame.lengths_bytes, header)
    return b"".join(parts)


def _stored(piece: Piece) -> Iterator[tuple[int, memoryview]]:
    """The stored entries of the piece's range, oldest first; its frames may begin before and end after it."""
    for frame in piece.frames:
        first = frame.header.first_sequence_id
        start = max(0, piece.first - first)
        stop = min(frame.header.count, piece.last - first + 1)
        yield from enumerate(islice(frame.entries(), start, max(start, stop)), first + start)
