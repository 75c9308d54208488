"""Stored frames -> answers: entries as JSON (RFD 5's ``changes-list``) or as Server-Sent Events, or the stored bytes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from headrace.server.reading import Piece
from headrace.wire.entry import message_of
from headrace.wire.filters import EVERYTHING, EntryFilter
from headrace.wire.frame import Frame
from headrace.wire.rendering import entry_out

ANSWER_BYTES_MAX: Final = 8 << 20
"""Largest ``changes-list`` in bytes of JSON, save that it always holds one entry: bounds what a reader costs at once."""
LIMIT_DEFAULT: Final = 1_000
"""Entries in one answer, unless the reader says otherwise."""

_encode = msgspec.json.Encoder().encode
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")


class Form(StrEnum):
    """What entries are rendered as."""

    LIST = "changes-list"
    EVENTS = "events"


class Portion(NamedTuple):
    """How much of what a reader wants at once: at most ``limit`` entries that pass ``wanted``, and ``bytes_max`` of them."""

    limit: int = LIMIT_DEFAULT
    bytes_max: int = ANSWER_BYTES_MAX
    wanted: EntryFilter = EVERYTHING


@dataclass(frozen=True, slots=True, eq=False)
class Rendered:
    """An answer's bytes. ``last_sequence_id``: the last place that was looked at, which is where the reader is now.

    ``entries``: how many it holds, after the filter. ``encoded``: the same compressed, by content coding, for all who get
    this very answer.
    """

    content: bytes
    first: int
    last_sequence_id: int
    entries: int
    encoded: dict[str, asyncio.Task[bytes]] = field(default_factory=dict)


class _Seen(NamedTuple):
    """How far a piece was looked at: the entries that passed, the last sequence id, and its LSN."""

    parts: int
    last: int
    lsn: str | None


def render(piece: Piece, portion: Portion, form: Form) -> Rendered:
    """Return the entries of ``piece`` that pass, as the body of an answer or as a run of events.

    Where a bound cuts, the cut falls behind a whole source transaction or append if the answer holds a whole one, so that
    nothing is torn that need not be. The reader goes on from ``last_sequence_id``, past what the filter took away.
    """
    parts: list[bytes] = []
    size, wanted = 0, portion.wanted
    seen = _Seen(0, piece.first - 1, None)
    whole: _Seen | None = None
    for sequence_id, stored in _stored(piece):
        message = message_of(stored)
        if wanted is EVERYTHING or wanted.passes(message):
            part = _encode(entry_out(message, sequence_id))
            if parts and (len(parts) == portion.limit or size + len(part) > portion.bytes_max):
                break
            parts.append(part if form is Form.LIST else _event(sequence_id, part))
            size += len(part) + 1
        seen = _Seen(len(parts), sequence_id, message.lsn)
        if message.tx_last or (message.append_end and not message.source_tx):
            whole = seen
    if seen.last < piece.last and whole is not None:
        seen = whole
        del parts[whole.parts :]
    content = _list(piece, parts, seen) if form is Form.LIST else _events(parts, seen)
    return Rendered(content, piece.first, seen.last, len(parts))


def _list(piece: Piece, parts: Sequence[bytes], seen: _Seen) -> bytes:
    bounds = {
        "incarnation": piece.tail.incarnation,
        "head-sequence-id": piece.tail.head,
        "oldest-sequence-id": piece.tail.oldest,
        "last-sequence-id": seen.last,
        "last-lsn": seen.lsn,
    }
    return b'{"changes-list":[' + b",".join(parts) + b"]," + _encode(bounds)[1:]


def _events(parts: Sequence[bytes], seen: _Seen) -> bytes:
    """The events, and behind them the place if a filter skipped it: an id alone moves the reader and dispatches nothing."""
    place = b"id: %d\n" % seen.last
    behind = b"" if parts and parts[-1].startswith(place) else place + b"\n"
    return b"".join(parts) + behind


def _event(sequence_id: int, entry: bytes) -> bytes:
    """One entry as an event. Line ends in the producer's own JSON stand between tokens, so they may become data lines."""
    if b"\n" in entry or b"\r" in entry:
        entry = b"\ndata: ".join(_LINE_END.split(entry))
    return b"id: %d\nevent: change\ndata: %b\n\n" % (sequence_id, entry)


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
