"""Replication slots, in the SQLite metadata database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from headrace.log.metadata.contract import SlotMove, SlotRow, SlotRows
from headrace.log.metadata.damages import Damages
from headrace.log.metadata.rows import SLOT, SUBSCRIBER, SubscriberRow, slot_subscriber
from headrace.log.metadata.sqlite_rows import known_row, put_rows, stored_rows

Use = Callable[[], AbstractContextManager[sqlite3.Connection]]


class SqliteSlots(SlotRows):
    """A part of an open metadata database: ``use`` gives it for reading, ``change`` within a transaction."""

    def __init__(self, use: Use, change: Use, damages: Damages) -> None:
        self._use, self._change, self._damages = use, change, damages

    def make(self, row: SlotRow, lsn: str, now_ms: int) -> bool:
        place = SubscriberRow(row.subject, slot_subscriber(row.name), lsn, now_ms)
        with self._change() as database:
            if known_row(database, self._damages, SLOT, (row.name,)) is not None:
                return False
            put_rows(database, self._damages, SLOT, [row])
            put_rows(database, self._damages, SUBSCRIBER, [place])
        return True

    def all(self) -> list[SlotRow]:
        with self._use() as database:
            return self._damages.sift(SLOT, stored_rows(database, SLOT, "ORDER BY name"))

    def one(self, name: str) -> SlotRow | None:
        with self._use() as database:
            return known_row(database, self._damages, SLOT, (name,))

    def change(self, name: str, change: Callable[[SlotRow], SlotRow]) -> SlotRow | None:
        with self._change() as database:
            known = known_row(database, self._damages, SLOT, (name,))
            if known is None:
                return None
            row = change(known)
            if row != known:
                put_rows(database, self._damages, SLOT, [row])
        return row

    def move(self, moves: Sequence[SlotMove], now_ms: int) -> list[SlotMove]:
        refused: list[SlotMove] = []
        with self._change() as database:
            for move in moves:
                stored = stored_rows(database, SLOT, "WHERE name = ?", (move.name,))
                slot = self._damages.checked(SLOT, stored[0]) if stored else None
                if slot is None or not move.fits(slot):
                    if slot is not None or not stored:
                        refused.append(move)
                    continue
                moved = slot._replace(position=max(slot.position, move.position))
                put_rows(database, self._damages, SLOT, [moved])
                key = (slot.subject, slot_subscriber(slot.name))
                place = known_row(database, self._damages, SUBSCRIBER, key, raises=False)
                if place is not None:
                    seen = place._replace(lsn=max(place.lsn, move.lsn), seen_at_ms=now_ms)
                    put_rows(database, self._damages, SUBSCRIBER, [seen])
        return refused

    def drop(self, name: str, slot_id: str | None = None) -> bool:
        with self._change() as database:
            gone = database.execute(
                "DELETE FROM slot WHERE name = ?1 AND (?2 IS NULL OR slot_id = ?2)", (name, slot_id)
            ).rowcount
            if gone:
                database.execute("DELETE FROM subscriber WHERE subscriber_id = ?", (slot_subscriber(name),))
        if gone:
            self._damages.mended(SLOT, (name,))
        return bool(gone)
