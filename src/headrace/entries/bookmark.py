"""What a consumer stores of its place: incarnation, sequence id, LSN. Given back, all three must fit."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.entries.lsn import Lsn


@dataclass(frozen=True, slots=True)
class Bookmark:
    """The last entry a consumer has done with, in one history of one feed.

    ``lsn`` is None straight after a snapshot, and at sequence id 0 (nothing read yet). An old copy of a data folder that
    was put back is caught by the LSN: the same sequence id then carries another one. ``snapshot_id`` names the publisher's
    snapshot that this place comes from, and is None behind an entry. Such a place may lie above the feed's head: the
    snapshot then stands for entries that the feed has not got yet.
    """

    incarnation: str
    sequence_id: int
    lsn: Lsn | None = None
    snapshot_id: str | None = None
