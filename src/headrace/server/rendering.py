"""Stored frames -> answers: the entries as JSON (RFD 5's ``changes-list``), or the stored bytes as they are."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from headrace.entries.entry import WireOp
from headrace.server.decoding import TIME_MS_MAX
from headrace.server.reading import Piece
from headrace.wire.documents import EntryOut, rfc3339
from headrace.wire.entry import message_of
from headrace.wire.frame import Frame
from headrace.wire.generated import wal_pb2

ANSWER_BYTES_MAX: Final = 8 << 20
"""Largest ``changes-list`` in bytes of JSON, save that it always holds one entry: bounds what a reader costs at once."""

_OPS: Final = {kind.value: kind.name.lower() for kind in WireOp}
_encode = msgspec.json.Encoder().encode
_raw = msgspec.json.Decoder(msgspec.Raw)


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


def entry_out(message: wal_pb2.WalEntry, sequence_id: int) -> EntryOut:
    """Return a stored entry as a reader gets it; bytes that are no text or no JSON go out as base64."""
    out = EntryOut(
        sequence_id=sequence_id,
        lsn=message.lsn,
        committed_at=_time(message.committed_at_ms),
        op="patch" if message.patch else _OPS.get(message.op_type, str(message.op_type)),
    )
    out.changes, out.changes_base64 = _json(message.value)
    out.key, out.key_base64 = _text(message.key)
    if message.source_tx:
        out.tx, out.tx_base64 = _text(message.source_tx)
    if message.source_tx or message.tx_index or message.tx_last:
        out.tx_index, out.tx_last = message.tx_index, message.tx_last
    if message.HasField("before"):
        out.before, out.before_base64 = _json(message.before)
    if message.source_time_ms:
        out.source_time = _time(message.source_time_ms)
    if message.changed:
        out.changed = list(message.changed)
    if message.table:
        out.table = list(message.table)
    if message.copy:
        out.copy = True
    if message.control:
        out.control = message.control
    return out


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


def _json(data: bytes) -> tuple[msgspec.Raw | UnsetType, str | UnsetType]:
    try:
        data.decode()
        _raw.decode(data)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return UNSET, base64.b64encode(data).decode()
    return msgspec.Raw(data), UNSET


def _text(data: bytes) -> tuple[str | UnsetType, str | UnsetType]:
    try:
        return data.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, base64.b64encode(data).decode()


@lru_cache(maxsize=1024)
def _time(ms: int) -> str:
    """Entries of an append share their time. A foreign writer may give any u64; what RFC 3339 can't say goes out as ms."""
    return rfc3339(ms) if ms <= TIME_MS_MAX else str(ms)
