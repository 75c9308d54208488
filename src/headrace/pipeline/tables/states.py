"""What the tables job keeps in mind of captured tables: where each is, how far, and why one is stopped. Part of the ledger.

A captured table is one of the Simple Protocol. Its identity survives renames, and its folder is never another table's. Pure.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from headrace.pipeline.tables.simple.state import TableState

GONE: Final = "sequence-not-available"
"""Code of a stop whose missing entries are gone: holding retention brings nothing back, a copy does."""
FORGOTTEN: Final = "table-forgotten"
"""Code of a stop that an operator let go."""
UNSEEN: Final = "table-unseen"
"""Code of a table from before the tables' start of which no entry has come since: it may be gone at the source."""
NO_VERSION: Final = -1
"""Stands for the Delta version of a table that was not made."""


class StopNote(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Why a table is stopped, and where.

    ``after``: all its entries up to this sequence id are in the table, none above. ``state``: what it was there; None if it
    was not made yet. ``code``, ``reason``, ``hint``: what was wrong, and what helps. ``at``: when that was found.
    ``commit_ts``: the WATERMARK that was published last before that. ``version``: the Delta version that shows ``after``,
    while newer ones may be parts of a resume (:data:`NO_VERSION`: there was none); UNSET: the newest one does.
    """

    after: int
    state: TableState | None
    code: str
    reason: str
    hint: str
    at: str
    commit_ts: int | None = None
    version: int | UnsetType = UNSET

    @property
    def holds(self) -> bool:
        """Whether the table could go on with what the feed still has behind ``after``."""
        return self.code not in {GONE, FORGOTTEN, UNSEEN}

    @property
    def counts(self) -> bool:
        """Whether somebody should do something about it."""
        return self.code != FORGOTTEN


class Begun(msgspec.Struct, frozen=True, rename="kebab"):
    """A change of columns, the step ``place``, that was begun at the Delta version ``version``; it takes several commits."""

    place: int
    version: int


class Refusal(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Why a request for a table could not be served: which one, the error, and when."""

    request: str
    code: str
    reason: str
    hint: str
    at: str


class CapturedTable(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """One captured table.

    ``identity``: the sequence id of the entry that brought it. ``table``: its name now. ``path``: its folder below the
    tables' folder. ``state``: as the last whole batch left it, None if the batch under way brought it. ``place``: of
    the last step that is done and no merge, which is further than ``state`` where a batch was cut short. A stopped table's
    ``state`` goes on with the feed (its name may change); what the table holds is told by ``stopped``. ``started_from``:
    what its first rows came from (:class:`Start`, or ``copy``); empty where an older version began it. ``refused``: the last
    request that could not be served.
    """

    identity: int
    table: tuple[str, ...]
    path: str
    state: TableState | None
    place: int = 0
    stopped: StopNote | None = None
    begun: Begun | None = None
    started_from: str = ""
    refused: Refusal | None = None

    @property
    def copying(self) -> bool:
        """Whether its first rows are still being copied, so that it is not whole yet."""
        return self.stopped is None and self.state is not None and self.state.copying


class LeftFolder(msgspec.Struct, frozen=True, rename="kebab"):
    """A folder that no published moment names any more, since ``at``: it is removed a day later."""

    path: str
    at: str


class Reached(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """The end of the last batch that is merged whole into every table that is not stopped.

    ``lsn``: empty where it is not known. ``commit_ts``: the greatest WATERMARK at or below it, 0 if there was none.
    """

    sequence_id: int
    lsn: str
    commit_ts: int = 0


class Start(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """Where the tables of a folder begin: with the entry behind ``after``.

    ``source``: ``feed`` (from its first entry), ``archive`` (the entries below ``oldest`` come from there), ``snapshot``
    (the publisher's, which stands for ``after``), or ``middle`` (of a captured feed, whose beginning is gone: tables from
    before wait for a copy). ``oldest``: the oldest entry that the server had then. ``at``: when. ``folders``: those of the
    snapshot's tables, which go if it is cut.
    """

    source: str
    after: int
    oldest: int
    at: str
    snapshot_id: str = ""
    folders: tuple[str, ...] = ()


class Request(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """What an operator asks of the job: that a table is resumed, built anew (``rebuild``), or let go (``forget``)."""

    table: tuple[str, ...]
    rebuild: bool = False
    forget: bool = False

    @property
    def word(self) -> str:
        """The command that left it."""
        return "forget" if self.forget else "rebuild" if self.rebuild else "resume"
