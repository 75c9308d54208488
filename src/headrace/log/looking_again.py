"""An alarm of damage stands while the damage is there: it is looked at again, and cleared once everything can be read."""

from __future__ import annotations

from typing import Final

from headrace.errors import JournalCorrupt, SequenceLost, SequenceNotAvailable
from headrace.log import history
from headrace.log.contract import Store
from headrace.log.troubles import Troubles
from headrace.runtime.logs import get_logger

logger = get_logger("log")

CHUNK_ENTRIES: Final = 10_000
CHUNK_BYTES: Final = 8 << 20
"""Entries read at once, and their bytes; bounds memory, and how long :meth:`DamageWatch.end` has to wait."""


class DamageWatch:
    """What is damaged in a log by its ``journal-corrupt`` alarms, whichever process raised them. Used by one thread.

    An alarm of a feed is cleared when all that the feed retains can be read; one of no feed, which an opening raised, when
    the whole journal can be and a later opening has found nothing (``found_at_opening`` is empty).
    """

    def __init__(self, store: Store, troubles: Troubles, *, found_at_opening: str = "") -> None:
        """Read nothing yet."""
        self._store, self._troubles = store, troubles
        self._found_at_opening = found_at_opening
        self._whole_below: dict[str, int] = {}
        """Where the last look met damage, by feed: sequence ids, positions for the journal (no feed)."""
        self._ending = False

    def look_again(self) -> None:
        """Read all that a standing alarm is about, up to the next damage, and clear those that are about nothing any more.

        Blocks for seconds where that is gigabytes; the next look begins where this one met damage. StoreUnavailable.
        """
        for alarm in self._troubles.standing(JournalCorrupt):
            whole = self._is_whole(alarm.feed) if alarm.feed else self._is_journal_whole()
            if self._ending:
                return
            if whole:
                self._whole_below.pop(alarm.feed, None)
                self._troubles.clear(JournalCorrupt, feed=alarm.feed)
                logger.info("what was damaged is whole again", feed=alarm.feed)

    def end(self) -> None:
        """Let :meth:`look_again` end soon, from whichever thread."""
        self._ending = True

    def _is_whole(self, feed: str) -> bool:
        store = self._store
        try:
            while (tail := store.tail(feed)) is not None and not self._ending:
                at = max(tail.oldest, self._whole_below.get(feed, 0))
                if at > tail.head:
                    break
                self._whole_below[feed] = at
                try:
                    frames = history.frames_of_range(
                        store, tail, at, tail.head, entries_max=CHUNK_ENTRIES, bytes_max=CHUNK_BYTES
                    )
                    self._whole_below[feed] = frames[-1].header.last_sequence_id + 1
                except SequenceLost as lost:
                    self._whole_below[feed] = int(lost.members["lost-last"]) + 1
        except (JournalCorrupt, SequenceNotAvailable):  # the latter: dropped meanwhile; the next look tells
            return False
        return True

    def _is_journal_whole(self) -> bool:
        if self._found_at_opening:
            return False
        store = self._store
        try:
            while not self._ending:
                at = max(store.oldest_position(), self._whole_below.get("", 0))
                if at >= store.end():
                    break
                self._whole_below[""] = at
                try:
                    self._whole_below[""] = store.walk(at, bytes_max=CHUNK_BYTES)[-1].header.end
                except SequenceLost as lost:
                    self._whole_below[""] = int(lost.members["resume-position"])
        except (JournalCorrupt, SequenceNotAvailable):
            return False
        return True
