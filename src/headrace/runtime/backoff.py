"""Exponential backoff with full jitter, as a value: who waits decides how; nobody sleeps in here."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Waits that double from ``first_s`` to ``delay_s_max``, each drawn between half of it and all of it.

    Call :meth:`reset` on *progress* (an entry accepted, a row read), never on a mere connect: a peer that accepts
    connections and then fails would otherwise be hammered.
    """

    first_s: float = 0.1
    delay_s_max: float = 15.0
    rng: random.Random = field(default_factory=random.Random)
    failures: int = 0

    def next_delay(self) -> float:
        """Return the seconds to wait before the next try, and count the failure."""
        ceiling = min(self.delay_s_max, self.first_s * 2.0 ** min(self.failures, 32))
        self.failures += 1
        return ceiling * (0.5 + self.rng.random() / 2)

    def reset(self) -> None:
        """Progress was made: the next failure starts from the first delay again."""
        self.failures = 0
