"""What every metadata database does. Nothing in it orders or fences appends: that is in the journal.

Calls are short and blocking, and are made from any thread of the server. What the database can't do (a full disk, a lost
connection) is StoreUnavailable.

Each row carries a checksum (``rows``), which is compared at each read. A row that fails it is never served and never moved
on: a call that is about that row alone raises MetadataCorrupt, one that lists many leaves it out, and
:attr:`Metadata.damages` knows it. Registering a listener again writes its row anew; ``headrace log repair`` removes what
can't be read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, Protocol

from headrace.log.metadata.damages import Damages
from headrace.log.metadata.owners import ANYBODY, Claimant
from headrace.log.metadata.rows import (
    TABLES,
    AlarmRow,
    HydrationRow,
    Key,
    ListenerRow,
    ProgressRow,
    ReportRow,
    RowDamage,
    SchemaMark,
    SchemaRow,
    SlotMove,
    SlotRow,
    SnapshotRow,
    SubscriberRow,
    Table,
)

__all__ = [
    "ALARMS_MAX",
    "AlarmRow",
    "HydrationRow",
    "ListenerRow",
    "Metadata",
    "ProgressRow",
    "ProgressRows",
    "ReportRow",
    "ReportRows",
    "RowDamage",
    "SchemaMark",
    "SchemaRow",
    "SchemaRows",
    "SlotMove",
    "SlotRow",
    "SlotRows",
    "SnapshotRow",
    "SubscriberRow",
]

ALARMS_MAX: Final = 500
"""Alarms shown: all that stand, then the newest cleared ones. And cleared ones that are kept."""


class SchemaRows(Protocol):
    """The tables' schemas that stood in the feeds, kept whatever retention drops; see ``log/schemas``."""

    def mark(self) -> SchemaMark | None:
        """Return up to where the journal's schemas are kept; None if that is not known, or its row is damaged."""

    def begin(self, position: int, forget_above: str | None = None) -> None:
        """Have all schemas from ``position`` on looked for again. Those above the LSN ``forget_above`` are removed."""

    def keep(self, rows: Sequence[SchemaRow], since: int, mark: SchemaMark | None) -> bool:
        """Keep what was found from ``since`` on, and that up to ``mark`` there is nothing else; in one transaction.

        Of two with one key the one with the greater LSN stays, and the mark moves forward only: so several servers may find
        the same. False, and nothing is kept, if the journal is to be looked over from before ``since``: see :meth:`begin`.
        """

    def schema(self, feed: str, database: str, table: str, version: int) -> SchemaRow | None:
        """Return a schema, None if there is none; MetadataCorrupt if its row is damaged."""

    def newest(self, feed: str, after: int, rows_max: int) -> list[SchemaRow]:
        """Return the newest schema of each table of ``feed``, those above the sequence id ``after``, in its order."""


class ProgressRows(Protocol):
    """Up to where consumers had come when: for people alone, who ask what became of an entry. Nothing is decided by it."""

    def of_feed(self, feed: str) -> list[ProgressRow]:
        """Return what is known of those who read ``feed``, or (empty) of those who go along all feeds."""

    def change(
        self, keys: Collection[Key], change: Callable[[Key, ProgressRow | None], ProgressRow | None]
    ) -> None:
        """Keep for each key what ``change`` makes of its row; one transaction for all. None: nothing is to be kept.

        ``change`` gets None where there is no row or it is damaged, which is then written anew. It may be called twice.
        """

    def forget(self, moved_before_ms: int, rows_max: int) -> int:
        """Remove rows of what has not moved since, so many at most, and return how many."""


class ReportRows(Protocol):
    """What processes last said of themselves: for people alone. Nothing is decided by it."""

    def keep(self, rows: Sequence[ReportRow]) -> None:
        """Keep these as the last of their processes; one transaction for all. What was said later than a row stays."""

    def all(self) -> list[ReportRow]:
        """Return the last report of every process, by kind and name."""

    def forget(self, reported_before_ms: int, rows_max: int) -> list[tuple[str, str]]:
        """Remove reports that are older, so many at most, and return (kind, name) of each, the oldest first."""

    def drop(self, kind: str, name: str) -> None:
        """Remove a report; nothing happens if there is none. A damaged row goes too."""


class SlotRows(Protocol):
    """Replication slots, each with the place of its subscriber: a slot without its place would hold nothing."""

    def make(self, row: SlotRow, lsn: str, now_ms: int) -> bool:
        """Keep a new slot whose place is ``lsn``, in one transaction. False, and nothing changes, if its name is taken.

        MetadataCorrupt if the row of that name is damaged.
        """

    def all(self) -> list[SlotRow]:
        """Return all slots, by name."""

    def one(self, name: str) -> SlotRow | None:
        """Return a slot, None if there is none; MetadataCorrupt if its row is damaged."""

    def change(self, name: str, change: Callable[[SlotRow], SlotRow]) -> SlotRow | None:
        """Keep, and return, what ``change`` makes of a slot; None if there is none. It may be called twice.

        What it raises is raised, and nothing changes then. MetadataCorrupt if its row is damaged.
        """

    def move(self, moves: Sequence[SlotMove], now_ms: int) -> list[SlotMove]:
        """Move slots and their places forward, never back, and note that they were seen; one transaction for all.

        Returns the moves that fit no slot any more: it was dropped, or another one has it. Those change nothing. What is
        damaged stays as it is.
        """

    def drop(self, name: str, slot_id: str | None = None) -> bool:
        """Remove a slot, damaged or not, with its place. False, and nothing changes, if there is none.

        With ``slot_id`` that slot alone: none of its name that was made after it.
        """


