"""The 128-bit global LSN: ``(global_ts, region_id, raft_index)``, totally ordered over all feeds (RFC-010 §2)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Self

from headrace.errors import InvalidRequest

TEXT_SIZE: Final = 38
"""Characters of the canonical text form: 16 + 1 + 10 + 1 + 10."""

_TEXT = re.compile(r"([0-9A-Fa-f]{1,16})\.([0-9]{1,10})\.([0-9]{1,10})")
_U32_MAX = (1 << 32) - 1


class Lsn(NamedTuple):
    """A log sequence number. Tuple order is LSN order is the order of the text forms."""

    global_ts: int
    region_id: int
    raft_index: int

    def __str__(self) -> str:
        """Return ``{global_ts:016x}.{region_id:010d}.{raft_index:010d}``; sorts as text exactly as it sorts as a value."""
        return f"{self.global_ts:016x}.{self.region_id:010d}.{self.raft_index:010d}"

    def __int__(self) -> int:
        """Return ``global_ts << 64 | region_id << 32 | raft_index``."""
        return self.global_ts << 64 | self.region_id << 32 | self.raft_index

    @classmethod
    def from_int(cls, number: int) -> Self:
        """Return the LSN whose 128-bit integer form is ``number``; InvalidRequest outside 0 … 2**128 - 1."""
        if not 0 <= number < 1 << 128:
            raise InvalidRequest(f"{number} is not a 128-bit LSN")
        return cls(number >> 64, number >> 32 & 0xFFFFFFFF, number & 0xFFFFFFFF)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form; parts may be unpadded (RFC-010 prints them so). InvalidRequest for anything else."""
        parts = _TEXT.fullmatch(text)
        if parts is None:
            raise InvalidRequest(
                f"{text[:80]!r} is not an LSN", hint="An LSN is {global_ts in hex}.{region_id}.{raft_index}."
            )
        global_ts, region_id, raft_index = int(parts[1], 16), int(parts[2]), int(parts[3])
        if region_id > _U32_MAX or raft_index > _U32_MAX:
            raise InvalidRequest(f"{text!r}: a part of this LSN is too large")
        return cls(global_ts, region_id, raft_index)

    @property
    def committed_at_ms(self) -> int:
        """UTC milliseconds of the append: the physical half of ``global_ts``."""
        return self.global_ts >> 18


ZERO: Final = Lsn(0, 0, 0)
"""Head and oldest of an empty log."""


def lsn_of(first_global_ts: int, region_id: int, first_sequence_id: int, index: int) -> Lsn:
    """Return the LSN of entry ``index`` of an append.

    ``raft_index`` is the low 32 bits of the sequence id. Where it wraps inside an append, ``global_ts`` grows by one, so
    that LSN order stays sequence order.
    """
    low = (first_sequence_id & 0xFFFFFFFF) + index
    return Lsn(first_global_ts + (low >> 32), region_id, low & 0xFFFFFFFF)
