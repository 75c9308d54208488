"""Every entry of a received batch against its checksum, and the order of LSNs: what a subscriber checks by default.

CRC-32C of key + value over slices of the body; no message is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import google_crc32c

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import InvalidRequest, JournalCorrupt
from headrace.wire import varint
from headrace.wire.batch import ReceivedBatch
from headrace.wire.entry import message_of

_LSN, _KEY, _VALUE, _CHECKSUM = 1, 6, 7, 9
_FIXED_SIZES: Final = {1: 8, 5: 4}
"""Bytes of the wire types that no known field has."""


def check_batch(batch: ReceivedBatch) -> None:
    """Raise JournalCorrupt, with the member ``lsn``, where an entry does not fit its checksum or LSNs don't grow.

    Looks at one entry after the other; :func:`headrace.wire.batch_columns.check` comes to the same verdicts by arrays.
    """
    check_slices(list(batch.entries()), ZERO)


def check_slices(entries: Sequence[memoryview], above: Lsn) -> Lsn:
    """Check entries that follow ``above``, one by one; returns the last one's LSN (``above`` if there is none)."""
    for stored in entries:
        lsn, key, value, checksum = _parts(stored)
        try:
            found = Lsn.parse(str(lsn, "latin-1"))
        except InvalidRequest:
            raise JournalCorrupt(f"after lsn={above} an entry has the LSN {bytes(lsn[:80])!r}") from None
        if found <= above:
            raise out_of_order(found, above)
        crc = google_crc32c.extend(google_crc32c.value(bytes(key)), bytes(value))
        if int(crc).to_bytes(4, "big") != checksum:
            raise mismatch(found)
        above = found
    return above


def mismatch(lsn: Lsn) -> JournalCorrupt:
    """Return what is raised for an entry that is not what its producer made."""
    return JournalCorrupt(f"the entry at lsn={lsn} does not fit its checksum", lsn=str(lsn))


def out_of_order(lsn: Lsn, above: Lsn) -> JournalCorrupt:
    """Return what is raised where LSNs don't grow."""
    return JournalCorrupt(f"the entry at lsn={lsn} stands behind lsn={above}", lsn=str(lsn))


def _parts(stored: memoryview) -> tuple[memoryview, memoryview, memoryview, memoryview]:
    """LSN, key, value and checksum of an entry as slices; empty where it has none. As protobuf does, the last one counts."""
    found = dict.fromkeys((_LSN, _KEY, _VALUE, _CHECKSUM), stored[:0])
    size, at = varint.decode(stored, 1)
    if stored[0] != 0x0A or at + size != len(stored):
        raise JournalCorrupt("a stored entry does not end where its length says")
    while at < len(stored):
        tag, at = varint.decode(stored, at)
        if tag & 7 in {0, 2}:
            number, at = varint.decode(stored, at)
            following = at + number if tag & 7 == 2 else at
        elif tag & 7 in _FIXED_SIZES:
            following = at + _FIXED_SIZES[tag & 7]
        else:
            following = len(stored) + 1
        if following > len(stored):
            return _by_protobuf(stored)
        if tag & 7 == 2 and tag >> 3 in found:
            found[tag >> 3] = stored[at:following]
        at = following
    return found[_LSN], found[_KEY], found[_VALUE], found[_CHECKSUM]


def _by_protobuf(stored: memoryview) -> tuple[memoryview, memoryview, memoryview, memoryview]:
    """Do the same for an entry that is laid out in a way that the loop does not know; JournalCorrupt if it is none."""
    message = message_of(stored)
    lsn, key, value = memoryview(message.lsn.encode()), memoryview(message.key), memoryview(message.value)
    return lsn, key, value, memoryview(message.checksum)