class Metadata(Protocol):
    """The metadata database of one log."""

    damages: Damages
    """Rows that failed their checksum when they were last read."""
    schemas: SchemaRows
    progress: ProgressRows
    reports: ReportRows
    slots: SlotRows

    def check(self, tables: Sequence[Table[Any]] = TABLES) -> list[RowDamage]:
        """Read every row of ``tables``, and return the rows that fail their checksum, those met in other tables too."""

    def forget_damaged(self) -> list[RowDamage]:
        """Remove the rows that fail their checksum, and return them: what they said is lost for good.

        Schemas are looked for again in all that is retained.
        """

    def close(self) -> None:
        """Let go of the database."""

    def register_listener(
        self, listener_id: str, feed: str, hold: bool, now_ms: int, who: Claimant = ANYBODY
    ) -> None:
        """Register a listener with a feed; its bookmark, if it has one, stays. A damaged row is written anew, without.

        It is that of ``who`` from then on. ListenerTaken if it is another's, ListenersTooMany, and MetadataCorrupt if it
        can't be read whose it is.
        """

    def owner(self, listener_id: str, feed: str) -> str | None:
        """Return the subject whose the listener is; None if it is nobody's. MetadataCorrupt if that row is damaged."""

    def forget_listeners(self, seen_before_ms: int, rows_max: int) -> list[ListenerRow]:
        """Remove listeners that were last seen earlier than that, so many at most, with all that is known of them.

        Those with a lease that expires later stay, and damaged rows. Returns what was removed.
        """

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

    def move_subscribers(self, places: Iterable[tuple[str, str, str]], now_ms: int) -> list[SubscriberRow]:
        """Move (subject, subscriber id) to an LSN, forward only, and note that it was seen; one transaction for all.

        Returns the rows as they stand then, in no order. Whoever is not among them has no row, so that nothing is stored, or
        a damaged one, which stays as it is: :meth:`Damages.raise_if_damaged` afterwards says so to whoever it belongs to.
        """

    def subscribers(self) -> list[SubscriberRow]:
        """Return all subscribers, by name."""

    def least_place(self, seen_after_ms: int) -> str | None:
        """Return the least LSN of the subscribers that were seen later than that, None if there are none.

        Without a look at checksums: it may be that of a damaged row.
        """

    def forget_subscribers(self, seen_before_ms: int, rows_max: int) -> list[SubscriberRow]:
        """Remove subscribers that were last seen earlier than that, so many at most, and return them. Damaged rows stay."""

    def change_hydration(
        self, listener_id: str, feed: str, change: Callable[[HydrationRow | None], HydrationRow]
    ) -> HydrationRow:
        """Take or renew a hydration lease: keep, and return, what ``change`` makes of it.

        ``change`` gets None where there is none or its row is damaged, which is then written anew. It may be called twice.
        """

    def end_hydration(self, listener_id: str, feed: str) -> None:
        """End a hydration lease; nothing happens if there is none. A damaged row goes too."""

    def hydration(self, listener_id: str, feed: str) -> HydrationRow | None:
        """Return a hydration lease, expired or not; None if there is none. MetadataCorrupt if its row is damaged."""

    def hydrations(self, feed: str) -> list[HydrationRow]:
        """Return the hydration leases of a feed, expired or not, by the listener's name."""

    def keep_snapshot(self, row: SnapshotRow) -> SnapshotRow:
        """Keep where a feed's publisher serves snapshots, and return what stands then, with its ticket key.

        A later registration of the same epoch keeps the key that is there; one of another epoch or incarnation brings its
        own. What an older epoch of the same incarnation says comes too late, and changes nothing.
        """

    def snapshot(self, feed: str) -> SnapshotRow | None:
        """Return where a feed's publisher serves snapshots; None if it never said. MetadataCorrupt if its row is damaged."""

    def raise_alarm(self, code: str, detail: str, now_ms: int, *, feed: str = "", agent_id: str = "") -> int:
        """Raise an alarm and return its id; one that stands for the same (code, feed, agent) is brought up to date."""

    def clear_alarms(self, code: str, *, agent_id: str, now_ms: int, feed: str | None = None) -> None:
        """Clear the alarms of this code that stand against ``agent_id`` (empty: against none), in all feeds or in one.

        Of those that were cleared the newest :data:`ALARMS_MAX` are kept.
        """

    def alarms(self) -> list[AlarmRow]:
        """Return the alarms that stand, newest first, then the newest cleared ones."""
