"""What the tests of the MariaDB outbox share: adding rows, owning the feed, and taking the next append as an agent would."""

from __future__ import annotations

from typing import Any

from headrace.publisher.marked import MarkedRow, RowPlace
from headrace.publisher.mysql.source import MysqlSource
from headrace.publisher.outbox import Outbox
from headrace.publisher.owner import Alarm, FeedPlace, RefusedRow, Resume
from tests.mariadb import Database
from tests.servers import ServerProcess

FEED, AGENT = "shop", "shop-1"
FAR_FUTURE_MS = 4_102_444_800_000


def add(database: Database, *keys: str, feed: str = FEED) -> None:
    """Add rows in one transaction."""
    with database.connect() as app:
        for key in keys:
            Outbox.add(app, feed, {"key": key}, key=key)
        app.commit()


def claim(source: MysqlSource, next_id: int, epoch: int = 1, *, agent: str = AGENT) -> Resume:
    return source.claim(FEED, agent, FeedPlace("A", next_id, epoch), 1_000)


def post(source: MysqlSource, epoch: int = 1) -> list[MarkedRow]:
    """Mark, take a batch, and mark it processed."""
    source.advance(FEED, AGENT, epoch, None, 1_000)
    rows = source.batch(FEED, AGENT)
    if rows:
        place = RowPlace(rows[-1].id, rows[-1].sequence_id)
        source.advance(FEED, AGENT, epoch, place, 2_000, rows_max=0)
    return rows


def read_feed(server: ServerProcess, feed: str = FEED) -> list[dict[str, Any]]:
    """Return every entry of the feed."""
    entries: list[dict[str, Any]] = []
    while True:
        params = {"beg-sequence-id": len(entries) + 1}
        answer = server.http.get(f"/feeds/{feed}/entries", params=params).raise_for_status()
        if not (found := answer.json()["changes-list"]):
            return entries
        entries += found


def keys_of(rows: list[MarkedRow]) -> list[str | None]:
    return [row.key for row in rows]


def refuse(source: MysqlSource, row: MarkedRow) -> None:
    """Store the alarm of a row that the server refused."""
    refused = RefusedRow(row.id, row.sequence_id, row.op, row.key)
    source.set_alarm(FEED, Alarm("too-large", "d", "h", 1, row=refused))
