"""How the tables of a folder stand: what is published, how far behind the feed, what is stopped and how it goes on.

Read from the ledger's files and the server; the job may run or not, and Spark is not needed. ``headrace pipeline status``.
"""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Final

import msgspec

from headrace.entries.lsn import Lsn
from headrace.errors import HeadraceError, NothingPublished
from headrace.pipeline.connection import Connection, Endpoint
from headrace.pipeline.tables.attached import AttachedState
from headrace.pipeline.tables.ledger import (
    PublishedFile,
    TablesFile,
    folder_of,
    read_published,
    read_tables_file,
)
from headrace.pipeline.tables.origins import origin_of
from headrace.pipeline.tables.requests import waiting_requests
from headrace.pipeline.tables.schemas import TableName, table_name
from headrace.pipeline.tables.states import (
    FORGOTTEN,
    GONE,
    UNSEEN,
    CapturedTable,
    Refusal,
    Start,
    StopNote,
)

_COPIED: Final = {"table-stopped", GONE, UNSEEN, FORGOTTEN}
"""Codes of stops that a repetition can't mend: what is missing has to come once more."""


class TableStanding(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """One table.

    ``state``: ``running``, ``stopped``, ``copying``: its first rows are not all there, so it is not published yet,
    ``unseen``: it is from before the tables' start, and no entry of it came since, or ``forgotten`` by an operator.
    ``sequence_id``: all its entries up to there are in it. ``lag_entries``: entries of the feed above that, of all tables,
    None if the server does not say; ``lag_s``: seconds since the first of them may have been committed. ``commit_ts``: the
    greatest WATERMARK below; None where there was none. ``started_from``: what its first rows came from: ``feed``,
    ``archive``, ``snapshot``, ``copy``; None if an older version began it. ``request``: what an operator asked and was not
    served yet; ``refused``: the last request that could not be served. The rest is of a stopped one: why, and ``next``, the
    command that helps.
    """

    table: list[str]
    path: str
    version: int | None
    state: str
    sequence_id: int
    lag_entries: int | None
    lag_s: float | None
    commit_ts: int | None
    started_from: str | None = None
    request: str | None = None
    refused: Refusal | None = None
    code: str | None = None
    reason: str | None = None
    hint: str | None = None
    next: str | None = None


class Standing(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The tables of one folder.

    ``start``: where they begin. ``server_error``: why the server did not say where the feed is, None if it did.
    """

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
    start: Start | None = None
    tables: list[TableStanding]

    @property
    def in_order(self) -> bool:
        """Whether every table is there or was let go, and the server answered."""
        return self.server_error is None and all(
            one.state not in {"stopped", "unseen"} for one in self.tables
        )


def read_standing(to: Path, endpoint: Endpoint) -> Standing:
    """Return how the tables in the folder ``to`` stand; NothingPublished, LedgerCorrupt, FormatTooNew."""
    moment, file = read_published(to), read_tables_file(to)
    if moment is None:
        raise NothingPublished(f"{to} has no published tables")
    head, error = _head(moment, endpoint)
    captured = {one.table: one for one in (file.tables or () if file is not None else ())}
    attached = {one.table: one for one in (file.attached or () if file is not None else ())}
    published = {tuple(one.table): one for one in moment.tables}
    start = (file.start or None) if file is not None else None
    lag, seconds = _lag(head, moment)

    def following(name: TableName, path: str, version: int | None) -> TableStanding:
        return TableStanding(
            table=list(name),
            path=path,
            version=version,
            state="running" if version is not None else "copying",
            sequence_id=moment.sequence_id,
            lag_entries=lag,
            lag_s=seconds,
            commit_ts=(moment.commit_ts or None) if version is not None else None,
            started_from=_origin(name, file) or None,
        )

    known: dict[TableName, CapturedTable | AttachedState] = {**captured, **attached}
    tables = [
        following(name, one.path, one.version)
        for name, one in published.items()
        if name not in known or known[name].stopped is None
    ]
    tables += [following(name, _path(one), None) for name, one in known.items() if one.copying]
    for name, table in known.items():
        if (note := table.stopped) is not None:
            version = published[name].version if name in published else None
            begun = _origin(name, file) or None
            tables.append(_stopped(to, table, note, version, head, started_from=begun))
    asked = {one.table: one.word for one in waiting_requests(to)}
    tables = [
        msgspec.structs.replace(
            one,
            request=asked.get(tuple(one.table)),
            refused=captured[name].refused if (name := tuple(one.table)) in captured else None,
        )
        for one in tables
    ]
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
        start=start,
        tables=sorted(tables, key=lambda one: one.table),
    )


def _origin(name: TableName, file: TablesFile | None) -> str:
    """Return what a table began with: a captured one knows, of others the place of its first schema says it."""
    if file is None:
        return ""
    for table in file.tables or ():
        if table.table == name:
            return table.started_from
    first = min((one.sequence_id for one in file.schemas if one.schema.name == name), default=0)
    return origin_of(first, file.start or None)


def _head(moment: PublishedFile, endpoint: Endpoint) -> tuple[int | None, str | None]:
    try:
        with Connection(endpoint) as server:
            view = server.feed(moment.feed)
    except HeadraceError as error:
        return None, error.detail
    if view.incarnation != moment.incarnation:
        return None, f"the feed {moment.feed} was made anew: it is {view.incarnation} now"
    return view.head_sequence_id, None


def _lag(head: int | None, moment: PublishedFile) -> tuple[int | None, float | None]:
    if head is None:
        return None, None
    entries = max(0, head - moment.sequence_id)
    if entries and not moment.lsn:
        return entries, None
    seconds = time.time() - Lsn.parse(moment.lsn).committed_at_ms / 1000 if entries else 0.0
    return entries, round(max(0.0, seconds), 1)


def _stopped(
    to: Path,
    table: CapturedTable | AttachedState,
    note: StopNote,
    version: int | None,
    head: int | None,
    *,
    started_from: str | None,
) -> TableStanding:
    return TableStanding(
        table=list(table.table),
        path=_path(table),
        version=version,
        state={UNSEEN: "unseen", FORGOTTEN: "forgotten"}.get(note.code, "stopped"),
        sequence_id=note.after,
        lag_entries=None if head is None else max(0, head - note.after),
        lag_s=None,
        commit_ts=note.commit_ts,
        started_from=started_from,
        code=note.code,
        reason=note.reason,
        hint=note.hint,
        next=_next(to, table, note.code),
    )


def _path(table: CapturedTable | AttachedState) -> str:
    return table.path if isinstance(table, CapturedTable) else folder_of(table.table)


def _next(to: Path, stopped: CapturedTable | AttachedState, code: str) -> str:
    """Return the command that helps a stopped table, as a shell takes it."""
    table = stopped.table
    name = ".".join(table)
    if isinstance(stopped, AttachedState):
        return shlex.join(["headrace", "publisher", "copy", "DSN", "--table", name])
    if code in _COPIED:
        return shlex.join(["headrace", "capture", "copy", name])
    if name.startswith(("-", "[")) or table_name(name) != table:
        name = msgspec.json.encode(table).decode()
    return shlex.join(["headrace", "pipeline", "tables", "resume", name, "--to", str(to)])
