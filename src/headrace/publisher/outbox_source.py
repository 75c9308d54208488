"""What every source with an outbox does alike: it hands calls to that database's relay, owner row and parked rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Generic, NamedTuple, Protocol, TypeVar

from headrace.publisher.marked import MarkedRow
from headrace.publisher.owner import Alarm, Owner
from headrace.publisher.parked import ParkedRow, Retried
from headrace.publisher.source import Source


class Relay(Protocol):
    """One feed's outbox on one connection, as each database has it."""

    def batch(self) -> list[MarkedRow]:
        """See :meth:`Source.batch`."""


C = TypeVar("C")
C_contra = TypeVar("C_contra", contravariant=True)
R = TypeVar("R", bound=Relay)


class Parking(Protocol[C_contra]):
    """A database's module for parked rows."""

    def skip(self, connection: C_contra, feed: str, row_id: int, reason: str) -> ParkedRow:
        """See :meth:`Source.skip`."""

    def parked_rows(self, connection: C_contra, feeds: Sequence[str]) -> list[ParkedRow]:
        """See :meth:`Source.parked`."""

    def retry(self, connection: C_contra, row_id: int) -> Retried:
        """See :meth:`Source.retry_parked`."""

    def drop(self, connection: C_contra, row_id: int) -> ParkedRow:
        """See :meth:`Source.drop_parked`."""


class Parts(NamedTuple, Generic[C, R]):
    """One database's own parts. ``errors`` turns its driver's errors into ours, around a body."""

    relay: Callable[[C, str, str], R]
    parking: Parking[C]
    read_owner: Callable[[C, str], Owner | None]
    check_format: Callable[[C], object]
    errors: Callable[[], AbstractContextManager[None]]


class OutboxSource(Source, Generic[C, R]):
    """A source over one connection, with a relay for each feed and agent. What is left to say is each database's own."""

    def __init__(self, connection: C, parts: Parts[C, R]) -> None:
        self._connection = connection
        self._parts = parts
        self._relays: dict[tuple[str, str], R] = {}

    @property
    def connection(self) -> C:
        """The connection itself, for tests."""
        return self._connection

    def check_outbox(self) -> None:
        with self._parts.errors():
            self._parts.check_format(self._connection)

    def alarm_of(self, feed: str) -> Alarm | None:
        with self._parts.errors():
            owner = self._parts.read_owner(self._connection, feed)
        return None if owner is None else owner.alarm

    def batch(self, feed: str, agent_id: str) -> list[MarkedRow]:
        return self._relay(feed, agent_id).batch()

    def skip(self, feed: str, row_id: int, reason: str) -> ParkedRow:
        return self._parts.parking.skip(self._connection, feed, row_id, reason)

    def parked(self, feeds: Sequence[str]) -> list[ParkedRow]:
        return self._parts.parking.parked_rows(self._connection, feeds)

    def retry_parked(self, row_id: int) -> Retried:
        return self._parts.parking.retry(self._connection, row_id)

    def drop_parked(self, row_id: int) -> ParkedRow:
        return self._parts.parking.drop(self._connection, row_id)

    def _relay(self, feed: str, agent_id: str) -> R:
        """Return the relay, which knows how far it is; one that never claimed its feed posts nothing."""
        return self._relays.get((feed, agent_id)) or self._new_relay(feed, agent_id)

    def _new_relay(self, feed: str, agent_id: str) -> R:
        """Return a relay that knows nothing, to claim the feed with; it takes the old one's place."""
        relay = self._relays[feed, agent_id] = self._parts.relay(self._connection, feed, agent_id)
        return relay
