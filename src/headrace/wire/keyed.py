"""``entries`` fields of puts and deletes that name their key, one at a time and fast: for producers of many small appends.

The bytes are those of :func:`headrace.wire.halves.join_halves` over :func:`headrace.wire.entry.encode_half`. What entries of
a table or of a transaction have in common is encoded once and given with each: the *rest*, which stands behind the checksum.
It is put together from :func:`source_tx_part`, :func:`tx_index_part`, :func:`source_time_part`, and :func:`rest_of` of what
else there is, in the order of :class:`~headrace.entries.entry.Change`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

import google_crc32c
import msgspec

from headrace.entries.entry import Change, WireOp
from headrace.wire import varint
from headrace.wire.entry import HALF_MARK, encode_half, lengths_bytes
from headrace.wire.halves import Joined

_OPENINGS: Final = {op: bytes((HALF_MARK, op, 0x32)) for op in (WireOp.PUT, WireOp.DELETE)}
"""What stands before the size of the key."""
_BARE: Final = len(encode_half(Change(b"")))
_FIXED_SIZE: Final = len(_OPENINGS[WireOp.PUT]) + len(b"\x3a\x4a\x04") + 4
"""Tags and checksum of a half that has a value; its two sizes come on top of that."""


def rest_of(change: Change) -> bytes:
    """Return what stands behind the checksum in a half of ``change``, whatever its key and value; it can't be a patch."""
    return encode_half(msgspec.structs.replace(change, value=b"", key=None))[_BARE:]


_SOURCE_TX: Final = rest_of(Change(b"", source_tx=b"x"))[:-2]
_TX_INDEX: Final = rest_of(Change(b"", tx_index=1))[:-1]
_TX_LAST: Final = rest_of(Change(b"", tx_last=True))
_SOURCE_TIME: Final = rest_of(Change(b"", source_time_ms=1))[:-1]


def source_tx_part(source_tx: bytes) -> bytes:
    """Return how ``source_tx`` stands in a rest."""
    return _SOURCE_TX + varint.encode(len(source_tx)) + source_tx if source_tx else b""


def tx_index_part(index: int) -> bytes:
    """Return how ``tx_index`` stands in a rest."""
    return _TX_INDEX + varint.encode(index) if index else b""


def source_time_part(ms: int) -> bytes:
    """Return how ``source_time_ms`` stands in a rest."""
    return _SOURCE_TIME + varint.encode(ms) if ms else b""


def keyed_field(op: WireOp, key: bytes, value: bytes, rest: bytes) -> bytes:
    """Return the ``entries`` field of a put or delete of ``key``; ``value`` has a byte at least."""
    key_size, value_size = varint.encode(len(key)), varint.encode(len(value))
    size = _FIXED_SIZE + len(key_size) + len(key) + len(value_size) + len(value) + len(rest)
    crc = google_crc32c.value(key + value).to_bytes(4, "big")
    return b"".join(
        (
            b"\x0a",
            varint.encode(size),
            _OPENINGS[op],
            key_size,
            key,
            b"\x3a",
            value_size,
            value,
            b"\x4a\x04",
            crc,
            rest,
        )
    )


def last_of_transaction(field: bytes, behind: int) -> bytes:
    """Return ``field`` with ``tx_last``, of which the last ``behind`` bytes are what stands behind it."""
    _, half_at = varint.decode(field, 1)
    end = len(field) - behind
    size = varint.encode(len(field) - half_at + len(_TX_LAST))
    return b"".join((b"\x0a", size, field[half_at:end], _TX_LAST, field[end:]))


def join_fields(fields: Sequence[bytes]) -> Joined:
    """Return ``entries`` fields as an ``AppendRequest`` carries them."""
    return Joined(b"".join(fields), lengths_bytes(array("I", map(len, fields))))
