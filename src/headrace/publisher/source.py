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
from headrace.publisher.standing import FeedStanding, Holder


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
    ) -> int:
        """Mark rows up to ``done`` as processed, and the next up to ``rows_max`` rows as ours; returns how many are new.

        One transaction, in whole units where they fit. AgentFenced if another agent, or this one at another epoch, owns the
        feed. SourceUnavailable, with nothing changed, if the outbox is not where this agent's :meth:`claim` and ``advance``
        left it: then claim anew. AttachUnsafe if rows wait that can't be delivered; what was done is processed all the same.
        """

    def batch(self, feed: str, agent_id: str) -> list[MarkedRow]:
        """Return the next marked, unprocessed rows for one append, in order; empty if there are none.

        Raises AgentFenced and SourceUnavailable as :meth:`advance` does.
        """

    def mend(self, feed: str) -> list[Finding]:
        """Check the feed's attached tables, rebuild what can be rebuilt; returns what is left for a person."""

    def copy_pending(self, feed: str) -> CopyStep | None:
        """Take one bounded step of a copy of ``feed`` that runs; None if none runs, else when the next step is due."""

    def sweep(self, feed: str, processed_before_ms: int) -> int:
        """Delete one bounded chunk of rows processed before then; returns how many."""

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
