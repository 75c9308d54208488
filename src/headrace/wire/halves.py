"""Producers' halves on their way to the server (``AppendRequest.entries``): joined by the client, split and checked here.

Each is one ``entries`` field: ``0A len`` and the half as :func:`headrace.wire.entry.encode_half` lays it out. Only that
layout is taken, byte for byte: a retry is recognised by its bytes, whichever face it came over. Most entries are
``28 op | 32 key | 3A value | 4A checksum``, or such with what a row of a transaction has behind it: these are checked by
slices. All others are read by protobuf and encoded again.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

import google_crc32c
import msgspec
from google.protobuf.message import DecodeError

from headrace.entries.entry import CONTROL_PREFIX, Change, WireOp
from headrace.errors import InvalidRequest, TooLarge
from headrace.wire import varint
from headrace.wire.entry import change_of, checksum, encode_half, has_key, lengths_bytes
from headrace.wire.generated import wal_pb2
from headrace.wire.row_halves import ends_transaction

_CHECKSUM: Final = b"\x4a\x04"
_CHECKSUM_SIZE: Final = 6  # its tag, its length and four bytes
_CHECKSUM_FIELD: Final = struct.Struct(">HI")
_CHECKSUM_TAG: Final = 0x4A04
_PLAIN: Final = (b"\x28\x00\x32", b"\x28\x01\x32")
_PLAIN_SIZE_MIN: Final = 4 + _CHECKSUM_SIZE
_TWO_DIGITS: Final = 0x80
"""A varint that is no smaller takes more than one byte."""
_SHAPES_MAX: Final = 4096
_SERVER_FIELDS: Final = {"lsn", "committed_at_ms", "tenant_id", "key_prefix", "hlc_ts", "append_end"}


class Halves(NamedTuple):
    """The producer's halves of one append, and the indexes of those that end a source transaction."""

    halves: list[bytes]
    transaction_ends: list[int]


class Joined(NamedTuple):
    """The entries of one append as an ``AppendRequest`` carries them: the fields one behind the other, and their sizes."""

    entries: bytes
    lengths: bytes


def join_halves(halves: Iterable[bytes]) -> Joined:
    """Return the halves as an ``AppendRequest`` carries them."""
    parts: list[bytes] = []
    sizes = array("I")
    for half in halves:
        head = b"\x0a" + varint.encode(len(half))
        parts += (head, half)
        sizes.append(len(head) + len(half))
    return Joined(b"".join(parts), lengths_bytes(sizes))


def join_puts(pairs: Iterable[tuple[bytes, bytes]]) -> Joined:
    """Return puts of (key, value) as an ``AppendRequest`` carries them, without an object for each.

    The same bytes as ``join_halves(encode_half(Change(value, key=key)) for key, value in pairs)``.
    """
    parts: list[bytes] = []
    sizes = array("I")
    crc = google_crc32c.value
    key_size = value_size = -1
    head = middle = b""
    size = 0
    for key, value in pairs:
        if len(key) != key_size or len(value) != value_size:
            key_size, value_size = len(key), len(value)
            head, middle, size = _put_form(key_size, value_size)
        parts += (head, key, middle, value, _CHECKSUM, crc(key + value).to_bytes(4, "big"))
        sizes.append(size)
    return Joined(b"".join(parts), lengths_bytes(sizes))


@lru_cache(maxsize=_SHAPES_MAX)
def _put_form(key_size: int, value_size: int) -> tuple[bytes, bytes, int]:
    """What stands before a put's key and before its value, and the size of its ``entries`` field."""
    head = b"\x28\x00\x32" + varint.encode(key_size)
    middle = b"\x3a" + varint.encode(value_size) if value_size else b""
    size = len(head) + key_size + len(middle) + value_size + _CHECKSUM_SIZE
    field = b"\x0a" + varint.encode(size)
    return field + head, middle, len(field) + size


