"""An outbox row in its canonical form, as an entry will carry it; and how rows are cut into appends. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from headrace.wire.documents import EntryIn, rfc3339

APPEND_ENTRIES_MAX: Final = 5_000
"""Entries of one append; a transaction with more takes several, ``tx-last`` only in the last."""

APPEND_BYTES_MAX: Final = 8 << 20
"""Bytes of one append's entries, reckoned roughly: half of what the server takes as a body."""

ENVELOPE_BYTES: Final = 320
"""What an entry's other members take in JSON, roughly."""


@dataclass(frozen=True, slots=True)
class MarkedRow:
    """A row that has its place in the feed: outbox id, sequence id, its transaction, and what happened.

    ``tx_last``: the last row of its transaction. ``changes`` and ``before`` are JSON. ``created_at_ms``: UTC milliseconds.
    """

    id: int
    sequence_id: int
    op: str
    key: str | None
    changes: bytes
    changed: tuple[str, ...] | None
    before: bytes | None
    table: tuple[str, ...]
    control: str | None
    copy: bool
    tx: int
    tx_index: int
    tx_last: bool
    created_at_ms: int

    @property
    def size(self) -> int:
        """Return about how many bytes this row takes in an append."""
        named = len(msgspec.json.encode((self.key, self.changed, self.table)))
        return ENVELOPE_BYTES + named + len(self.changes) + len(self.before or b"")


class RowPlace(NamedTuple):
    """A row's place: in the outbox, and in the feed."""

    id: int
    sequence_id: int


def whole_transactions(rows: Sequence[MarkedRow]) -> Sequence[MarkedRow]:
    """Return the longest start of ``rows`` that ends with a transaction.

    All of them if none ends here: it is larger than one append, and goes on in the next.
    """
    for end in range(len(rows), 0, -1):
        if rows[end - 1].tx_last:
            return rows[:end]
    return rows


def to_entry(row: MarkedRow, agent_id: str, feed: str) -> EntryIn:
    """Return ``row`` as it is posted. Equal for equal rows, whenever it is made: a retry must be recognised."""
    unset = msgspec.UNSET
    return EntryIn(
        agent_id=agent_id,
        change_feed_id=feed,
        expected_offset=row.sequence_id,
        changes=msgspec.Raw(row.changes),
        op=row.op,  # type: ignore[arg-type]  # put, patch or delete: Outbox.add and the triggers write no other
        key=unset if row.key is None else row.key,
        changed=unset if row.changed is None else list(row.changed),
        before=unset if row.before is None else msgspec.Raw(row.before),
        table=list(row.table) or unset,
        tx=str(row.tx),
        tx_index=row.tx_index,
        tx_last=True if row.tx_last else unset,
        source_time=rfc3339(row.created_at_ms),
        copy=True if row.copy else unset,
        control=unset if row.control is None else row.control,
    )
