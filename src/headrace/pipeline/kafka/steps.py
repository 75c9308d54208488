"""In which order one batch of a feed goes to Kafka. Pure.

A batch is cut at its DDL statements. Of each step go out, one after the other, each only once all before it is
acknowledged by Kafka:

1. the schemas that its rows need and that their topics don't have yet,
2. its rows, each partition's in the order of the feed,
3. the last WATERMARK that stands in it, to all partitions of all topics,
4. the DDL that ends it, to all partitions of its table's topic.

So a WATERMARK is behind everything that it covers, whatever is cut or sent again: a batch that is repeated begins with the
same entries and sends, before any WATERMARK, all rows that stand before it in the feed. Of several WATERMARKs in a step the
last one says what the others say. Rows behind it may be sent before it: a WATERMARK says what was delivered, not what was
not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol


class Control(NamedTuple):
    """A DDL or WATERMARK entry: its place, its message in JSON, and the table that its entry names."""

    sequence_id: int
    value: bytes
    table: tuple[str, str] = ("", "")


class Rows(NamedTuple):
    """How many rows of one schema version stand in a step, and where the first of them does."""

    step: int
    database: str
    table: str
    version: int
    first: int
    rows: int


class Step(NamedTuple):
    """A stretch of a batch without DDL: the entries above ``after`` and below ``below`` (0 and None: no bound).

    ``rows`` are in the order of their first.
    """

    after: int
    below: int | None
    rows: tuple[Rows, ...]
    watermark: Control | None
    statement: Control | None


class Out(Protocol):
    """What sends. Each call returns once Kafka has acknowledged all that it sent."""

    def announce(self, rows: Sequence[Rows]) -> None:
        """Send the schemas that these rows need and that their topics don't have yet."""

    def write(self, step: Step) -> None:
        """Send the rows of a step."""

    def watermark(self, entry: Control) -> None:
        """Send a WATERMARK to all partitions of all topics."""

    def statement(self, entry: Control) -> None:
        """Send a DDL to all partitions of its table's topic."""


def send_steps(steps: Iterable[Step], out: Out) -> None:
    """Send the steps of a batch, each thing once all before it is acknowledged."""
    for step in steps:
        if step.rows:
            out.announce(step.rows)
            out.write(step)
        if step.watermark is not None:
            out.watermark(step.watermark)
        if step.statement is not None:
            out.statement(step.statement)


def plan_steps(
    statements: Sequence[Control], rows: Iterable[Rows], watermarks: Iterable[tuple[int, Control]]
) -> list[Step]:
    """Return the steps of a batch, in order; those without anything are left out.

    ``statements``: its DDL entries, by sequence id. ``rows``: what stands in step 0, 1 …: step ``n`` has the entries behind
    the ``n``-th statement. ``watermarks``: the last one of each step that has one, with the step's number.
    """
    by_step: defaultdict[int, list[Rows]] = defaultdict(list)
    for one in rows:
        by_step[one.step].append(one)
    last = dict(watermarks)
    steps = []
    for number in range(len(statements) + 1):
        statement = statements[number] if number < len(statements) else None
        found = Step(
            after=statements[number - 1].sequence_id if number else 0,
            below=statement.sequence_id if statement else None,
            rows=tuple(sorted(by_step[number], key=lambda one: one.first)),
            watermark=last.get(number),
            statement=statement,
        )
        if found.rows or found.watermark or found.statement:
            steps.append(found)
    return steps
