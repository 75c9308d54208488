"""What the agent and the commands ask of a source database. One more database is one more implementation of this.

Calls block and are made from one thread; no transaction is held between two calls. Every error is a
:class:`~headrace.errors.HeadraceError`: SourceUnavailable can pass by itself, the others can't.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from headrace.publisher.attach.finding import Attached, Finding
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.marked import APPEND_ENTRIES_MAX, MarkedRow, RowPlace
from headrace.publisher.owner import Alarm, FeedPlace, Resume


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

    def copy_chunk(self, number: int) -> bool:
        """Copy the next rows of an attachment in a bounded transaction; False once there are no more. Resumable."""

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

    def copy_pending(self, feed: str) -> bool:
        """Copy one chunk of an unfinished copy of ``feed``, if there is one; False once there is none."""

    def sweep(self, feed: str, processed_before_ms: int) -> int:
        """Delete one bounded chunk of rows processed before then; returns how many."""

    def has_changed(self) -> bool:
        """Return whether another connection may have committed since the last call. Cheap: it is polled."""

    def is_replaced(self) -> bool:
        """Return whether the DSN names another database by now (a file put in the place of the one that is open). Cheap."""

    def schema_version(self) -> int:
        """Return a number that changes with the schema. Cheap: it is asked before each marking."""
