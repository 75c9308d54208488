"""A moment that somebody asks for -> the last LSN that is at or below it, if the archive can rebuild that moment.

Every kind of moment becomes one LSN for all feeds. Where that may be cut is another matter:
:mod:`headrace.archive.moments.points`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.reachable import Found, check_reachable, is_reachable, shown_time
from headrace.archive.moments.source_moment import by_commit_ts, by_source_time
from headrace.entries.hlc import LOGICAL_BITS
from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest

_TIME_MAX: Final = (1 << 64 - LOGICAL_BITS) - 1
"""The last millisecond that an LSN can have."""


class Asked(msgspec.Struct, frozen=True, rename="kebab", kw_only=True, omit_defaults=True):
    """The moment asked for: one of the four. Times are UTC milliseconds; ``to_commit_ts`` is one of the Simple Protocol.

    ``feed``: of which feed a source time or a commitTs is; empty for the only one that has them. ``exact_entry``: keep the
    entry that was named, even if that tears an append or a transaction.
    """

    to_time_ms: int | None = None
    to_lsn: Lsn | None = None
    to_source_time_ms: int | None = None
    to_commit_ts: int | None = None
    feed: str = ""
    exact_entry: bool = False

    def document(self) -> dict[str, Any]:
        """Return it as plain values: what was asked for, and nothing else."""
        found = {
            "to-time": None if self.to_time_ms is None else shown_time(self.to_time_ms),
            "to-lsn": None if self.to_lsn is None else str(self.to_lsn),
            "to-source-time": None if self.to_source_time_ms is None else shown_time(self.to_source_time_ms),
            "to-commit-ts": self.to_commit_ts,
            "feed": self.feed or None,
        }
        return {name: value for name, value in found.items() if value is not None} | {
            "exact-entry": self.exact_entry
        }


def find(archive: Archive, asked: Asked) -> Found:
    """Return the greatest LSN that is not behind the moment asked for.

    TargetUnreachable or SegmentGap, naming the reachable windows, if the archive can't rebuild it; InvalidRequest.
    """
    given = (asked.to_time_ms, asked.to_lsn, asked.to_source_time_ms, asked.to_commit_ts)
    if sum(one is not None for one in given) != 1:
        raise InvalidRequest("name one moment: a time, an LSN, a source time or a commitTs")
    if asked.to_lsn is not None:
        return Found(check_reachable(archive, asked.to_lsn, f"lsn={asked.to_lsn}"))
    if asked.to_time_ms is not None:
        return _by_time(archive, asked.to_time_ms)
    if asked.to_source_time_ms is not None:
        return by_source_time(archive, asked.feed, asked.to_source_time_ms)
    return by_commit_ts(archive, asked.feed, asked.to_commit_ts or 0)


def _by_time(archive: Archive, ms: int) -> Found:
    if not 0 <= ms < _TIME_MAX:
        raise InvalidRequest(f"{ms} ms is no time that an entry can have")
    wanted = Lsn.from_int((ms + 1 << LOGICAL_BITS + 64) - 1)
    if not is_reachable(archive, wanted):
        # At the archive's end, what follows in the same millisecond has not been written: the time is as good as that end.
        # In front of a gap it may have been, and is lost.
        ends = [one.name.last for one in archive.segments[-1:]] + [one.last for one in archive.windows[-1:]]
        end = max(ends, default=wanted)
        if end.committed_at_ms == ms:
            note = f"entries of the same millisecond may follow lsn={end}, where the archive ends"
            return Found(check_reachable(archive, end, shown_time(ms)), (note,))
    return Found(check_reachable(archive, wanted, shown_time(ms)))
