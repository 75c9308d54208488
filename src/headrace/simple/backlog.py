"""Rows and statements that wait for their time: ordered by commitTs, bounded, each redelivery of them recognised."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from typing import Final

import msgspec

from headrace.simple.cache import SchemaKey
from headrace.simple.message import Ddl, Dml

_LANES_MAX: Final = 65_536
"""Tables in partitions whose greatest commitTs is known, beside those that have rows waiting."""


class Held(msgspec.Struct, eq=False, kw_only=True):
    """A message that waits. ``bytes`` is what it counts for, ``position`` where it stands in its partition."""

    partition: int
    position: int | None
    bytes: int
    done: bool = False


class HeldRow(Held, eq=False, kw_only=True):
    """A row that waits."""

    message: Dml


class HeldStatement(Held, eq=False, kw_only=True):
    """A DDL that waits. ``digest`` tells it from others of its commitTs."""

    message: Ddl
    digest: str


class _Lane(msgspec.Struct, eq=False):
    """One table's rows in one partition. Their commitTs does not go back, unless they come again."""

    last: int
    greatest: int
    again: dict[int, deque[HeldRow]] | None = None
    """While rows come again: by commitTs those that wait since before and did not come again yet."""


class Backlog:
    """Messages by commitTs. Rows that wait for their table's schema wait here too."""

    def __init__(self, partitions: int, applied: int) -> None:
        self.rows = 0
        self.bytes = 0
        self.needed: Counter[SchemaKey] = Counter()
        """How many waiting rows need a schema."""
        self.dropped = 0
        """Messages that were left out since they had come before, or came again later."""
        self._waiting: dict[int, list[HeldRow]] = {}
        self._statements: dict[int, list[HeldStatement]] = {}
        self._times: list[int] = []
        self._queues: list[deque[Held]] = [deque() for _ in range(partitions)]
        self._lanes: dict[tuple[int, int], _Lane] = {}
        self._unknown_lanes_end = applied

    @property
    def least(self) -> int | None:
        """The least commitTs at which something waits."""
        while self._times and not (self._times[0] in self._waiting or self._times[0] in self._statements):
            heapq.heappop(self._times)
        return self._times[0] if self._times else None

    def is_new(self, message: Dml, partition: int, applied: int, statement_ts: int) -> bool:
        """Note that a row came, and return whether it is to be kept. Rows up to ``applied`` were applied.

        A commitTs below the one before it, in the same partition and table, says that a writer began again. What waits and
        comes again is then replaced by what came last, so that the last sending stands whole and in its order; what does not
        come again stays. Up to ``applied`` a WATERMARK has said that all had come. At exactly ``applied`` a row that can't
        have come before is kept all the same, since writers may send it behind its WATERMARK, if no statement of that time
        was executed.
        """
        commit_ts = message.commit_ts
        lane = self._lanes.get((partition, message.table_id))
        if lane is None:
            lane = _Lane(0, self._unknown_lanes_end)
            self._lanes[partition, message.table_id] = lane
        if commit_ts < lane.last:
            lane.again = {}
        lane.last = commit_ts
        if commit_ts > lane.greatest:
            lane.greatest = commit_ts
            lane.again = None
            new = commit_ts > applied or (commit_ts == applied and commit_ts > statement_ts)
        elif commit_ts <= applied:
            new = False
        else:
            new = True
            if lane.again is not None:
                self._replace(lane.again, message, partition)
        self.dropped += not new
        return new

    def _replace(self, again: dict[int, deque[HeldRow]], message: Dml, partition: int) -> None:
        """Let the row go that waits, is the same, and did not come again since the writer began again; if there is one."""
        commit_ts = message.commit_ts
        earlier = again.get(commit_ts)
        if earlier is None:
            earlier = deque(
                held
                for held in self._waiting.get(commit_ts, ())
                if held.partition == partition and held.message.table_id == message.table_id
            )
            again[commit_ts] = earlier
        for held in earlier:
            if _same(held.message, message):
                earlier.remove(held)
                self._waiting[commit_ts].remove(held)
                self._let_go(held)
                self.dropped += 1
                return

    def hold_row(self, held: HeldRow) -> bool:
        """Keep a row; True if it is the first one that needs its schema."""
        message = held.message
        self._time(message.commit_ts)
        self._waiting.setdefault(message.commit_ts, []).append(held)
        self._queues[held.partition].append(held)
        self.rows += 1
        self.bytes += held.bytes
        self.needed[message.schema_key] += 1
        return self.needed[message.schema_key] == 1

    def hold_statement(self, held: HeldStatement) -> None:
        """Keep a statement, behind the others of its commitTs."""
        commit_ts = held.message.commit_ts
        self._time(commit_ts)
        self._statements.setdefault(commit_ts, []).append(held)
        self._queues[held.partition].append(held)
        self.bytes += held.bytes

    def _time(self, commit_ts: int) -> None:
        if commit_ts not in self._waiting and commit_ts not in self._statements:
            heapq.heappush(self._times, commit_ts)

    def rows_at(self, commit_ts: int) -> list[HeldRow]:
        """Return the rows that wait at this commitTs."""
        return self._waiting.get(commit_ts, [])

    def statements_at(self, commit_ts: int) -> list[HeldStatement]:
        """Return the statements that wait at this commitTs."""
        return self._statements.get(commit_ts, [])

    def release_rows(self, commit_ts: int) -> None:
        """Let the rows of this commitTs go."""
        for held in self._waiting.pop(commit_ts, ()):
            self._let_go(held)

    def _let_go(self, held: HeldRow) -> None:
        held.done = True
        self.rows -= 1
        self.bytes -= held.bytes
        key = held.message.schema_key
        self.needed[key] -= 1
        if not self.needed[key]:
            del self.needed[key]

    def release_statement(self, commit_ts: int) -> None:
        """Let the first statement of this commitTs go."""
        statements = self._statements[commit_ts]
        held = statements.pop(0)
        held.done = True
        self.bytes -= held.bytes
        if not statements:
            del self._statements[commit_ts]

    def forget(self, applied: int) -> None:
        """Forget what is of use no more now that all up to ``applied`` was applied."""
        if len(self._lanes) > _LANES_MAX:
            self._unknown_lanes_end = max(self._unknown_lanes_end, applied)
            self._lanes = {key: lane for key, lane in self._lanes.items() if lane.greatest > applied}

    def first_position(self, partition: int) -> int | None:
        """Return the position of the first message of the partition that still waits; None if none does."""
        queue = self._queues[partition]
        while queue and queue[0].done:
            queue.popleft()
        return queue[0].position if queue else None


def _same(one: Dml, other: Dml) -> bool:
    """Are they the same change? When it was encoded does not count."""
    return (
        one.type is other.type
        and one.schema_key == other.schema_key
        and one.data == other.data
        and one.old == other.old
    )
