"""What a listener hands over besides single changes: batches of them, and a snapshot as begin, rows and end.

A consumer that keeps state takes a snapshot so: at :class:`SnapshotBegin` it starts an empty state beside the one it has
(and throws away one that it had begun before); :class:`SnapshotRows` go into it; at :class:`SnapshotEnd` it puts it in the
old one's place in one step. No change comes between begin and end. An end that never comes means that nothing of it counts.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from headrace.client.snapshot_body import SnapshotRow
from headrace.entries.bookmark import Bookmark
from headrace.errors import Usage
from headrace.listener.change import Change

if TYPE_CHECKING:
    import psycopg

    from headrace.listener.postgres import PostgresBookmarks

T = TypeVar("T")


class _Moves(Protocol):
    """The listener, as far as a place needs it."""

    @property
    def listener_id(self) -> str: ...

    @property
    def feed(self) -> str: ...

    @property
    def transactional(self) -> PostgresBookmarks: ...

    async def move_to(self, place: Bookmark) -> None: ...


@dataclass(slots=True)
class Place:
    """Something a consumer can be done with, and where it then stands."""

    place: Bookmark
    _listener: _Moves = field(repr=False)
    moved_in: bool = field(default=False, init=False, repr=False)
    """The bookmark was moved in a transaction of the consumer, which may have been rolled back."""

    async def done(self) -> None:
        """Store the bookmark behind it; durable when this returns."""
        await self._listener.move_to(self.place)

    def move_in(self, connection: psycopg.Connection[Any]) -> None:
        """Move the bookmark in the transaction that is open on the consumer's own ``connection``: both or neither.

        Needs :class:`~headrace.listener.postgres.PostgresBookmarks`. BookmarkMoved: roll back, another listener took over.
        """
        listener = self._listener
        listener.transactional.move_in(connection, listener.listener_id, listener.feed, self.place)
        self.moved_in = True

    async def move_in_async(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Do what :meth:`move_in` does on psycopg's asynchronous connection."""
        listener = self._listener
        store = listener.transactional
        await store.move_in_async(connection, listener.listener_id, listener.feed, self.place)
        self.moved_in = True


@dataclass(slots=True)
class Batch(Place):
    """Changes that came together, in order. Await :meth:`done` once the consumer has done with all of them.

    ``place`` lies behind the last of them, or further where a filter took away what follows.
    """

    changes: list[Change]


@dataclass(frozen=True, slots=True)
class SnapshotBegin:
    """A snapshot of the publisher's state begins: everything up to ``sequence_id`` is in it, nothing after."""

    snapshot_id: str
    sequence_id: int
    incarnation: str


@dataclass(frozen=True, slots=True)
class SnapshotRows:
    """Rows of the snapshot, each key once, in no promised order; schemas (``row.is_control``) before their table's rows."""

    rows: list[SnapshotRow]


@dataclass(slots=True)
class SnapshotEnd(Place):
    """All ``rows`` of the snapshot that were wanted have come, its checksum is right.

    The bookmark moves when the next thing is asked for.
    """

    snapshot_id: str
    rows: int


SnapshotPart = SnapshotBegin | SnapshotRows | SnapshotEnd
Delivery = Batch | SnapshotPart


@dataclass(frozen=True, slots=True)
class HydrationProgress:
    """How far a snapshot is. ``being-made``: at the publisher. Bytes are those of the encoded body; None if not known."""

    state: Literal["being-made", "applying", "applied"]
    rows: int
    sequence_id: int | None = None
    snapshot_id: str | None = None
    bytes_done: int = 0
    bytes_total: int | None = None


OnProgress = Callable[[HydrationProgress], None]


def no_transaction() -> Usage:
    """Return the error of a store whose bookmark can't move in a consumer's transaction."""
    return Usage(
        "this bookmark store knows no transactions of the consumer",
        hint="Use PostgresBookmarks, or Batch.done().",
    )


async def called(call: Callable[[T], Awaitable[None] | None], given: T) -> None:
    """Hand ``given`` to a consumer's function, which may be a coroutine function."""
    answer = call(given)
    if inspect.isawaitable(answer):
        await answer
