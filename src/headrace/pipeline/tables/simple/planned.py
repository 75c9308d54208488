"""One table while a batch is planned: what it is so far, and the steps that bring its Delta table there."""

from __future__ import annotations

from typing import Any, Final

from headrace.pipeline.tables.simple.evolution import Columns, Unfollowed
from headrace.pipeline.tables.simple.state import TableState
from headrace.pipeline.tables.simple.steps import Empty, Evolve, Make, RenameTo, Step, Stop, TableColumn

_COPY_HINT: Final = "Run `headrace capture copy {}`: the table goes on with that copy."


class PlannedTable:
    """One table while a batch is planned. ``place``: of the last entry that said something of its columns."""

    def __init__(self, state: TableState, *, place: int) -> None:
        self.identity = state.identity
        self.name = state.name
        self.columns = Columns(state.columns, state.hidden)
        self.schema = state.schema
        self.adopted = state.adopted
        self.made = self.was_made = state.made
        self.stopped = state.stopped
        self.copying = state.copying
        self.moving = state.moving
        self.place = place
        self.steps: list[Step] = []

    def state(self) -> TableState:
        """Return the table as its steps so far leave it."""
        return TableState(
            identity=self.identity,
            name=self.name,
            columns=self.columns.there,
            hidden=tuple(self.columns.hidden),
            schema=self.schema,
            adopted=self.adopted,
            made=self.made,
            stopped=self.stopped,
            copying=self.copying,
            moving=self.moving,
        )

    def add(self, kind: type[Step], place: int, **members: Any) -> None:
        """Add a step."""
        common: dict[str, Any] = {"identity": self.identity, "place": place, "state": self.state()}
        self.steps.append(kind(**common, **members))

    def flush(self, before_row: int | None = None) -> None:
        """Bring the Delta table's columns up to date: where they were changed, or right before the row that says so.

        Between a statement and such a row stands a schema entry at least, so no two steps have the same place. Unfollowed
        where no table can have the columns' names.
        """
        place = self.place if before_row is None else before_row - 1
        self.columns.check_names()
        tracked = self.columns.tracked()
        after = tuple(TableColumn(one.name, one.kind) for one in tracked)
        before = tuple(TableColumn(one.name, one.kind) for one in self.columns.there)
        change = self.columns.evolution() if self.made and self.adopted is not None else None
        self.columns = Columns(tracked, self.columns.hidden)
        if not self.made:
            self.made = True
            self.add(Make, place, columns=after)
        elif change is not None:
            self.add(Evolve, place, **change)
        elif self.adopted is None and before != after:
            self.add(Empty, place, columns=after)

    def empty(self, place: int) -> None:
        """Take all rows out, and with them what kept the table from going on."""
        self.steps = [step for step in self.steps if isinstance(step, Make | RenameTo)]
        self.stopped, self.adopted, self.place = "", None, place
        if self.schema is not None:
            self.columns.reset(self.schema)
        self.columns = Columns(self.columns.tracked(), self.columns.hidden)
        if self.made:
            columns = tuple(TableColumn(one.name, one.kind) for one in self.columns.there)
            self.add(Empty, place, columns=columns)

    def stop(self, place: int, reason: str, hint: str = "") -> None:
        """Stop the table as the entries before ``place`` left it."""
        if self.stopped:
            return
        try:
            if self.columns.slots and self.schema is not None:
                self.flush()
        except Unfollowed as error:
            reason = f"{reason}; {error}"
        self.stopped = reason
        hint = hint or _COPY_HINT.format(".".join(self.name))
        self.add(Stop, place, reason=reason, hint=hint)
