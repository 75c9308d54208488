"""What an audit found, as ``--json`` prints it: docs/howto/audit.md."""

from __future__ import annotations

import msgspec

from headrace.pipeline.audit.checksums import Difference, Figures


class SourceDifference(msgspec.Struct, frozen=True, rename="kebab"):
    """A key whose rows differ: so many the one side has that the other has not."""

    key: str
    rows_in_source: int
    rows_in_feed: int


class SourceVerdict(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """One table of the source against the feed, at the source's moment; figures are of values as texts.

    ``source`` and ``feed``: None where it is not there, or was not read. ``reason``: what else differs than rows.
    """

    equal: bool
    source: Figures | None = None
    feed: Figures | None = None
    reason: str = ""
    differences: list[SourceDifference] = []


class TableAudit(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """One table's verdict. ``feed`` and ``published``: its figures on both sides, None where it is not there.

    ``equal``: all sides that were asked for are. ``reason``: what else differs than rows. ``differences``: the first keys
    that differ. ``stopped_after``: the table is stopped, and was compared as it was after this sequence id. ``source``:
    what the source says, if it was asked. ``let_go``: an operator has let it go, so it was not compared.
    """

    table: list[str]
    equal: bool
    feed: Figures | None = None
    published: Figures | None = None
    reason: str = ""
    differences: list[Difference] = []
    stopped_after: int | None = None
    let_go: bool = False
    source: SourceVerdict | None = None


class SourceMoment(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """When the source was read: its GTIDs, the same place in its binlog, and the same place in the feed."""

    gtid: str
    file: str
    position: int
    sequence_id: int


class Audit(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """What an audit found at one moment of the feed. ``commit_ts``: its WATERMARK, None for a feed that has none.

    ``source``: the source's own moment, if it was asked.
    """

    feed: str
    incarnation: str
    sequence_id: int
    lsn: str
    commit_ts: int | None = None
    equal: bool
    tables: list[TableAudit]
    seconds: float
    source: SourceMoment | None = None
