"""Received batches as single entries, and ``OP_BATCH`` taken apart into its mutations. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from headrace.entries.entry import Change, Entry, Op, WireOp
from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest, JournalCorrupt
from headrace.wire.batch import ReceivedBatch
from headrace.wire.entry import change_of, message_of
from headrace.wire.generated import wal_pb2

_MUTATIONS: Final = {WireOp.PUT: Op.PUT, WireOp.DELETE: Op.DELETE}


@dataclass(frozen=True, slots=True)
class Record:
    """One entry, or one mutation of an ``OP_BATCH``.

    ``op``, ``key`` and ``value`` are the mutation's where the batch was taken apart; ``index`` is then its place in the
    batch, from 0, of ``count``. Else they are the entry's, ``index`` is 0 and ``count`` 1. ``entry`` is always the whole
    one; its ``sequence_id`` is the LSN's ``raft_index``: the low 32 bits of the sequence id in its feed.
    """

    lsn: Lsn
    index: int
    count: int
    op: Op
    key: bytes
    value: bytes
    entry: Entry

    @property
    def is_last(self) -> bool:
        """Whether nothing of the same LSN follows."""
        return self.index + 1 == self.count

    @property
    def feed(self) -> str:
        """The change feed's id, from the key prefix ``{region}:{tenant}:{feed}:``; empty where that is not so."""
        return self.entry.key_prefix.split(":", 2)[-1].removesuffix(":") if self.entry.key_prefix else ""


def entry_of(stored: memoryview) -> Entry:
    """Return a stored entry as a value, with ``raft_index`` as its sequence id; JournalCorrupt if it is none."""
    message = message_of(stored)
    try:
        lsn, change = Lsn.parse(message.lsn), change_of(message)
    except (InvalidRequest, ValueError):
        raise JournalCorrupt(
            f"an entry has lsn={message.lsn!r} and op_type {message.op_type}", lsn=message.lsn
        ) from None
    return Entry(
        sequence_id=lsn.raft_index,
        lsn=lsn,
        tenant_id=message.tenant_id,
        key_prefix=message.key_prefix,
        append_end=message.append_end,
        change=change,
    )


def records(batch: ReceivedBatch, *, flatten: bool = False) -> Iterator[list[Record]]:
    """Yield what each entry of the batch stands for: one record, or with ``flatten`` its mutations, in order.

    An ``OP_BATCH`` is read whole before any of it is given; JournalCorrupt, naming the LSN, where one can't be. One without
    mutations gives an empty list.
    """
    for stored in batch.entries():
        entry = entry_of(stored)
        change = entry.change
        if flatten and change.op is Op.BATCH:
            yield _mutations(entry)
        else:
            yield [Record(entry.lsn, 0, 1, change.op, change.key or b"", change.value, entry)]


def _mutations(entry: Entry) -> list[Record]:
    change: Change = entry.change
    try:
        mutations = wal_pb2.BatchWrite.FromString(change.value).mutations
        return [
            Record(entry.lsn, index, len(mutations), _MUTATIONS[WireOp(one.op)], one.key, one.value, entry)
            for index, one in enumerate(mutations)
        ]
    except (DecodeError, KeyError, ValueError):
        raise JournalCorrupt(
            f"the OP_BATCH at lsn={entry.lsn} holds no mutations that can be taken apart", lsn=str(entry.lsn)
        ) from None
