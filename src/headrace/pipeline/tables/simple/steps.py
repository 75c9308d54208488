"""What is to be done with the tables of a batch, step by step: values that the plan makes and the tables job carries out.

A table has an *identity*, the sequence id of the entry that brought it. It keeps it through renames; a later table of the
same name has another one. Steps of one identity are done in their order; identities know nothing of each other.
"""

from __future__ import annotations

import msgspec

from headrace.pipeline.tables.simple.expressions import Expression
from headrace.pipeline.tables.simple.state import TableState
from headrace.simple.schema import TableSchema


class TableColumn(msgspec.Struct, frozen=True):
    """A column of a Delta table: its name, and its Spark type in Spark's own words (``decimal(20,0)``, ``bigint``)."""

    name: str
    kind: str


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """``place``: the sequence id that is done with this step. It grows from step to step of one identity, over batches too.

    The same entries give the same steps again, so a place is what Delta's commits can be told apart by. ``state``: the table
    behind this step. Who stops at a later step keeps this one's, with :func:`~.state.stopped`.
    """

    identity: int
    place: int
    state: TableState


class Make(Step, frozen=True, kw_only=True):
    """Make an empty table. ``state.name`` is its name now."""

    columns: tuple[TableColumn, ...]


class Empty(Step, frozen=True, kw_only=True):
    """Take all rows out, and give the table exactly these columns, whatever it had."""

    columns: tuple[TableColumn, ...]


class Erase(Step, frozen=True, kw_only=True):
    """The table is gone at its source: it leaves the published moment, and its folder is not used again."""


class RenameTo(Step, frozen=True, kw_only=True):
    """The table has another name, ``state.name``; its folder and rows stay."""


class Stop(Step, frozen=True, kw_only=True):
    """The table can't go on. ``reason`` in words, ``hint``: what helps. It stays as it was before this step.

    Later plans pass over everything about it, until an entry comes that makes what it has irrelevant: TRUNCATE (as
    ``headrace capture copy`` sends it), ERASE or CREATE.
    """

    reason: str
    hint: str


class Projected(msgspec.Struct, frozen=True):
    """A column after an evolution, and what its value is in a row that was there."""

    name: str
    kind: str
    value: Expression


class Check(msgspec.Struct, frozen=True):
    """What must hold in every row that was there, else the table stops with ``reason``: the source may have changed values.

    ``column`` is its name before the evolution. ``sql``: a condition over the columns before it, true or NULL where all is
    well.
    """

    column: str
    sql: str
    reason: str


class Evolve(Step, frozen=True, kw_only=True):
    """The columns ``before`` become ``after``. First every one of ``checks`` is looked at, then one of two ways:

    - ``in_place``: the values of rows don't change. Do ``drops``, ``renames`` one by one (a column may go by a temporary
      name), ``widenings`` (names after the renames), ``adds`` (NULL in old rows), in this order. The columns are others
      after each one, so how far a killed job came can be seen.
    - else rows get new values: replace the table by ``projection`` in one commit. (``in_place`` is false then; the four
      lists are () and the projection tells all.)
    """

    before: tuple[TableColumn, ...]
    after: tuple[TableColumn, ...]
    checks: tuple[Check, ...]
    in_place: bool
    drops: tuple[str, ...]
    renames: tuple[tuple[str, str], ...]
    widenings: tuple[TableColumn, ...]
    adds: tuple[TableColumn, ...]
    projection: tuple[Projected, ...]


class Reading(msgspec.Struct, frozen=True):
    """How workers read rows: it travels to them.

    ``schemas``: the versions that rows of this stretch name. ``columns``: the table's own, which may be wider than those of
    a schema. ``key``: the columns that tell rows apart, by which rows are merged; never NULL.
    """

    feed: str
    schemas: tuple[TableSchema, ...]
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]


class Rows(Step, frozen=True, kw_only=True):
    """Merge the rows of the entries ``first`` to ``last`` whose ``table`` is one of ``names``."""

    first: int
    last: int
    names: tuple[tuple[str, str], ...]
    reading: Reading
