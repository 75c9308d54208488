"""Replication slots, in PostgreSQL. Servers that write the same row wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from headrace.log.metadata.contract import SlotMove, SlotRow, SlotRows
from headrace.log.metadata.damages import Damages
from headrace.log.metadata.postgres_rows import Session, locked_row, put_rows, stored_rows
from headrace.log.metadata.rows import SLOT, SUBSCRIBER, SubscriberRow, slot_subscriber

T = TypeVar("T")

_NAMED = "WHERE name = %s"
_LOCKED = "WHERE name = %s FOR UPDATE"
_PLACE_LOCKED = "WHERE subject = %s AND subscriber_id = %s FOR UPDATE"


class _Run(Protocol):
    def __call__(self, work: Callable[[Session], T]) -> T: ...


class PostgresSlots(SlotRows):
    """A part of the metadata tables: ``run`` calls work, perhaps twice, with a connection in autocommit mode."""

    def __init__(self, run: _Run, damages: Damages) -> None:
        self._run, self._damages = run, damages

    def make(self, row: SlotRow, lsn: str, now_ms: int) -> bool:
        place = SubscriberRow(row.subject, slot_subscriber(row.name), lsn, now_ms)

        def work(connection: Session) -> bool:
            with connection.transaction():
                if self._known(connection, row.name, _NAMED) is not None:
                    return False
                # Another server may make it at this moment: its row is found then, and is not ours.
                if self._damages.checked(SLOT, locked_row(connection, SLOT, row)) != row:
                    return False
                locked_row(connection, SUBSCRIBER, place)
                put_rows(connection, self._damages, SUBSCRIBER, [place])
                return True

        return self._run(work)

    def all(self) -> list[SlotRow]:
        return self._run(
            lambda connection: self._damages.sift(SLOT, stored_rows(connection, SLOT, "ORDER BY name"))
        )

    def one(self, name: str) -> SlotRow | None:
        return self._run(lambda connection: self._known(connection, name, _NAMED))

    def change(self, name: str, change: Callable[[SlotRow], SlotRow]) -> SlotRow | None:
        def work(connection: Session) -> SlotRow | None:
            with connection.transaction():
                known = self._known(connection, name, _LOCKED)
                if known is None:
                    return None
                row = change(known)
                if row != known:
                    put_rows(connection, self._damages, SLOT, [row])
                return row

        return self._run(work)

    def move(self, moves: Sequence[SlotMove], now_ms: int) -> list[SlotMove]:
        def work(connection: Session) -> list[SlotMove]:
            with connection.transaction():
                # In one order, else two servers could wait for each other.
                return [move for move in sorted(moves) if not self._move(connection, move, now_ms)]

        return self._run(work)

    def drop(self, name: str, slot_id: str | None = None) -> bool:
        def work(connection: Session) -> bool:
            with connection.transaction():
                gone = connection.execute(
                    "DELETE FROM headrace_log.slot WHERE name = %s AND (%s::text IS NULL OR slot_id = %s)",
                    (name, slot_id, slot_id),
                ).rowcount
                if gone:
                    connection.execute(
                        "DELETE FROM headrace_log.subscriber WHERE subscriber_id = %s",
                        (slot_subscriber(name),),
                    )
                return bool(gone)

        gone = self._run(work)
        if gone:
            self._damages.mended(SLOT, (name,))
        return gone

    def _move(self, connection: Session, move: SlotMove, now_ms: int) -> bool:
        """Move a slot; False if the move fits none."""
        stored = stored_rows(connection, SLOT, _LOCKED, (move.name,))
        slot = self._damages.checked(SLOT, stored[0]) if stored else None
        if slot is None:
            return bool(stored)
        if not move.fits(slot):
            return False
        moved = slot._replace(position=max(slot.position, move.position))
        put_rows(connection, self._damages, SLOT, [moved])
        key = (slot.subject, slot_subscriber(slot.name))
        stored = stored_rows(connection, SUBSCRIBER, _PLACE_LOCKED, key)
        place = self._damages.checked(SUBSCRIBER, stored[0]) if stored else None
        if place is not None:
            seen = place._replace(lsn=max(place.lsn, move.lsn), seen_at_ms=now_ms)
            put_rows(connection, self._damages, SUBSCRIBER, [seen])
        return True

    def _known(self, connection: Session, name: str, where: str) -> SlotRow | None:
        stored = stored_rows(connection, SLOT, where, (name,))
        if not stored:
            return None
        row = self._damages.checked(SLOT, stored[0])
        if row is None:
            self._damages.raise_if_damaged(SLOT, (name,))
        return row
