"""Temporary slots: each is its session's alone, and ends with it. What a name stands for is told by the slot's id.

A name alone is not enough: its session may have dropped the slot, and somebody else made another one of that name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.log.metadata.contract import SlotRow


class Owned(NamedTuple):
    """A temporary slot, and the session that made it."""

    name: str
    slot_id: str
    pid: int


class TemporarySlots:
    """Those of one server's sessions."""

    def __init__(self) -> None:
        self._owned: dict[str, Owned] = {}
        """By ``slot_id``."""

    def __iter__(self) -> Iterator[Owned]:
        return iter(list(self._owned.values()))

    def add(self, row: SlotRow, pid: int) -> None:
        """Note whose a new slot is."""
        self._owned[row.slot_id] = Owned(row.name, row.slot_id, pid)

    def forget(self, slot_id: str) -> None:
        """Leave out one that is no more."""
        self._owned.pop(slot_id, None)

    def pid_of(self, row: SlotRow) -> int | None:
        """Return the session that has a slot; None if it is no temporary one of a session here."""
        owned = self._owned.get(row.slot_id)
        return owned.pid if owned is not None else None

    def of_session(self, pid: int) -> list[Owned]:
        """Return what a session has made and not dropped."""
        return [owned for owned in self if owned.pid == pid]
