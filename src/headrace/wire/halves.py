"""Producers' halves on their way to the server (``AppendRequest.entries``): joined by the client, split and checked here.

Each is one ``entries`` field: ``0A len`` and the half as :func:`headrace.wire.entry.encode_half` lays it out. Only that
layout is taken, byte for byte: a retry is recognised by its bytes, whichever face it came over. Most entries are
``28 op | 32 key | 3A value | 4A checksum`` and are checked by slices; all others are read by protobuf and encoded again.
"""

from __future__ import annotations

import dataclasses
import sys
from array import array
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

import google_crc32c
from google.protobuf.message import DecodeError

from headrace.entries.entry import CONTROL_PREFIX, Change, WireOp
from headrace.errors import InvalidRequest, TooLarge
from headrace.wire import varint
from headrace.wire.entry import change_of, checksum, encode_half, has_key, lengths_bytes
from headrace.wire.generated import wal_pb2

_CHECKSUM_SIZE: Final = 6  # 4A 04 and four bytes
_SHAPES_MAX: Final = 4096
_SERVER_FIELDS: Final = {"lsn", "committed_at_ms", "tenant_id", "key_prefix", "hlc_ts", "append_end"}


class Halves(NamedTuple):
    """The producer's halves of one append, and the indexes of those that end a source transaction."""

    halves: list[bytes]
    transaction_ends: list[int]


def join_halves(halves: Iterable[bytes]) -> tuple[bytes, bytes]:
    """Return (entries, entry_lengths) of an ``AppendRequest``: the fields one behind the other, and the size of each."""
    parts: list[bytes] = []
    sizes = array("I")
    for half in halves:
        head = b"\x0a" + varint.encode(len(half))
        parts += (head, half)
        sizes.append(len(head) + len(half))
    return b"".join(parts), lengths_bytes(sizes)


def split_halves(entries: bytes, lengths: bytes, *, entries_max: int, entry_bytes_max: int) -> Halves:
    """Return the halves that stand in ``entries``, every one of them checked.

    Raises TooLarge, and InvalidRequest with the ``index`` of the first entry at fault: sizes that don't add up, another
    layout, a field that only the server stamps, a checksum that is not that of key and value.
    """
    sizes = _sizes(entries, lengths, entries_max)
    halves: list[bytes] = []
    ends: list[int] = []
    crc = google_crc32c.value
    at = seen = 0
    head = b""
    for index, size in enumerate(sizes):
        if size != seen:
            seen, head = size, _head(size, index)
        end = at + size
        start = at + len(head)
        half = entries[start:end]
        if not entries.startswith(head, at):
            raise _wrong(index, "is no entries field of the length that entry_lengths says")
        if len(half) > entry_bytes_max:
            raise TooLarge(
                f"entries[{index}] takes {len(half)} bytes; the most is {entry_bytes_max}",
                index=index,
                entry_bytes_max=entry_bytes_max,
            )
        at = end
        halves.append(half)
        if half[:3] in _PLAIN and len(half) >= _PLAIN_SIZE_MIN:
            shape = _shape(len(half), half[3])
            if shape is not None and half.startswith(shape.middle, shape.key_end):
                key_and_value = half[4 : shape.key_end] + half[shape.value_at : -_CHECKSUM_SIZE]
                if half[-_CHECKSUM_SIZE:] == b"\x4a\x04" + crc(key_and_value).to_bytes(4, "big"):
                    if half[3] and half[4] == 0:
                        raise _wrong(index, "only a control entry's key may begin with a zero byte")
                    continue
        if _check(half, index).tx_last:
            ends.append(index)
    return Halves(halves, ends)


_PLAIN: Final = (b"\x28\x00\x32", b"\x28\x01\x32")
_PLAIN_SIZE_MIN: Final = 4 + _CHECKSUM_SIZE


class _Shape(NamedTuple):
    """Where the parts of a plain half of a certain size and key size stand."""

    key_end: int
    middle: bytes
    value_at: int


