"""What a restore did, as ``--json`` prints it and as ``OUT/_headrace/outcome.json`` keeps it. Values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec


class _Document(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Members are written with hyphens."""


class RestoredTable(_Document, frozen=True, kw_only=True):
    """One table: its name in the feed (empty: entries that name none), its folder below the feed's, rows and checksum.

    ``checksum`` is equal for equal rows, in whatever order. ``counted``: the rows were counted in the log too, in
    another way, and it is the same number; that is not done for tables that were renamed or whose key changed, nor for
    those of Simple feeds whose entries have keys of another form than capture's. ``stopped``: why the table is not whole
    at the target; then it shows the feed up to ``stopped_after`` alone, None if it is not shown at all.
    """

    table: list[str]
    path: str
    rows: int
    checksum: str
    counted: bool = True
    stopped: str | None = None
    stopped_after: int | None = None


class RestoredHistory(_Document, frozen=True, kw_only=True):
    """One feed as it was restored: up to ``sequence_id``, which has the LSN ``lsn``; nothing was after it at the target.

    ``entries``: of the base and the segments together. ``folder``: below OUT. ``older``: incarnations that the feed
    had before, of which nothing is restored. ``rows`` and ``checksum``: of keys and values; None for tables, which
    have their own.
    """

    feed: str
    incarnation: str
    sequence_id: int
    lsn: str
    entries: int
    folder: str
    older: list[str] = []
    rows: int | None = None
    checksum: str | None = None
    tables: list[RestoredTable] = []


class Outcome(_Document, frozen=True, kw_only=True):
    """A restore that is whole.

    ``plan``: what was asked, the exact last entry, its times, the base, gaps and warnings, as ``headrace wal plan --json``
    prints it. ``bytes``: of segments and of the base's files, as they were read. ``seconds``: of the restore, without
    Spark's start.
    """

    kind: str
    archive: str
    out: str
    target_lsn: str
    plan: Any
    feeds: list[RestoredHistory]
    warnings: list[str]
    bytes: int
    seconds: float

    def lines(self) -> Iterator[str]:
        """Yield it for a person, a line at a time."""
        rate = self.bytes / 1e6 / max(self.seconds, 1e-3)
        source = f", source time {self.plan['source-time']}" if self.plan["source-time"] else ""
        yield f"{self.out}: restored up to lsn={self.target_lsn}, log time {self.plan['log-time']}{source}"
        if self.plan["moved-from"]:
            yield f"  moved back from lsn={self.plan['moved-from']}: {self.plan['moved-why']}"
        for one in self.feeds:
            rows = "" if one.rows is None else f", {one.rows:,} keys, checksum {one.checksum}"
            yield f"  {one.feed}: up to sequence id {one.sequence_id}{rows} in {one.folder}"
            for table in one.tables:
                name = ".".join(table.table) or "(entries without a table)"
                stopped = f", NOT WHOLE: {table.stopped}" if table.stopped is not None else ""
                yield f"    {name}: {table.rows:,} rows, checksum {table.checksum}{stopped}"
        for warning in self.warnings:
            yield f"warning: {warning}"
        yield f"{self.bytes / 1e6:,.1f} MB read, {self.seconds:.1f} s, {rate:,.1f} MB/s"
