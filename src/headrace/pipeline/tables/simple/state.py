"""What is known of one table of a Simple feed, at a place of the feed: stored from batch to batch, as JSON."""

from __future__ import annotations

import msgspec

from headrace.simple.schema import DataType, TableSchema


class Tracked(msgspec.Struct, frozen=True):
    """A column that the Delta table has: its name and Spark type there, and what it is at the source.

    ``kind`` may be wider than ``data_type`` asks for: a column never gets narrower.
    """

    name: str
    kind: str
    data_type: DataType
    nullable: bool


class TableState(msgspec.Struct, frozen=True, kw_only=True):
    """One table. ``identity``: the sequence id of the entry that brought it.

    ``columns``: of the Delta table; ``hidden``: names of those that it has not, because messages have no values of them.
    ``schema``: of its last schema entry. ``adopted``: the version that the last rows named; None where no row came since it
    was made or emptied, so that ``columns`` are what the next row says. ``made``: there is a Delta table. ``stopped``: why,
    or ``""``. ``copying``: rows of a copy are under way, without which the table is not whole. ``moving``: it was renamed,
    and no schema has come under its new name; if a WATERMARK comes first, the table is not captured any more.
    """

    identity: int
    name: tuple[str, str]
    columns: tuple[Tracked, ...] = ()
    hidden: tuple[str, ...] = ()
    schema: TableSchema | None = None
    adopted: int | None = None
    made: bool = False
    stopped: str = ""
    copying: bool = False
    moving: bool = False


def stopped(state: TableState, reason: str, failed: TableState | None = None) -> TableState:
    """Return the table, stopped for ``reason``: what to keep where the step to ``failed`` could not be done.

    A copy further on goes by the schema that was known at that step: its entry does not come again.
    """
    known = state if failed is None else failed
    return msgspec.structs.replace(state, stopped=reason, schema=known.schema, moving=known.moving)


def resumed(state: TableState) -> TableState:
    """Return the table, not stopped: what to go on with from the place where it stopped."""
    return msgspec.structs.replace(state, stopped="")
