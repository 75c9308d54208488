"""WAL entries by hand: the producer encodes its half once, the server puts its half around those bytes.

A stored entry is one ``WalBatch.entries`` field::

    0A len | server's half: 1 lsn, 2 committed_at_ms, 3 tenant_id, 4 key_prefix, 8 hlc_ts, [100 append_end],
             [6 key, 9 checksum]
           | producer's half: 5 op_type (always written: its tag 28 marks where the half begins), 6 key, 7 value,
             9 checksum, 101 … 110

Field order on the wire is free for protobuf readers. The server writes key and checksum only where the producer gave no
key, because then the sequence id is the key. The plain protobuf path is the oracle in the tests.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import google_crc32c
from google.protobuf.message import DecodeError

from headrace.entries.entry import Change, Entry, Op, WireOp
from headrace.entries.hlc import to_ms
from headrace.entries.lsn import Lsn
from headrace.errors import JournalCorrupt
from headrace.wire import varint
from headrace.wire.generated import wal_pb2

HALF_MARK: Final = 0x28
"""Tag of field 5 (op_type): the producer's half begins with it and the server's half never holds it."""

_ENTRIES: Final = 0x0A
_LSN_SIZE: Final = 38
_KEY, _VALUE, _CHECKSUM = b"\x32", b"\x3a", b"\x4a\x04"
_APPEND_END = varint.tag(100, 0) + b"\x01"
_SOURCE_TX, _TX_INDEX, _TX_LAST = varint.tag(101, 2), varint.tag(102, 0), varint.tag(103, 0) + b"\x01"
_SOURCE_TIME, _COPY, _CONTROL = varint.tag(104, 0), varint.tag(105, 0) + b"\x01", varint.tag(106, 2)
_PATCH, _CHANGED = varint.tag(107, 0) + b"\x01", varint.tag(108, 2)
_BEFORE, _TABLE = varint.tag(109, 2), varint.tag(110, 2)


def _sized(head: bytes, data: bytes) -> bytes:
    return head + varint.encode(len(data)) + data


def checksum(key: bytes, value: bytes) -> bytes:
    """Return CRC-32C of key + value, 4 bytes big-endian (RFC-010 §3)."""
    return int(google_crc32c.extend(google_crc32c.value(key), value)).to_bytes(4, "big")


def encode_half(change: Change) -> bytes:
    """Return the producer's half of an entry; deterministic, so that equal changes are equal bytes."""
    parts = [bytes((HALF_MARK, change.op.wire))]
    if change.key is not None:
        parts.append(_sized(_KEY, change.key))
    if change.value:
        parts.append(_sized(_VALUE, change.value))
    if change.key is not None:
        parts.append(_CHECKSUM + checksum(change.key, change.value))
    if change.source_tx:
        parts.append(_sized(_SOURCE_TX, change.source_tx))
    if change.tx_index:
        parts.append(_TX_INDEX + varint.encode(change.tx_index))
    if change.tx_last:
        parts.append(_TX_LAST)
    if change.source_time_ms:
        parts.append(_SOURCE_TIME + varint.encode(change.source_time_ms))
    if change.copy:
        parts.append(_COPY)
    if change.control:
        parts.append(_sized(_CONTROL, change.control.encode()))
    if change.op is Op.PATCH:
        parts.append(_PATCH)
    parts.extend(_sized(_CHANGED, name.encode()) for name in change.changed)
    if change.before is not None:
        parts.append(_sized(_BEFORE, change.before))
    parts.extend(_sized(_TABLE, name.encode()) for name in change.table)
    return b"".join(parts)


def has_key(half: bytes | memoryview) -> bool:
    """Tell whether a producer's half names its key; if not, the server stamps the sequence id as the key."""
    return half[2:3] == _KEY


def digest(halves: Sequence[bytes | memoryview]) -> bytes:
    """Return the 128-bit digest of the producer's halves of one append, boundaries included."""
    sizes = _SIZES
    parts = [part for half in halves for part in (sizes[len(half)], half)]
    return blake2b(b"".join(parts), digest_size=16).digest()


class _Sizes(dict[int, bytes]):
    """Sizes as u32 little-endian; the small ones, which come again and again, are kept."""

    def __missing__(self, size: int) -> bytes:
        encoded = size.to_bytes(4, "little")
        if size < _SIZES_MAX:
            self[size] = encoded
        return encoded


_SIZES_MAX: Final = 1 << 14
_SIZES: Final = _Sizes()


