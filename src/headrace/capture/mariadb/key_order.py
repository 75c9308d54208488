"""The order in which a table's rows stand in its handle key's index: as SQL for the next chunk, and to judge single keys.

Numbers, dates, times and bytes are compared here. Where text, UUIDs and addresses stand is known to the server alone (its
collations): :class:`AskedOrder` asks it, many keys at once. A key is the tuple of its raw values, in the key's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from headrace.capture.mariadb.connection import Source, fetch, source_errors
from headrace.capture.mariadb.key_parts import Part, part_of, quoted
from headrace.capture.position import RawKey
from headrace.errors import TableStopped
from headrace.simple.faults import Misfit, show
from headrace.simple.schema import TableSchema

ASKED_AT_ONCE_MAX: Final = 500
"""Comparisons in one question."""

ASKED_CHARS_MAX: Final = 256 << 10
"""Length of one question: a server may take no packet of more than 1 MiB. A single comparison may be longer."""


class KeyOrder:
    """The order of one table's handle key. Pure.

    ``columns``: its names, in the key's order. ``places``: where they stand in the schema's columns.
    """

    def __init__(self, schema: TableSchema, forms: Mapping[str, str] | None = None) -> None:
        """``forms``: of columns whose type (``uuid``, ``inet6``, ``inet4``) is not ordered as the text that messages have of
        them, name -> type.

        TableStopped where nothing tells the rows apart, or a column of the key has a type that has no known order.
        """
        self.schema = schema
        self.columns = schema.handle_key
        if not self.columns:
            raise self._stopped(
                f"{self._name} has neither a primary key nor a UNIQUE key of NOT NULL columns: nothing tells its rows apart",
                "Give the table a primary key, then run headrace capture copy for it.",
            )
        at = {column.name: place for place, column in enumerate(schema.columns)}
        self.places = tuple(at[name] for name in self.columns)
        self._parts = tuple(self._part(place, forms or {}) for place in self.places)

    @property
    def order_by(self) -> str:
        """The list behind ORDER BY."""
        return ", ".join(map(quoted, self.columns))

    def after(self, key: RawKey) -> str:
        """Return the condition for the rows behind ``key``, written so that the server reads a range of the index.

        TableStopped if ``key`` is none of this table.
        """
        values = self._read(key)
        condition = self._parts[-1].behind(values[-1])
        for part, value in zip(self._parts[-2::-1], values[-2::-1], strict=True):
            condition = f"({part.behind(value)} OR ({part.equal(value)} AND {condition}))"
        return condition

    def same(self, key: RawKey) -> str:
        """Return the condition for the row of ``key``; TableStopped if that is none of this table."""
        pairs = zip(self._parts, self._read(key), strict=True)
        return " AND ".join(part.equal(value) for part, value in pairs)

    def covers(self, last: RawKey, key: RawKey) -> bool | None:
        """Tell whether ``key`` is at or before ``last``; None if only the server can: ask :class:`AskedOrder`.

        TableStopped if one of them is no key of this table.
        """
        found = self.decide(last, key, {})
        return None if isinstance(found, str) else found

    def decide(self, last: RawKey, key: RawKey, signs: Mapping[str, int]) -> bool | str:
        """Do as :meth:`covers` with what the server has answered so far: comparison in SQL -> -1, 0 or 1.

        Returns the next comparison that it must answer where the ones so far do not do.
        """
        for part, own, other in zip(self._parts, self._read(key), self._read(last), strict=True):
            sign = part.sign(own, other)
            if sign is None:
                question = part.question(own, other)
                if question not in signs:
                    return question
                sign = signs[question]
            if sign:
                return sign < 0
        return True

    def _part(self, place: int, forms: Mapping[str, str]) -> Part:
        column = self.schema.columns[place]
        try:
            return part_of(column, forms.get(column.name))
        except Misfit:
            kind = column.data_type
            raise self._stopped(
                f"{self._name}.{column.name} is in the handle key, and its type {kind.mysql_type} ({kind.charset}, "
                f"{kind.collate}) has no order that is known",
                "Give the table a primary key of another type, then run headrace capture copy for it.",
            ) from None

    def _read(self, key: RawKey) -> list[Any]:
        if len(key) != len(self._parts):
            raise self._stopped(f"a key of {self._name} has {len(self._parts)} values, not {len(key)}")
        values = []
        for name, part, raw in zip(self.columns, self._parts, key, strict=True):
            try:
                values.append(part.read(raw))
            except Misfit:
                raise self._stopped(
                    f"{self._name}.{name} is in the handle key; rows can't be found by {show(raw)}: it must be "
                    f"{part.expected}",
                    "Give the table a primary key that is a number, then run headrace capture copy for it.",
                ) from None
        return values

    @property
    def _name(self) -> str:
        return f"{self.schema.schema}.{self.schema.table}"

    def _stopped(self, detail: str, hint: str | None = None) -> TableStopped:
        return TableStopped(detail, hint=hint, database=self.schema.schema, table=self.schema.table)


class AskedOrder:
    """The same with the server's help. ``connection`` gives what short questions are asked on, once there are some.

    They read no table.
    """

    def __init__(self, connection: Callable[[], Source], order: KeyOrder) -> None:
        self._connection = connection
        self._order = order

    def covers(self, last: RawKey, keys: Sequence[RawKey]) -> list[bool]:
        """Tell of each of ``keys`` whether it is at or before ``last``. Keys that can be judged here are not asked about.

        Raises TableStopped (no key of this table), SourceForbidden, SourceUnavailable.
        """
        signs: dict[str, int] = {}
        while True:
            found = [self._order.decide(last, key, signs) for key in keys]
            questions = list(dict.fromkeys(one for one in found if isinstance(one, str)))
            if not questions:
                return [one is True for one in found]
            for batch in _batches(questions):
                signs |= self._ask(batch)

    def _ask(self, questions: Sequence[str]) -> dict[str, int]:
        with source_errors():
            (answers,) = fetch(self._connection(), f"SELECT {', '.join(questions)}")
        return dict(zip(questions, map(int, answers), strict=True))


def _batches(questions: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    chars = 0
    for question in questions:
        if batch and (len(batch) == ASKED_AT_ONCE_MAX or chars + len(question) > ASKED_CHARS_MAX):
            yield batch
            batch, chars = [], 0
        batch.append(question)
        chars += len(question)
    if batch:
        yield batch
