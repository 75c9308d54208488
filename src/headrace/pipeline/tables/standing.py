"""How the tables of a folder stand: what is published, how far behind the feed, what is stopped and how it goes on.

Read from the ledger's files and the server; the job may run or not, and Spark is not needed. ``headrace pipeline status``.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import msgspec

from headrace.entries.lsn import Lsn
from headrace.errors import HeadraceError
from headrace.pipeline.connection import Connection, Endpoint
from headrace.pipeline.tables.ledger import PublishedFile, read_published, read_tables_file
from headrace.pipeline.tables.reader import NothingPublished
from headrace.pipeline.tables.states import CapturedTable, StopNote

_COPIED: Final = {"table-stopped", "sequence-not-available"}
"""Codes of stops that a repetition can't mend: what is missing has to come once more."""


class TableStanding(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """One table.

    ``state``: ``running``, ``stopped``, or ``copying``: its first rows are not all there, so it is not published yet.
    ``sequence_id``: all its entries up to there are in it. ``lag_entries``: entries of the feed above that, of all tables,
    None if the server does not say; ``lag_s``: seconds since the first of them may have been committed. ``commit_ts``: the
    greatest WATERMARK below; None where there was none. The rest is of a stopped one: why, and ``next``, the command that
    helps.
    """

    table: list[str]
    path: str
    version: int | None
    state: str
    sequence_id: int
    lag_entries: int | None
    lag_s: float | None
    commit_ts: int | None
    code: str | None = None
    reason: str | None = None
    hint: str | None = None
    next: str | None = None


class Standing(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The tables of one folder. ``server_error``: why the server did not say where the feed is, None if it did."""

    feed: str
    incarnation: str
    to: str
    sequence_id: int
    published_at: str
    commit_ts: int | None
    head_sequence_id: int | None
    lag_entries: int | None
    lag_s: float | None
    server_error: str | None
    tables: list[TableStanding]

    @property
    def in_order(self) -> bool:
        """Whether no table is stopped, and the server answered."""
        return self.server_error is None and all(one.state != "stopped" for one in self.tables)


def read_standing(to: Path, endpoint: Endpoint) -> Standing:
    """Return how the tables in the folder ``to`` stand; NothingPublished, LedgerCorrupt, FormatTooNew."""
    moment, file = read_published(to), read_tables_file(to)
    if moment is None:
        raise NothingPublished(f"{to} has no published tables")
    head, error = _head(moment, endpoint)
    stopped = {one.table: one for one in (file.tables or () if file is not None else ()) if one.stopped}
    published = {tuple(one.table): one for one in moment.tables}
    lag, seconds = _lag(head, moment.sequence_id, moment)
    tables = [
        TableStanding(
            table=list(one.table),
            path=one.path,
            version=one.version,
            state="running",
            sequence_id=moment.sequence_id,
            lag_entries=lag,
            lag_s=seconds,
            commit_ts=moment.commit_ts or None,
        )
        for name, one in published.items()
        if name not in stopped
    ]
    tables += [
        TableStanding(
            table=list(one.table),
            path=one.path,
            version=None,
            state="copying",
            sequence_id=moment.sequence_id,
            lag_entries=lag,
            lag_s=seconds,
            commit_ts=None,
        )
        for one in (file.tables or () if file is not None else ())
        if one.copying
    ]
    for name, table in stopped.items():
        if table.stopped is not None:
            version = published[name].version if name in published else None
            tables.append(_stopped(to, table, table.stopped, version, head))
    return Standing(
        feed=moment.feed,
        incarnation=moment.incarnation,
        to=str(to),
        sequence_id=moment.sequence_id,
        published_at=moment.published_at,
        commit_ts=moment.commit_ts or None,
        head_sequence_id=head,
        lag_entries=lag,
        lag_s=seconds,
        server_error=error,
        tables=sorted(tables, key=lambda one: one.table),
    )


def _head(moment: PublishedFile, endpoint: Endpoint) -> tuple[int | None, str | None]:
    try:
        with Connection(endpoint) as server:
            view = server.feed(moment.feed)
    except HeadraceError as error:
        return None, error.detail
    if view.incarnation != moment.incarnation:
        return None, f"the feed {moment.feed} was made anew: it is {view.incarnation} now"
    return view.head_sequence_id, None


def _lag(head: int | None, place: int, moment: PublishedFile) -> tuple[int | None, float | None]:
    if head is None:
        return None, None
    entries = max(0, head - place)
    seconds = time.time() - Lsn.parse(moment.lsn).committed_at_ms / 1000 if entries else 0.0
    return entries, round(max(0.0, seconds), 1)


def _stopped(
    to: Path, table: CapturedTable, note: StopNote, version: int | None, head: int | None
) -> TableStanding:
    name = ".".join(table.table)
    copied = f"headrace capture copy {name}"
    command = copied if note.code in _COPIED else f"headrace pipeline tables resume {name} --to {to}"
    return TableStanding(
        table=list(table.table),
        path=table.path,
        version=version,
        state="stopped",
        sequence_id=note.after,
        lag_entries=None if head is None else max(0, head - note.after),
        lag_s=None,
        commit_ts=note.commit_ts,
        code=note.code,
        reason=note.reason,
        hint=note.hint,
        next=command,
    )
