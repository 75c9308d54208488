"""The mark: the journal's visible and durable end, doubled and checksummed. Byte table: ``docs/formats/mark.md``.

Two slots are written in turn, so that a reader that meets a half-written one takes the other.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import google_crc32c

from headrace.wire.versions import MARK, check_readable

MAGIC: Final = b"HRMK"
SLOT_SIZE: Final = 64
FILE_SIZE: Final = 4096
"""The file is one page; the slots stand at 0 and 64."""

_SLOT = struct.Struct("<4sBBHQQQ28xI")


class Mark(NamedTuple):
    """``end``: position after the last durable frame. ``global_ts``: the newest timestamp given. ``counter`` grows by 1."""

    counter: int
    end: int
    global_ts: int

    @property
    def offset(self) -> int:
        """Where this mark's slot stands in the file."""
        return SLOT_SIZE * (self.counter % 2)

    def encode(self) -> bytes:
        """Return the 64 bytes of the slot, checksum included."""
        packed = _SLOT.pack(
            MAGIC, MARK.written_as, MARK.readable_from, 0, self.counter, self.end, self.global_ts, 0
        )
        return packed[:-4] + int(google_crc32c.value(packed[:-4])).to_bytes(4, "little")


def decode_marks(data: bytes, where: str) -> Mark | None:
    """Return the newest intact mark in the file's bytes; None if both slots are damaged."""
    found: list[Mark] = []
    for at in (0, SLOT_SIZE):
        slot = data[at : at + SLOT_SIZE]
        if len(slot) < SLOT_SIZE or slot[:4] != MAGIC:
            continue
        _, _, readable_from, _, counter, end, global_ts, own = _SLOT.unpack(slot)
        if google_crc32c.value(slot[:-4]) == own:
            check_readable(where, readable_from, MARK)
            found.append(Mark(counter, end, global_ts))
    return max(found, default=None)


def damaged_copy(data: bytes, mark: Mark, where: str) -> int | None:
    """Return where the other copy than ``mark`` stands if that is damaged; None if it is whole, or was never written.

    A process that was killed while it stored the mark leaves one, too, and so may a power failure in that moment.
    """
    at = SLOT_SIZE - mark.offset
    slot = bytes(data[at : at + SLOT_SIZE])
    is_unused = mark.counter == 0 and not slot.strip(b"\x00")
    is_whole = is_unused or decode_marks(bytes(at) + slot, where) is not None
    return None if is_whole else at