def split_halves(entries: bytes, lengths: bytes, *, entries_max: int, entry_bytes_max: int) -> Halves:
    """Return the halves that stand in ``entries``, every one of them checked.

    Raises TooLarge, and InvalidRequest with the ``index`` of the first entry at fault: sizes that don't add up, another
    layout, a field that only the server stamps, a checksum that is not that of key and value.
    """
    halves: list[bytes] = []
    ends: list[int] = []
    crc, checksum_at = google_crc32c.value, _CHECKSUM_FIELD.unpack_from
    layout = _OTHER
    at = seen = 0
    are_rows = False
    for index, size in enumerate(_sizes(entries, lengths, entries_max)):
        field = entries[at : at + size]
        at += size
        if are_rows and field.startswith(head := _head(size) or _NO_HEAD):
            half_at = len(head)
            is_last = ends_transaction(field, half_at) if size - half_at <= entry_bytes_max else None
            if is_last is not None:
                halves.append(field[half_at:])
                if is_last:
                    ends.append(index)
                continue
        if size != seen or not field.startswith(layout.opening):
            seen, layout = size, _layout_of(field, index, entry_bytes_max)
        half = field[layout.half_at :]
        halves.append(half)
        if field.startswith(layout.middle, layout.key_end):
            key = field[layout.key_at : layout.key_end]
            found = checksum_at(field, size - _CHECKSUM_SIZE)
            if (
                found == (_CHECKSUM_TAG, crc(key + field[layout.value_at : -_CHECKSUM_SIZE]))
                and key[:1] != CONTROL_PREFIX
            ):
                continue
        are_rows = has_key(half) and ends_transaction(field, layout.half_at) is not None
        if _check(half, index).tx_last:
            ends.append(index)
    return Halves(halves, ends)


class _Layout(NamedTuple):
    """Where the parts of a plain ``entries`` field stand: ``0A size | 28 op 32 key_size key [3A value_size value] 4A 04 …``.

    ``opening`` is what stands before the key, ``middle`` what stands between key and value. They are in no field where
    the half isn't plain.
    """

    opening: bytes
    half_at: int
    key_at: int = 0
    key_end: int = 0
    middle: bytes = b"\xff"
    value_at: int = 0


_NO_HEAD: Final = b"\xff"
_OTHER: Final = _Layout(b"\xff", 0)


def _layout_of(field: bytes, index: int, entry_bytes_max: int) -> _Layout:
    """Return the layout of an ``entries`` field, whose head and size are checked here."""
    head = _head(len(field))
    if not head:
        raise _wrong(index, f"can't have a field of {len(field)} bytes")
    if not field.startswith(head):
        raise _wrong(index, "is no entries field of the length that entry_lengths says")
    half_size = len(field) - len(head)
    if half_size > entry_bytes_max:
        raise TooLarge(
            f"entries[{index}] takes {half_size} bytes; the most is {entry_bytes_max}",
            index=index,
            entry_bytes_max=entry_bytes_max,
        )
    return _plain_layout(field[: len(head) + 4], len(head), len(field))


@lru_cache(maxsize=_SHAPES_MAX)
def _plain_layout(opening: bytes, half_at: int, size: int) -> _Layout:
    """The layout of a field of ``size`` bytes that begins with ``opening``; one that fits no field if it isn't plain."""
    other = _Layout(b"\xff", half_at)
    if opening[half_at : half_at + 3] not in _PLAIN or size < half_at + _PLAIN_SIZE_MIN:
        return other
    key_at = half_at + 4
    key_end = key_at + opening[-1]
    left = size - key_end - _CHECKSUM_SIZE
    if opening[-1] >= _TWO_DIGITS or left < 0:
        return other
    if left == 0:
        return _Layout(opening, half_at, key_at, key_end, _CHECKSUM, key_end)
    for digits in (1, 2, 3, 4):
        value_size = left - 1 - digits
        middle = b"\x3a" + varint.encode(max(0, value_size))
        if value_size > 0 and len(middle) == 1 + digits:
            return _Layout(opening, half_at, key_at, key_end, middle, key_end + len(middle))
    return other


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


@lru_cache(maxsize=_SHAPES_MAX)
def _head(size: int) -> bytes:
    """Tag and length of an ``entries`` field that has ``size`` bytes in all; empty if there is none of that size."""
    for digits in (1, 2, 3, 4, 5):
        head = b"\x0a" + varint.encode(max(0, size - 1 - digits))
        if len(head) == 1 + digits and size > len(head):
            return head
    return b""


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
        change = msgspec.structs.replace(change, key=None)
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
