"""What the tables job keeps in mind of captured tables: where each is, how far, and why one is stopped. Part of the ledger.

A captured table is one of the Simple Protocol. Its identity survives renames, and its folder is never another table's. Pure.
"""

from __future__ import annotations

import msgspec

from headrace.pipeline.tables.simple.state import TableState


class StopNote(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Why a table is stopped, and where.

    ``after``: all its entries up to this sequence id are in the table, none above. ``state``: what it was there; None if it
    was not made yet. ``code``, ``reason``, ``hint``: what was wrong, and what helps. ``at``: when that was found.
    ``commit_ts``: the WATERMARK that was published last before that.
    """

    after: int
    state: TableState | None
    code: str
    reason: str
    hint: str
    at: str
    commit_ts: int | None = None


class Begun(msgspec.Struct, frozen=True, rename="kebab"):
    """A change of columns, the step ``place``, that was begun at the Delta version ``version``; it takes several commits."""

    place: int
    version: int


class CapturedTable(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """One captured table.

    ``identity``: the sequence id of the entry that brought it. ``table``: its name now. ``path``: its folder below the
    tables' folder. ``state``: as the last whole batch left it, None if the batch under way brought it. ``place``: steps up
    to this sequence id are done, which is further than ``state`` where a batch was cut short. A stopped table's ``state``
    goes on with the feed (its name may change); what the table holds is told by ``stopped``.
    """

    identity: int
    table: tuple[str, ...]
    path: str
    state: TableState | None
    place: int = 0
    stopped: StopNote | None = None
    begun: Begun | None = None

    @property
    def copying(self) -> bool:
        """Whether its first rows are still being copied, so that it is not whole yet."""
        return self.stopped is None and self.state is not None and self.state.copying


class LeftFolder(msgspec.Struct, frozen=True, rename="kebab"):
    """A folder that no published moment names any more, since ``at``: it is removed a day later."""

    path: str
    at: str


class Reached(msgspec.Struct, frozen=True, rename="kebab"):
    """The end of the last batch that is merged whole into every table that is not stopped."""

    sequence_id: int
    lsn: str


class Request(msgspec.Struct, frozen=True, rename="kebab"):
    """What an operator asks of the job: that a table is resumed, or built anew."""

    table: tuple[str, ...]
    rebuild: bool