@lru_cache(maxsize=_SHAPES_MAX)
def _shape(size: int, key_size: int) -> _Shape | None:
    """``28 op 32 key_size key [3A value_size value] 4A 04 checksum`` of ``size`` bytes; None if there is none."""
    key_end = 4 + key_size
    left = size - key_end - _CHECKSUM_SIZE
    if key_size >= 0x80 or left < 0:
        return None
    if left == 0:
        return _Shape(key_end, b"\x4a\x04", key_end)
    for digits in (1, 2, 3, 4):
        value_size = left - 1 - digits
        middle = b"\x3a" + varint.encode(max(0, value_size))
        if value_size > 0 and len(middle) == 1 + digits:
            return _Shape(key_end, middle, key_end + len(middle))
    return None


def _sizes(entries: bytes, lengths: bytes, entries_max: int) -> array[int]:
    if not lengths or len(lengths) % 4:
        raise InvalidRequest(
            f"entry_lengths: {len(lengths)} bytes are no list of u32", member="entry_lengths"
        )
    if len(lengths) > 4 * entries_max:
        raise TooLarge(
            f"{len(lengths) // 4} entries in one append; the most is {entries_max}", entries_max=entries_max
        )
    sizes = array("I")
    sizes.frombytes(lengths)
    if sys.byteorder == "big":
        sizes.byteswap()
    if sum(sizes) != len(entries):
        raise InvalidRequest(
            f"entry_lengths: they add up to {sum(sizes)} bytes, but entries has {len(entries)}",
            member="entry_lengths",
        )
    return sizes


def _head(size: int, index: int) -> bytes:
    """Tag and length of an ``entries`` field that has ``size`` bytes in all."""
    for digits in (1, 2, 3, 4, 5):
        head = b"\x0a" + varint.encode(max(0, size - 1 - digits))
        if len(head) == 1 + digits and size > len(head):
            return head
    raise _wrong(index, f"can't have a field of {size} bytes")


def _check(half: bytes, index: int) -> Change:
    """Return the change that a half says, if it says it in the one layout that is taken."""
    try:
        message = wal_pb2.WalEntry.FromString(half)
    except DecodeError:
        raise _wrong(index, "is not a WalEntry") from None
    try:
        change = change_of(message)
    except ValueError:
        raise _wrong(index, f"has the unknown op_type {message.op_type}") from None
    stamped = sorted(_SERVER_FIELDS & {field.name for field, _ in message.ListFields()})
    if stamped:
        raise _wrong(index, f"has the field {stamped[0]}, which only the server writes")
    if not has_key(half):
        change = dataclasses.replace(change, key=None)
    elif message.checksum != checksum(message.key, message.value):
        raise _wrong(index, "has a checksum that is not the CRC-32C of its key and value")
    _check_control(change, index)
    if change.op.wire is WireOp.BATCH:
        _check_batch(change.value, index)
    if encode_half(change) != half:
        raise _wrong(
            index,
            "is not laid out as a producer's half: op_type first, then key, value, checksum and the rest by number, each "
            "once, without defaults and in the shortest form",
        )
    return change


def _check_control(change: Change, index: int) -> None:
    reserved = change.key is not None and change.key.startswith(CONTROL_PREFIX)
    if change.control and not reserved:
        raise _wrong(index, "is a control entry, so its key must begin with a zero byte")
    if reserved and not change.control:
        raise _wrong(index, "only a control entry's key may begin with a zero byte")


def _check_batch(value: bytes, index: int) -> None:
    try:
        batch = wal_pb2.BatchWrite.FromString(value)
    except DecodeError:
        raise _wrong(index, "is an OP_BATCH whose value is no BatchWrite") from None
    for mutation in batch.mutations:
        if mutation.op not in {wal_pb2.OP_PUT, wal_pb2.OP_DELETE}:
            raise _wrong(index, "is an OP_BATCH with a mutation that is neither put nor delete")
        if mutation.key.startswith(CONTROL_PREFIX):
            raise _wrong(index, "is an OP_BATCH with a mutation whose key begins with a zero byte")


def _wrong(index: int, what: str) -> InvalidRequest:
    return InvalidRequest(f"entries[{index}] {what}", member="entries", index=index)
