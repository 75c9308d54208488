"""A stretch of a feed's sequence ids, with those of its entries that a listener wants; and what an answer says of one. Pure.

Without a filter a stretch ends where the entries do, and a gap in them ends it: what is missing is asked for again. With a
filter gaps are what was asked for, so the server's ``last-sequence-id`` says how far it has looked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from headrace.entries.lsn import Lsn
from headrace.listener.events import Polled, Received
from headrace.wire.documents import EntryOut


@dataclass(frozen=True, slots=True)
class Stretch:
    """The sequence ids ``after`` + 1 … ``last``: ``entries`` are those wanted, ascending; ``lsn`` is that of ``last``."""

    after: int
    last: int
    lsn: Lsn | None
    entries: Sequence[EntryOut] = ()

    def behind(self, place: int) -> Stretch | None:
        """Return what of it lies behind ``place``; None if something between is missing, or nothing is left."""
        if self.after > place or self.last <= place:
            return None
        if self.after == place:
            return self
        fresh = [entry for entry in self.entries if entry.sequence_id > place]
        return Stretch(place, self.last, self.lsn, fresh)


def dense_stretch(event: Received | Polled, after: int) -> Stretch | None:
    """Return what an unfiltered answer says of what follows ``after``; None if it has entries and none of them follows."""
    following = next_entries(event.entries, after, event.oldest)
    if following:
        return Stretch(after, following[-1].sequence_id, Lsn.parse(following[-1].lsn), following)
    return None if event.entries else Stretch(after, after, None)


def filtered_stretch(event: Received | Polled, after: int) -> Stretch | None:
    """Return what a filtered answer says of what follows ``after``; None if its entries are out of order or beyond its end.

    Whatever it leaves out up to ``last`` was not asked for. Entries up to ``after`` have come before, and are dropped.
    """
    last, numbers = event.last, [entry.sequence_id for entry in event.entries]
    if last is None or any(one >= other for one, other in pairwise(numbers)):
        return None
    if last <= after:
        return Stretch(after, after, None) if not numbers or numbers[-1] <= after else None
    if event.last_lsn is None or last > event.head or (numbers and numbers[-1] > last):
        return None
    return Stretch(after, last, event.last_lsn, [e for e in event.entries if e.sequence_id > after])


def next_entries(entries: Sequence[EntryOut], last: int, oldest: int) -> Sequence[EntryOut]:
    """Return those of ``entries`` that follow ``last`` without a gap; what came before is dropped, what is beyond cut.

    A listener at 0 has read nothing: for it the feed begins where it begins, at ``oldest`` (a source that already counts
    goes on counting: RFD 5's example begins at 63). A range that retention dropped is an error of the server's, not this.
    """
    if last == 0 and entries and entries[0].sequence_id == oldest:
        last = oldest - 1
    if entries and entries[0].sequence_id == last + 1 and _dense(entries):
        return entries
    fresh: list[EntryOut] = []
    for entry in entries:
        if entry.sequence_id == last + 1:
            fresh.append(entry)
            last += 1
        elif entry.sequence_id > last:
            break
    return fresh


def _dense(entries: Sequence[EntryOut]) -> bool:
    first = entries[0].sequence_id
    return all(entry.sequence_id == first + index for index, entry in enumerate(entries))
