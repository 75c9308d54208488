"""Rows that failed their checksum: remembered until they are whole again or gone, and told to whoever raises alarms."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from headrace.log.metadata.rows import Key, RowDamage, Table, damage_of
from headrace.runtime.logs import get_logger

logger = get_logger("log")

R = TypeVar("R", bound=tuple[Any, ...])

Tell = Callable[[RowDamage, bool], None]
"""``tell(damage, stands)``: it was met, or (False) the row is whole again or gone."""


class Damages:
    """What reads of one metadata database have met. Used from any thread."""

    def __init__(self, where: Callable[[str], str]) -> None:
        """``where`` names a table, with its file, for people."""
        self._where = where
        self._guard = threading.Lock()
        self._standing: dict[tuple[str, Key], RowDamage] = {}
        self._untold: list[tuple[RowDamage, bool]] = []
        self._tell: Tell | None = None

    def standing(self) -> list[RowDamage]:
        """Return what was met and is not mended, as far as is known."""
        with self._guard:
            return list(self._standing.values())

    def raise_if_damaged(self, table: Table[Any], key: Key) -> None:
        """Raise MetadataCorrupt if the row with this key is known to be damaged."""
        with self._guard:
            damage = self._standing.get((table.name, key))
        if damage is not None:
            raise damage.error()

    def sift(self, table: Table[R], stored: Iterable[Sequence[Any]]) -> list[R]:
        """Return the rows that are whole; the others are remembered. :meth:`tell` afterwards."""
        found: list[R] = []
        for one in stored:
            row = self.checked(table, one)
            if row is not None:
                found.append(row)
        return found

    def checked(self, table: Table[R], stored: Sequence[Any]) -> R | None:
        """Return the row if it is whole, else remember it and return None. :meth:`tell` afterwards."""
        row, key = table.whole(stored), table.key_of(stored)
        if row is not None:
            if self._standing:
                self.mended(table, key)
            return row
        damage = damage_of(self._where(table.name), table, stored)
        with self._guard:
            if (table.name, key) not in self._standing:
                self._standing[table.name, key] = damage
                self._untold.append((damage, True))
                logger.error("a row of the metadata database is damaged", detail=damage.detail)
        return None

    def mended(self, table: Table[Any], key: Key) -> None:
        """Forget a row: it was written anew, or is gone. :meth:`tell` afterwards."""
        with self._guard:
            damage = self._standing.pop((table.name, key), None)
            if damage is not None:
                self._untold.append((damage, False))

    def all_read(self, table: Table[Any], stored: Iterable[Sequence[Any]]) -> None:
        """Forget the table's rows that are not among ``stored``, which is all of it. :meth:`tell` afterwards."""
        there = {table.key_of(one) for one in stored}
        for damage in self.standing():
            if damage.table == table.name and damage.key not in there:
                self.mended(table, damage.key)

    def tell(self) -> None:
        """Tell what is new since; call it with the database free, because an alarm is written there."""
        with self._guard:
            tell = self._tell
            untold, self._untold = (self._untold, []) if tell is not None else ([], self._untold)
        if tell is not None:
            for damage, stands in untold:
                tell(damage, stands)

    def tell_to(self, tell: Tell) -> None:
        """Have ``tell`` called for each damage from now on, and for those that stand."""
        with self._guard:
            self._tell = tell
            self._untold = [(damage, True) for damage in self._standing.values()]
        self.tell()
