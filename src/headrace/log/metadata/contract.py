"""What every metadata database does. Nothing in it orders or fences appends: that is in the journal.

Calls are short and blocking, and are made from any thread of the server. What the database can't do (a full disk, a lost
connection) is StoreUnavailable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

ALARMS_MAX: Final = 500
"""Alarms shown: all that stand, then the newest cleared ones."""


class ListenerRow(NamedTuple):
    """A registered listener and the bookmark it last reported; ``sequence_id`` is None if it never did."""

    listener_id: str
    feed: str
    hold: bool
    incarnation: str | None
    sequence_id: int | None
    lsn: str | None
    seen_at_ms: int


class AlarmRow(NamedTuple):
    """Something that needs a person; ``cleared_at_ms`` is None while it stands."""

    alarm_id: int
    code: str
    feed: str
    agent_id: str
    detail: str
    raised_at_ms: int
    cleared_at_ms: int | None


class SubscriberRow(NamedTuple):
    """A subscriber of the stream over all feeds (RFC-010). ``subject`` is who it is (``anonymous`` without a token),
    ``subscriber_id`` the name that it gave itself (empty if none).

    ``lsn`` is its place: everything up to there is acked, or was never asked for.
    """

    subject: str
    subscriber_id: str
    lsn: str
    seen_at_ms: int


class Metadata(Protocol):
    """The metadata database of one log."""

    def close(self) -> None:
        """Let go of the database."""

    def register_listener(self, listener_id: str, feed: str, hold: bool, now_ms: int) -> None:
        """Register a listener with a feed; its bookmark, if it has one, stays."""

    def listener(self, listener_id: str, feed: str) -> ListenerRow | None:
        """Return a registered listener, or None."""

    def listeners(self, feed: str) -> list[ListenerRow]:
        """Return the listeners of a feed, by name."""

    def put_position(  # noqa: PLR0917  # the columns of one row
        self, listener_id: str, feed: str, incarnation: str, sequence_id: int, lsn: str | None, now_ms: int
    ) -> None:
        """Keep the bookmark that a registered listener reports."""

    def seen(self, listeners: Iterable[tuple[str, str]], now_ms: int) -> None:
        """Note that these (listener id, feed) pairs have asked for entries; one transaction for all."""

    def begin_subscriber(self, subject: str, subscriber_id: str, lsn: str, now_ms: int) -> SubscriberRow:
        """Note a subscriber with its first place, or that a known one is back: its place stays. Returns the row."""

    def move_subscribers(self, places: Iterable[tuple[str, str, str]], now_ms: int) -> None:
        """Move (subject, subscriber id) to an LSN, forward only, and note that it was seen; one transaction for all."""

    def subscribers(self) -> list[SubscriberRow]:
        """Return all subscribers, by name."""

    def raise_alarm(self, code: str, detail: str, now_ms: int, *, feed: str = "", agent_id: str = "") -> int:
        """Raise an alarm and return its id; one that stands for the same (code, feed, agent) is brought up to date."""

    def clear_alarms(self, code: str, *, agent_id: str, now_ms: int) -> None:
        """Clear the alarms of this code that stand against ``agent_id`` (empty: against no agent)."""

    def alarms(self) -> list[AlarmRow]:
        """Return the alarms that stand, newest first, then the newest cleared ones."""
