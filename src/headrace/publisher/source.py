"""What the agent and the commands ask of a source database. One more database is one more implementation of this.

Calls block and are made from one thread; no transaction is held between two calls. Every error is a
:class:`~headrace.errors.HeadraceError`: SourceUnavailable can pass by itself, the others can't.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from headrace.publisher.attach.finding import Attached, Finding
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.copies import CopyRequest, CopyStanding, CopyState, CopyStep
from headrace.publisher.marked import APPEND_ENTRIES_MAX, MarkedRow, RowPlace
from headrace.publisher.owner import Alarm, FeedPlace, Resume
from headrace.publisher.parked import ParkedRow, Retried
from headrace.publisher.standing import FeedStanding, Holder
from headrace.publisher.state import StatePlace, StateReader, StateSink


class AttachedTable(NamedTuple):
    """One table that attach was asked for. ``number`` names the attachment; ``new`` is False where it stood just so."""

    table: str
    feed: str
    version: int
    number: int
    new: bool


class DetachedTable(NamedTuple):
    """What detach did: ``waiting`` rows are committed changes that the agent has yet to deliver."""

    table: str
    feed: str
    waiting: int


class Source(Protocol):
    """One application's database: its outbox, its attached tables. Open from construction until :meth:`close`."""

    def close(self) -> None:
        """Close the connection; does nothing the second time."""

    def check_outbox(self) -> None:
        """Raise TableNotFound if there is no outbox, FormatTooNew if it needs a newer Headrace."""

    def attach(self, request: AttachRequest) -> list[AttachedTable]:
        """Put triggers on the tables of ``request``, all or none; idempotent. Begins the copies of their rows."""

    def begin_copy(self, request: CopyRequest) -> int:
        """Begin a copy of an attached table's rows, or find the same one that runs; returns its number.

        Raises Usage (a condition that the database refuses; the same copy is paused), TableNotFound (not attached).
        """

    def copy_chunk(self, number: int) -> CopyStep | None:
        """Take the next bounded step of the copy ``number``; None once it doesn't run (any more). Resumable.

        Safe for several processes at once: who comes while another works on this copy does nothing.
        """

    def copies(self) -> list[CopyStanding]:
        """Return the copies of attached tables, running and ended, oldest first."""

    def set_copy_state(self, number: int, state: CopyState) -> None:
        """Pause (PAUSED), resume (RUNNING) or cancel (CANCELLED) a copy; nothing happens to one that is over."""

    def detach(self, tables: Sequence[str], *, discard: bool = False) -> list[DetachedTable]:
        """Take triggers away (of all tables if none is named), and what was made for them once it is delivered."""

    def check(self, feeds: Iterable[str] | None = None) -> list[Attached]:
        """Return the attached tables, each with what is wrong with it; writes nothing."""

    def advice(self) -> list[str]:
        """Return sentences about settings of the database that cost something here."""

    def accept(self, feed: str, reason: str) -> Alarm:
        """Note that the feed is accepted as the agent found it when it stopped over its place; returns that alarm.

        The agent acts on it at its next start. Usage if there is no such alarm.
        """

    def alarm_of(self, feed: str) -> Alarm | None:
        """Return the alarm that the agent stored for ``feed``."""

    def set_alarm(self, feed: str, alarm: Alarm | None) -> None:
        """Store the feed's alarm, where commands find it; None: all is well."""

    def claim(self, feed: str, agent_id: str, place: FeedPlace, now_ms: int) -> Resume:
        """Own ``feed`` at ``place.epoch`` and settle rows marked before against where the feed is (owner.compare)."""

    def advance(
        self,
        feed: str,
        agent_id: str,
        epoch: int,
        done: RowPlace | None,
        now_ms: int,
        *,
        rows_max: int = APPEND_ENTRIES_MAX,
        ahead: bool = False,
    ) -> int:
        """Mark rows up to ``done`` as processed, and the next up to ``rows_max`` rows as ours; returns how many are new.

        One transaction, in whole units where they fit. ``ahead``: mark as many more, however many are marked and not
        processed: the server is away, and who asks can't post. AgentFenced if another agent, or this one at another epoch,
        owns the feed. SourceUnavailable, with nothing changed, if the outbox is not where this agent's :meth:`claim` and
        ``advance`` left it: then claim anew. AttachUnsafe if rows wait that can't be delivered; what was done is processed
        all the same.
        """

    def batch(self, feed: str, agent_id: str) -> list[MarkedRow]:
        """Return the next marked, unprocessed rows for one append, in order; empty if there are none.

        Raises AgentFenced and SourceUnavailable as :meth:`advance` does.
        """

    def begin_snapshot(
        self, feed: str, agent_id: str, epoch: int, reader: StateReader, sink: StateSink
    ) -> StatePlace:
        """Fix what ``reader`` reads: the state in which every row that it sees is marked, and no other. Returns its place.

        Marks and commits at once; the reading goes on beside later calls, on the reader's own connection. Where the database
        can't have a reader beside writers, the whole state is given to ``sink`` before the commit, and ``reader.was_read``
        is set; what ``sink`` took is void if this raises. Raises what :meth:`advance` raises, with nothing marked.
        """

    def mend(self, feed: str) -> list[Finding]:
        """Check the feed's attached tables, rebuild what can be rebuilt; returns what is left for a person."""

    def copy_pending(self, feed: str) -> CopyStep | None:
        """Take one bounded step of a copy of ``feed`` that runs; None if none runs, else when the next step is due."""

    def sweep(self, feed: str, processed_before_ms: int) -> int:
        """Delete one bounded chunk of rows processed before then; returns how many."""

    def skip(self, feed: str, row_id: int, reason: str) -> ParkedRow:
        """Park the row over which the agent stopped: a PARKED control entry takes its place at the agent's next start.

        Usage if ``feed`` has not stopped over just that row, or if consumers can't do without it (a schema, a TRUNCATE).
        """

    def parked(self, feeds: Sequence[str]) -> list[ParkedRow]:
        """Return the parked rows of ``feeds``, oldest first."""

    def retry_parked(self, row_id: int) -> Retried:
        """Put a parked row at the end of its feed and forget that it was parked; its old place is never used again.

        Of an attached table: the row's present state as a copy, or a delete if it is gone. Of ``Outbox.add``: the row
        itself, only if none of its key came later. Usage, naming what stands in the way, with nothing changed.
        """

    def drop_parked(self, row_id: int) -> ParkedRow:
        """Forget a parked row. Usage if there is none, or its control entry is not in the feed yet."""

    def has_changed(self, *, busy: bool) -> bool:
        """Return whether another connection may have committed since the last call. Cheap: it is polled.

        ``busy``: there was a change a moment ago. A source that can be woken may go to sleep when it is not.
        """

    def is_replaced(self) -> bool:
        """Return whether to open the source anew: its connection is gone, or the DSN names another file by now. Cheap."""

    def schema_version(self) -> int:
        """Return a number that changes with the schema. Cheap: it is asked before each marking."""

    def standing(self, feeds: Sequence[str] | None = None) -> list[FeedStanding]:
        """Return how ``feeds`` stand in the outbox; all that it knows, if none are named."""

    def holders(self) -> list[Holder]:
        """Return what keeps the database from removing old row versions, oldest first."""
