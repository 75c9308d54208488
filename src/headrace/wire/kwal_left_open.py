"""Which source transactions a log's segments leave open, and where they go on, as manifests tell it. Pure.

A manifest names what its segment leaves open, and of what earlier ones left open, what goes on in it. So a transaction is
followed over thousands of segments without a look at their entries. Agents write by it, readers and ``wal verify`` judge by
it: all by the same bounds.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple, Self

from headrace.wire.kwal_manifest import FeedRange

NAMES_MAX: Final = 256
"""Names that a range tells of; with more, it tells none: a manifest is read by every command, so it stays small."""
NAME_BYTES_MAX: Final = 255
"""Of the longest name that is told, for the same reason."""
WAITING_MAX: Final = 1024
"""Transactions of one history that are waited for; of more, the oldest are given up: who never ends any costs no memory."""

History = tuple[int, str]
"""Region id and incarnation."""


def told_names(names: Collection[bytes]) -> tuple[str, ...] | None:
    """Return the names as a manifest has them: hex, ascending; None if there are too many, or one is too long."""
    if len(names) > NAMES_MAX or any(len(name) > NAME_BYTES_MAX for name in names):
        return None
    return tuple(sorted(name.hex() for name in names))


def left_open(part: FeedRange) -> tuple[str, ...] | None:
    """Return which transactions a range leaves without an end, in hex; None if its manifest does not tell."""
    return () if part.ends_whole else part.left_open


class Taken(NamedTuple):
    """What a range says of transactions that were open before it: names in hex, each with where it was left open.

    ``continued``: those that go on in it. ``unsure``: those of which nobody can tell that any more, as the range was written
    by an agent that did not look.
    """

    continued: list[tuple[str, int]]
    unsure: list[tuple[str, int]]


class LeftOpen:
    """The transactions that wait for more, by history. Ranges are given in the order of the log."""

    def __init__(self) -> None:
        self._waiting: dict[History, dict[str, int]] = {}

    def copy(self) -> Self:
        """Return another one that knows the same."""
        made = type(self)()
        made._waiting = {history: dict(names) for history, names in self._waiting.items()}
        return made

    def of(self, region_id: int, incarnation: str) -> Collection[str]:
        """Return the names that wait in a history, in hex."""
        return self._waiting.get((region_id, incarnation), {}).keys()

    def names(self) -> dict[int, set[bytes]]:
        """Return the names that wait, by region id, whatever history they are of."""
        found: dict[int, set[bytes]] = {}
        for (region, _), names in self._waiting.items():
            found.setdefault(region, set()).update(map(bytes.fromhex, names))
        return found

    def is_moot(self, part: FeedRange) -> bool:
        """Tell whether a range changes nothing, as nearly all do: an archive may have a million."""
        if not part.ends_whole or part.continued:
            return False
        return part.continued is not None or (part.region_id, part.incarnation) not in self._waiting

    def take(self, part: FeedRange, at: int = 0) -> Taken:
        """Go on behind a range. ``at``: what it is called in later answers, such as its segment's number."""
        if self.is_moot(part):
            return Taken([], [])
        history = part.region_id, part.incarnation
        waiting = self._waiting.pop(history, {})
        taken = Taken([], [])
        if part.continued is None:
            taken.unsure.extend(waiting.items())
            waiting = {}
        else:
            for name in part.continued:
                if name in waiting:
                    taken.continued.append((name, waiting.pop(name)))
        for name in left_open(part) or ():
            waiting.pop(name, None)  # the newest one stands last
            waiting[name] = at
        for name in list(waiting)[: max(0, len(waiting) - WAITING_MAX)]:
            del waiting[name]
        if waiting:
            self._waiting[history] = waiting
        return taken
