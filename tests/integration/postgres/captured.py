"""An attached database as the agent sees it: its outbox in the feed's order, rendered, folded, compared with its tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from psycopg import sql

from headrace.publisher.attach.finding import Finding, FindingKind
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.postgres import check
from headrace.publisher.postgres.attach import attach, detach
from headrace.publisher.postgres.attachment import Attachment, AttachmentState, read_attachments
from headrace.publisher.postgres.connection import connect, transaction
from headrace.publisher.postgres.copying import copy_pending
from headrace.publisher.postgres.render import RowRenderer
from headrace.publisher.postgres.triggers import row_json
from headrace.publisher.source import AttachedTable, DetachedTable
from headrace.runtime.dsn import Dsn, find_dsn
from tests.postgres import Database
from tests.waiting import wait_until

FEED = "shop"
_ROWS = """
SELECT op, key, control, changes, before, attached, copy FROM headrace.headrace_outbox
WHERE id > %s AND change_feed_id = %s ORDER BY max(id) OVER (PARTITION BY tx), id"""


class Row(NamedTuple):
    """One outbox row as an entry will carry it."""

    op: str
    key: str
    control: str | None
    changes: bytes
    changed: tuple[str, ...] | None
    before: bytes | None
    copy: bool
    table: tuple[str, str]

    @property
    def values(self) -> Any:
        """``changes`` as a value."""
        return json.loads(self.changes)

    @property
    def short(self) -> tuple[str, list[Any]]:
        """The op and the key's values."""
        return self.op, json.loads(self.key)[2:]


class Captured:
    """What was captured of one database; opened as ``user``."""

    def __init__(self, dsn: Dsn) -> None:
        self.connection = connect(dsn)
        self._seen = 0

    def attach(self, *tables: str, **options: Any) -> list[AttachedTable]:
        """Attach ``tables`` to the feed, and copy their rows to the end."""
        attached = attach(self.connection, AttachRequest(feed=FEED, tables=tables, **options))
        self.copy()
        return attached

    def detach(self, *tables: str, discard: bool = False) -> list[DetachedTable]:
        """Take the triggers away."""
        return detach(self.connection, tables, discard=discard)

    def copy(self) -> None:
        """Take all copies to their end."""
        wait_until(lambda: copy_pending(self.connection, FEED) is None, what="the copies to end")

    def rows(self) -> list[Row]:
        """Return every row of the feed."""
        return self._read(0)

    def new_rows(self) -> list[Row]:
        """Return the rows that came since the last call, but for control entries."""
        found = [row for row in self._read(self._seen) if row.control is None]
        self.skip()
        return found

    def skip(self) -> None:
        """Forget the rows that there are, for :meth:`new_rows`."""
        newest = self.connection.execute("SELECT max(id) FROM headrace.headrace_outbox").fetchone()
        self._seen = (newest[0] if newest else None) or 0

    def controls(self) -> list[str]:
        """Return the names of all control entries."""
        return [row.control for row in self.rows() if row.control is not None]

    def live(self, table: str) -> Attachment:
        """Return the live attachment of ``table``."""
        live = read_attachments(self.connection, AttachmentState.LIVE)
        return next(one for one in live if one.label == table)

    def findings(self) -> list[Finding]:
        """Return what a check finds."""
        with transaction(self.connection):
            return [finding for one in check.check(self.connection) for finding in one.findings]

    def kinds(self) -> list[FindingKind]:
        """Return the kinds of what a check finds."""
        return [finding.kind for finding in self.findings()]

    def mend(self) -> list[FindingKind]:
        """Mend, copy what is to be copied, and return what is left."""
        left = check.mend(self.connection, FEED)
        self.copy()
        return [finding.kind for finding in left]

    def assert_equal(self, *tables: str) -> None:
        """Fail unless folding all rows gives just what stands in ``tables``."""
        folded = fold(self.rows())
        wanted: dict[str, bytes] = {}
        for table in tables:
            wanted |= self._state(self.live(table))
        assert folded == wanted

    def _state(self, one: Attachment) -> dict[str, bytes]:
        renderer = RowRenderer(one.spec)
        place = sql.Identifier(*(part.replace("%", "%%") for part in (one.schema_name, one.table)))
        query = sql.SQL("SELECT {} FROM {} AS r").format(row_json(one, "r"), place)
        rendered = [renderer.render("put", text) for (text,) in self.connection.execute(query, [])]
        return {str(row.key): row.changes for row in rendered}

    def _read(self, after: int) -> list[Row]:
        renderers = {one.number: RowRenderer(one.spec) for one in read_attachments(self.connection)}
        found = []
        for op, key, control, changes, before, attached, copy in self.connection.execute(
            _ROWS, (after, FEED)
        ):
            table = renderers[attached].table
            if control is not None:
                found.append(Row(op, key, control, changes.encode(), None, None, copy, table))
            else:
                row = renderers[attached].render(op, changes, before)
                found.append(Row(op, str(row.key), None, row.changes, row.changed, row.before, copy, table))
        return found


def fold(rows: Iterable[Row]) -> dict[str, bytes]:
    """Return the state that a consumer has after ``rows``: latest ``changes`` by key."""
    state: dict[str, bytes] = {}
    for row in rows:
        if row.control == "truncate":
            for key in [key for key in state if tuple(json.loads(key)[:2]) == row.table]:
                del state[key]
        elif row.control is None and row.op == "delete":
            state.pop(row.key, None)
        elif row.control is None:
            state[row.key] = row.changes
    return state


@contextmanager
def captured(database: Database, user: str = "postgres") -> Iterator[Captured]:
    """Open ``database`` as the agent or an operator would, and close it."""
    found = Captured(find_dsn(database.dsn_as(user), None, {}))
    try:
        yield found
    finally:
        found.connection.close()
