"""One change in a feed, as a value: what a producer says of it, and its place in the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final

import msgspec

from headrace.entries.lsn import Lsn

CONTROL_PREFIX: Final = b"\x00"
"""First byte of a control entry's key; data keys may not begin with it."""


class WireOp(IntEnum):
    """RFC-010's ``OpType``."""

    PUT = 0
    DELETE = 1
    BATCH = 2


class Op(StrEnum):
    """What an entry does to its key: ``put`` = full state, ``patch`` = RFC 7396 merge, ``delete`` = the old state."""

    PUT = "put"
    PATCH = "patch"
    DELETE = "delete"
    BATCH = "batch"

    @property
    def wire(self) -> WireOp:
        """The ``OpType`` that carries this op (a patch is an ``OP_PUT`` with the ``patch`` extension)."""
        return _WIRE_OPS[self]


_WIRE_OPS: Final = {
    Op.PUT: WireOp.PUT,
    Op.PATCH: WireOp.PUT,
    Op.DELETE: WireOp.DELETE,
    Op.BATCH: WireOp.BATCH,
}


class Change(msgspec.Struct, frozen=True):
    """The producer's half of an entry: everything that the server does not stamp.

    ``key`` is None where the feed's sequence id in decimal shall be the key (no key given, none found in ``value``).
    ``value`` of a JSON feed is the bytes of ``changes`` exactly as they came; a delete keeps the old state there.
    """

    value: bytes
    key: bytes | None = None
    op: Op = Op.PUT
    source_tx: bytes = b""
    tx_index: int = 0
    tx_last: bool = False
    source_time_ms: int = 0
    copy: bool = False
    control: str = ""
    changed: tuple[str, ...] = ()
    before: bytes | None = None
    table: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored entry: a :class:`Change` with its place. ``sequence_id`` is u64; the LSN carries its low 32 bits."""

    sequence_id: int
    lsn: Lsn
    tenant_id: str
    key_prefix: str
    change: Change = field(repr=False)
    append_end: bool = False

    @property
    def committed_at_ms(self) -> int:
        """UTC milliseconds of the append."""
        return self.lsn.committed_at_ms
