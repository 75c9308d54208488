"""What stands behind the checksum of a stored entry -> the members of its line behind ``changes`` and ``key``. Pure.

The transaction's name, and an entry's place in it, differ from entry to entry: they are read by slices. What stands behind
them is mostly equal from row to row, and is read by protobuf once.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
from google.protobuf.message import DecodeError

from headrace.wire import varint
from headrace.wire.generated import wal_pb2
from headrace.wire.rendering import entry_out

_encode = msgspec.json.Encoder().encode
NO_LINE_ENDS: Final = bytes.maketrans(b"\n\r", b"  ")
"""Line ends in a producer's JSON stand between tokens, so blanks may stand there as well."""
_MORE: Final = 0x80
_SOURCE_TX: Final = b"\xaa\x06"
_OF_ROW: Final = re.compile(rb"(?:\xb0\x06([\x01-\x7f]|[\x80-\xff]{1,8}[\x01-\x7f]))?(\xb8\x06\x01)?")
"""``tx_index`` and ``tx_last``."""
_KEPT_BYTES_MAX: Final = 512
"""Longest remainder that is kept once it is read: ``before`` differs from row to row, and may be large."""
_KEPT_MAX: Final = 4096


class Tail(NamedTuple):
    """Members behind ``op`` and ``key``, each with a comma in front. ``is_patch``: the put is a patch."""

    members: bytes
    is_patch: bool


class _Other(NamedTuple):
    """The members that come before the transaction's in a line, and those that come behind."""

    first: bytes
    last: bytes
    is_patch: bool


def tail_of(rest: bytes) -> Tail | None:
    """Return the members for the fields ``rest``; None if they are not laid out as producers' halves are."""
    at = 0
    members = b""
    if rest.startswith(_SOURCE_TX):
        if len(rest) < 3 or rest[2] >= _MORE or rest[2] + 3 > len(rest):
            return None
        at = 3 + rest[2]
        name = _name(rest[3:at])
        if name is None:
            return None
        members = name
    of_row = _OF_ROW.match(rest, at)
    if of_row is None:
        return None
    index, is_last = of_row.groups()
    other = (_kept if len(rest) - of_row.end() <= _KEPT_BYTES_MAX else _read)(rest[of_row.end() :])
    if other is None:
        return None
    if members or index or is_last:
        number = 0
        if index:
            number = index[0] if len(index) == 1 else varint.decode(index, 0)[0]
        members += b',"tx-index":%d,"tx-last":%b' % (number, b"true" if is_last else b"false")
    return Tail(other.first + members + other.last, other.is_patch)


@lru_cache(maxsize=_KEPT_MAX)
def _name(tx: bytes) -> bytes | None:
    try:
        return b',"tx":' + _encode(tx.decode())
    except UnicodeDecodeError:
        return None


def _read(fields: bytes) -> _Other | None:
    if not fields:
        return _NOTHING
    try:
        message = wal_pb2.WalEntry.FromString(fields)
    except DecodeError:
        return None
    if (
        message.source_tx
        or message.tx_index
        or message.tx_last
        or message.key
        or message.value
        or message.op_type
    ):
        return None
    out = entry_out(message, 0)
    first, last = b"", b""
    for name in ("changed", "before", "before_base64", "table"):
        first += _member(name, getattr(out, name))
    for name in ("source_time", "copy", "control"):
        last += _member(name, getattr(out, name))
    return _Other(first, last, message.patch)


def _member(name: str, value: object) -> bytes:
    if value is msgspec.UNSET:
        return b""
    return b',"%b":%b' % (name.replace("_", "-").encode(), _encode(value).translate(NO_LINE_ENDS))


_kept = lru_cache(maxsize=_KEPT_MAX)(_read)
_NOTHING: Final = _Other(b"", b"", is_patch=False)
