"""Compares what a reader got with the source, row by row, and counts what is wrong. Pure.

A reader's history is a sequence of :class:`Step`: one for each entry of a row, in the order it came. Rows carry a
``revision`` that grows by exactly one at each change, and the balances of all accounts have one sum at the end of every
transaction: so a missing, doubled, misplaced or torn change can't hide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
Key = tuple[str, str]
"""Table and key of a row."""


@dataclass(frozen=True, slots=True)
class Step:
    """One change as a reader got it. ``row``: the new row (of a delete: the old one); ``copied``: as it stood at attach."""

    sequence_id: int
    table: str
    key: str
    row: Row
    deleted: bool = False
    copied: bool = False
    ends_transaction: bool = False


@dataclass(slots=True)
class Count:
    """One table at one reader."""

    reader: str
    table: str
    rows: int = 0
    missing: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    torn: int = 0

    @property
    def faultless(self) -> bool:
        """True if nothing is wrong."""
        return not (self.missing or self.duplicated or self.out_of_order or self.torn)

    def __str__(self) -> str:
        return (
            f"{self.reader:<9} {self.table + ':':<11} rows {self.rows}, missing {self.missing}, duplicated "
            f"{self.duplicated}, out of order {self.out_of_order}, torn transactions {self.torn}"
        )


@dataclass(slots=True)
class Fold:
    """A history folded to the rows it leaves, and what was wrong on the way, counted by table."""

    reader: str
    rows: dict[Key, Row] = field(default_factory=dict)
    counts: dict[str, Count] = field(default_factory=dict)


def fold(reader: str, tables: Iterable[str], steps: Iterable[Step], total: int) -> Fold:
    """Fold ``steps`` and count what came twice, out of order, or torn.

    A sequence id that came before is a duplicate and is passed over. ``total`` is the sum of all balances that must
    stand at the end of every transaction once all accounts have been seen.
    """
    result = Fold(reader, counts={table: Count(reader, table) for table in tables})
    highest = 0
    opened = False
    for step in steps:
        if step.sequence_id <= highest:
            result.counts[step.table].duplicated += 1
            continue
        highest = step.sequence_id
        _apply(step, result)
        if step.ends_transaction:
            balance = sum(
                int(row["balance"]) for (table, _), row in result.rows.items() if table == "accounts"
            )
            opened = opened or balance == total
            result.counts["accounts"].torn += opened and balance != total
    return result


def _apply(step: Step, result: Fold) -> None:
    key = (step.table, step.key)
    before = int(result.rows[key]["revision"]) if key in result.rows else 0
    revision = int(step.row["revision"])
    wanted = before if step.deleted or (step.copied and before) else before + 1
    if not (step.copied and not before):
        count = result.counts[step.table]
        count.missing += max(0, revision - wanted)
        count.duplicated += revision == before and revision < wanted
        count.out_of_order += revision < min(before, wanted)
    if step.deleted:
        result.rows.pop(key, None)
    else:
        result.rows[key] = step.row


def compare(source: Mapping[Key, Row], found: Fold) -> list[Count]:
    """Compare the rows that a reader ends with to the source's, row by row; returns one count for each table.

    A row that is absent or not equal is missing; one that the source doesn't have is duplicated.
    """
    for (table, key), row in source.items():
        found.counts[table].missing += found.rows.get((table, key)) != row
    for table, key in found.rows:
        found.counts[table].rows += 1
        found.counts[table].duplicated += (table, key) not in source
    return list(found.counts.values())


def percentile(values: list[float], share: float) -> float:
    """Return the nearest-rank percentile of ``values`` (share 0 … 1); nan if there are none."""
    if not values:
        return float("nan")
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
