"""Rows of source transactions among producers' halves, checked by slices: what capture sends. Pure.

Such a half is a put or delete that names its key, followed by what :mod:`headrace.wire.keyed` calls the rest::

    28 op | 32 key | 3A value | 4A 04 checksum | [source_tx] [tx_index] [tx_last] | [source_time_ms] [copy] … [table]

The first three of the rest differ from row to row, and are read here. What stands behind them is mostly equal, and is
read by protobuf once. ``headrace.wire.halves`` takes whatever is not recognised here the long way.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import google_crc32c
import msgspec
from google.protobuf.message import DecodeError

from headrace.entries.entry import CONTROL_PREFIX, Change, Op
from headrace.wire.entry import change_of, encode_half
from headrace.wire.generated import wal_pb2

_OPENINGS: Final = (b"\x28\x00\x32", b"\x28\x01\x32")
_CONTROL_BYTE: Final = CONTROL_PREFIX[0]
_MORE: Final = 0x80
"""A byte of a varint that is no smaller is followed by another one."""
_VALUE_TAG: Final = 0x3A
_CHECKSUM: Final = b"\x4a\x04"
_SOURCE_TX: Final = b"\xaa\x06"
_OF_ROW: Final = re.compile(
    rb"(?:\xb0\x06(?:[\x01-\x7f]|[\x80-\xff][\x01-\x7f]|[\x80-\xff]{2}[\x01-\x7f]|[\x80-\xff]{3}[\x01-\x7f]))?"
    rb"(\xb8\x06\x01)?"
)
"""``tx_index``, in the shortest form, and ``tx_last``."""
_TAILS_MAX: Final = 4096
_BARE: Final = len(encode_half(Change(b"")))


def ends_transaction(field: bytes, half_at: int) -> bool | None:
    """Tell whether the row in an ``entries`` field is its transaction's last; its half begins at ``half_at``.

    None: the half is none of a row, or it is not certain here that it is laid out as :func:`encode_half` does, with the
    checksum of its key and value.
    """
    try:
        key_at = half_at + 4
        key_end = key_at + field[key_at - 1]
        value_at = key_end + 2
        value_size = field[key_end + 1]
        if value_size >= _MORE:
            value_at += 1
            digit = field[key_end + 2]
            value_size += (digit - 1) << 7
            if digit >= _MORE:
                value_at += 1
                digit = field[key_end + 3]
                value_size += (digit - 1) << 14
            if not 0 < digit < _MORE:
                return None
        if (
            field[key_end] != _VALUE_TAG
            or not value_size
            or field[key_at - 1] >= _MORE
            or field[key_at] == _CONTROL_BYTE
            or not field.startswith(_OPENINGS, half_at)
        ):
            return None
        value_end = value_at + value_size
        at = value_end + 6
        if field.startswith(_SOURCE_TX, at):
            size = field[at + 2]
            if not 0 < size < _MORE:
                return None
            at += 3 + size
    except IndexError:
        return None
    crc = google_crc32c.value(field[key_at:key_end] + field[value_at:value_end])
    if at > len(field) or field[value_end : value_end + 6] != _CHECKSUM + crc.to_bytes(4, "big"):
        return None
    of_row = _OF_ROW.match(field, at)
    if of_row is None or not _is_tail(field[of_row.end() :]):
        return None
    return of_row.lastindex is not None


@lru_cache(maxsize=_TAILS_MAX)
def _is_tail(tail: bytes) -> bool:
    """Tell whether these are fields from ``source_time_ms`` on that any row may have, laid out as they have to be."""
    try:
        change = change_of(wal_pb2.WalEntry.FromString(tail))
    except (DecodeError, ValueError):
        return False
    change = msgspec.structs.replace(change, value=b"", key=None)
    is_plain = not (change.source_tx or change.tx_index or change.tx_last or change.control)
    return is_plain and change.op is Op.PUT and encode_half(change)[_BARE:] == tail
