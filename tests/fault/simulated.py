"""What the simulator knows: what each feed must hold, and what must come of each request."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headrace.entries.lsn import Lsn
from headrace.errors import HeadraceError
from headrace.log.requests import Append, Outcome, Request
from headrace.wire.entry import digest
from tests.bench import AGENT

Expected = type[HeadraceError] | tuple[int, bool] | None
"""A refusal's class, (first sequence id, duplicate) of an append, or None for a registration."""


@dataclass
class Feed:
    """What a feed must hold: ``entries`` are the halves answered for, from sequence id 1 on; ``lsns`` beside them."""

    entries: list[bytes] = field(default_factory=list)
    lsns: list[Lsn | None] = field(default_factory=list)
    epoch: int = 1
    instance: str = AGENT
    shown: int = 0

    @property
    def next(self) -> int:
        return len(self.entries) + 1


@dataclass
class Asked:
    """A request, what must come of it, and what did."""

    request: Request
    expected: Expected
    outcome: Outcome | HeadraceError | None = None


def with_halves(made: Append, halves: list[bytes]) -> Append:
    """The same append with other entries."""
    return replace(made, halves=halves, digest=digest(halves))


def twisted(half: bytes) -> bytes:
    """Another producer's half of the very same length."""
    return half[:-1] + bytes([half[-1] ^ 1])
