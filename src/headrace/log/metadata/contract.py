"""What every metadata database does. Nothing in it orders or fences appends: that is in the journal.

Calls are short and blocking, and are made from any thread of the server. What the database can't do (a full disk, a lost
connection) is StoreUnavailable.

Each row carries a checksum (``rows``), which is compared at each read. A row that fails it is never served and never moved
on: a call that is about that row alone raises MetadataCorrupt, one that lists many leaves it out, and
:attr:`Metadata.damages` knows it. Registering a listener again writes its row anew; ``headrace log repair`` removes what
can't be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from headrace.log.metadata.damages import Damages
from headrace.log.metadata.rows import AlarmRow, ListenerRow, RowDamage, SubscriberRow

__all__ = ["ALARMS_MAX", "AlarmRow", "ListenerRow", "Metadata", "RowDamage", "SubscriberRow"]

ALARMS_MAX: Final = 500
"""Alarms shown: all that stand, then the newest cleared ones."""


class Metadata(Protocol):
    """The metadata database of one log."""

    damages: Damages
    """Rows that failed their checksum when they were last read."""

    def check(self) -> list[RowDamage]:
        """Read every row, and return those that fail their checksum."""

    def forget_damaged(self) -> list[RowDamage]:
        """Remove the rows that fail their checksum, and return them: what they said is lost for good."""

    def close(self) -> None:
        """Let go of the database."""

    def register_listener(self, listener_id: str, feed: str, hold: bool, now_ms: int) -> None:
        """Register a listener with a feed; its bookmark, if it has one, stays. A damaged row is written anew, without."""

    def listener(self, listener_id: str, feed: str) -> ListenerRow | None:
        """Return a registered listener, or None; MetadataCorrupt if its row is damaged."""

    def listeners(self, feed: str) -> list[ListenerRow]:
        """Return the listeners of a feed, by name."""

    def put_position(  # noqa: PLR0917  # the columns of one row
        self, listener_id: str, feed: str, incarnation: str, sequence_id: int, lsn: str | None, now_ms: int
    ) -> None:
        """Keep the bookmark that a registered listener reports; MetadataCorrupt if its row is damaged."""

    def seen(self, listeners: Iterable[tuple[str, str]], now_ms: int) -> None:
        """Note that these (listener id, feed) pairs have asked for entries; one transaction for all."""

    def begin_subscriber(self, subject: str, subscriber_id: str, lsn: str, now_ms: int) -> SubscriberRow:
        """Note a subscriber with its first place, or that a known one is back: its place stays. Returns the row.

        MetadataCorrupt if its row is damaged: its place can't be told any more.
        """

    def move_subscribers(self, places: Iterable[tuple[str, str, str]], now_ms: int) -> None:
        """Move (subject, subscriber id) to an LSN, forward only, and note that it was seen; one transaction for all.

        A damaged row stays as it is: :meth:`Damages.raise_if_damaged` afterwards says so to whoever it belongs to.
        """

    def subscribers(self) -> list[SubscriberRow]:
        """Return all subscribers, by name."""

    def raise_alarm(self, code: str, detail: str, now_ms: int, *, feed: str = "", agent_id: str = "") -> int:
        """Raise an alarm and return its id; one that stands for the same (code, feed, agent) is brought up to date."""

    def clear_alarms(self, code: str, *, agent_id: str, now_ms: int, feed: str | None = None) -> None:
        """Clear the alarms of this code that stand against ``agent_id`` (empty: against none), in all feeds or in one."""

    def alarms(self) -> list[AlarmRow]:
        """Return the alarms that stand, newest first, then the newest cleared ones."""