def stamp(
    halves: Sequence[bytes],
    *,
    global_ts: int,
    region_id: int,
    first_sequence_id: int,
    tenant: str,
    key_prefix: str,
) -> tuple[bytes, bytes]:
    """Put the server's half around the producer's halves.

    Returns (body, lengths): the concatenated ``entries`` fields, and their sizes as u32 little-endian. The entries share
    ``global_ts``; it grows by one where ``raft_index`` wraps (see :func:`headrace.entries.lsn.lsn_of`).
    """
    names = _names(tenant, key_prefix)
    parts: list[bytes] = []
    lengths = array("I")
    ts, low = global_ts, first_sequence_id & 0xFFFFFFFF
    last = len(halves) - 1
    form, stored, size = b"", 0, -1  # of the last entry that had a key: what follows is mostly of its size
    forms: dict[int, tuple[bytes, int]] = {}  # of the other sizes
    for index, half in enumerate(halves):
        if low > 0xFFFFFFFF:
            ts, low, size = ts + 1, 0, -1
            forms.clear()
        if len(half) != size or half[2] != _KEY[0] or index == last:
            size = len(half)
            if index < last and has_key(half):
                known = forms.get(size)
                if known is None:
                    known = forms[size] = _form(ts, region_id, names, b"", size)
                form, stored = known
            else:
                own = _APPEND_END if index == last else b""
                if not has_key(half):
                    key = str(first_sequence_id + index).encode()
                    own += _sized(_KEY, key) + _CHECKSUM + checksum(key, _value_of(half))
                form, stored = _form(ts, region_id, names, own, size)
                size = -1
        parts += (form % low, half)
        lengths.append(stored)
        low += 1
    return b"".join(parts), lengths_bytes(lengths)


def _form(ts: int, region_id: int, names: bytes, own: bytes, half_size: int) -> tuple[bytes, int]:
    """Return what stands before a half of this size, as a format of ``raft_index``, and the size of the stored entry."""
    head = f"{ts:016x}.{region_id:010d}.".encode()
    tail = b"\x10" + _ms(to_ms(ts)) + names + b"\x40" + varint.encode(ts) + own
    size = varint.encode(2 + _LSN_SIZE + len(tail) + half_size)
    form = (b"\x0a" + size + b"\x0a\x26" + head).replace(b"%", b"%%") + b"%010d" + tail.replace(b"%", b"%%")
    return form, 1 + len(size) + 2 + _LSN_SIZE + len(tail) + half_size


@lru_cache(maxsize=8)
def _ms(ms: int) -> bytes:
    return varint.encode(ms)


@lru_cache(maxsize=4096)
def _names(tenant: str, key_prefix: str) -> bytes:
    return _sized(b"\x1a", tenant.encode()) + _sized(b"\x22", key_prefix.encode())


def _value_of(half: bytes) -> bytes:
    if half[2:3] != _VALUE:
        return b""
    size, at = varint.decode(half, 3)
    return half[at : at + size]


def lengths_bytes(lengths: array[int]) -> bytes:
    """Return a u32 array as little-endian bytes, whatever this machine's byte order."""
    if sys.byteorder == "big":
        lengths = lengths[:]
        lengths.byteswap()
    return lengths.tobytes()


def slices(body: memoryview, lengths: Sequence[int]) -> Iterator[memoryview]:
    """Yield each entry's ``entries`` field (tag and size included) out of a frame's body; nothing is copied."""
    at = 0
    for size in lengths:
        yield body[at : at + size]
        at += size
    if at != len(body):
        raise JournalCorrupt(f"the entry lengths add up to {at} bytes, the body has {len(body)}")


def half_of(stored: memoryview) -> memoryview:
    """Return the producer's half of a stored entry (an ``entries`` field): what the server did not stamp."""
    _, at = varint.decode(stored, 1)
    while at < len(stored) and stored[at] != HALF_MARK:
        number, at = varint.decode(stored, at)
        if number & 7 == 2:
            size, at = varint.decode(stored, at)
            at += size
        elif number & 7 == 0:
            _, at = varint.decode(stored, at)
        else:
            raise JournalCorrupt(f"a stored entry has a field of wire type {number & 7} at byte {at}")
    return stored[at:]


def message_of(stored: memoryview) -> wal_pb2.WalEntry:
    """Return the stored entry (an ``entries`` field) as a protobuf message; JournalCorrupt if it is none."""
    size, at = varint.decode(stored, 1)
    if stored[0] != _ENTRIES or at + size != len(stored):
        raise JournalCorrupt("a stored entry does not end where its length says")
    return bare_message_of(stored[at:])


def bare_message_of(data: memoryview) -> wal_pb2.WalEntry:
    """Return a WalEntry, as KWAL segments have it, as a protobuf message; JournalCorrupt if it is none."""
    try:
        return wal_pb2.WalEntry.FromString(bytes(data))
    except DecodeError as error:
        raise JournalCorrupt(f"a stored entry is not a WalEntry: {error}") from None


def decode_entry(stored: memoryview, sequence_id: int) -> Entry:
    """Return the stored entry (an ``entries`` field) that has this sequence id as a value."""
    message = message_of(stored)
    try:
        change = change_of(message)
    except ValueError:
        raise JournalCorrupt(f"a stored entry has the unknown op_type {message.op_type}") from None
    return Entry(
        sequence_id=sequence_id,
        lsn=Lsn.parse(message.lsn),
        tenant_id=message.tenant_id,
        key_prefix=message.key_prefix,
        append_end=message.append_end,
        change=change,
    )


def change_of(message: wal_pb2.WalEntry) -> Change:
    """Return the producer's part of a message; ValueError for an op_type that nobody knows."""
    return Change(
        value=message.value,
        key=message.key,
        op=Op.PATCH if message.patch else Op[WireOp(message.op_type).name],
        source_tx=message.source_tx,
        tx_index=message.tx_index,
        tx_last=message.tx_last,
        source_time_ms=message.source_time_ms,
        copy=message.copy,
        control=message.control,
        changed=tuple(message.changed),
        before=message.before if message.HasField("before") else None,
        table=tuple(message.table),
    )
