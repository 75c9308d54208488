"""What a stream leaves out in the middle of a feed: ``raft_index`` grows by one from entry to entry. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Final

from headrace.entries.lsn import Lsn
from headrace.errors import JournalCorrupt
from headrace.wire.batch import ReceivedBatch

_WRAP: Final = 1 << 32
"""``raft_index`` is the low 32 bits of the sequence id: 0 comes after the largest one."""

Runs = Callable[[ReceivedBatch], Iterable[tuple[Lsn, Lsn]] | None]
"""Cuts a batch into (first, last) of neighbouring entries of a feed between which nothing is left out; None if it can't."""


class Continuity:
    """The last entry of each feed that a subscription without a filter was given.

    Of a feed that is met first any entry may come: who begins in the middle, or behind what retention has dropped, sees no
    beginnings. Retention drops from the journal's beginning alone, so never between two entries that come.
    """

    def __init__(self) -> None:
        self._last: dict[int, Lsn] = {}
        self._runs = _fastest_runs()

    def check(self, batch: ReceivedBatch) -> None:
        """Take note of a batch; its LSNs were checked before.

        JournalCorrupt, with the members ``after-lsn`` and ``lsn``, if entries of a feed are left out between these two.
        """
        met: dict[int, Lsn] = {}
        runs = self._runs(batch)
        for first, last in single_runs(batch) if runs is None else runs:
            before = met.get(first.region_id) or self._last.get(first.region_id)
            if before is not None and (first.raft_index - before.raft_index) % _WRAP != 1:
                raise JournalCorrupt(
                    f"after lsn={before} comes lsn={first} of the same feed: what stands between was not sent",
                    lsn=str(first),
                    after_lsn=str(before),
                )
            met[first.region_id] = last
        self._last.update(met)


def single_runs(batch: ReceivedBatch) -> Iterator[tuple[Lsn, Lsn]]:
    """Yield each entry as a run of its own."""
    for message in batch.messages():
        lsn = Lsn.parse(message.lsn)
        yield lsn, lsn


@cache
def _fastest_runs() -> Runs:
    """By arrays where numpy is there."""
    try:
        from headrace.client.wal_runs import feed_runs  # noqa: PLC0415  # numpy is optional
    except ImportError:
        return single_runs
    return feed_runs
