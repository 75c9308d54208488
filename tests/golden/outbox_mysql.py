"""What a release left in the outbox of MariaDB: rows posted, marked, parked and waiting, as a dump in SQL."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from headrace.publisher.marked import RowPlace
from headrace.publisher.mysql.source import MysqlSource
from headrace.publisher.outbox import Outbox
from headrace.publisher.owner import Alarm, FeedPlace, RefusedRow
from headrace.runtime.dsn import parse_dsn
from tests.mariadb import Database, Server

FEED, AGENT = "bank", "agent-1"


def make_outbox_mysql(path: Path) -> None:
    """Places 1 (posted), 2 (parked, posted as such), 3 and 4 (marked); two rows that wait."""
    with Server() as server:
        database = server.create_database("bank")
        with database.connect() as app:
            Outbox.create(app)
        with closing(MysqlSource(parse_dsn(database.dsn))) as source:
            source.claim(FEED, AGENT, FeedPlace("inc", 1, 1), 0)
            _add(database, "order-1", "order-2")
            source.advance(FEED, AGENT, 1, None, 0)
            first, second = source.batch(FEED, AGENT)
            source.advance(
                FEED, AGENT, 1, RowPlace(first.id, first.sequence_id), 1_760_000_000_000, rows_max=0
            )
            refused = RefusedRow(second.id, second.sequence_id, second.op, second.key)
            source.set_alarm(FEED, Alarm("too-large", "d", "h", 1_760_000_000_000, row=refused))
            source.skip(FEED, second.id, "it holds a picture")
            source.claim(FEED, AGENT, FeedPlace("inc", 2, 2), 0)
            source.advance(FEED, AGENT, 2, RowPlace(second.id, second.sequence_id), 1_760_000_001_000)
            with database.connect() as app:
                Outbox.add(app, FEED, '{"uuid": "\u00f6-3", "n": 1.0}', op="patch", changed=["n"])
                Outbox.add(app, FEED, {"uuid": "order-4"}, key="order-4", op="delete")
                app.commit()
            source.advance(FEED, AGENT, 2, None, 0)
        _add(database, "order-5")
        _add(database, "order-6")
        path.write_text(server.dump("bank"), encoding="utf-8")


def _add(database: Database, *keys: str) -> None:
    with database.connect() as app:
        for key in keys:
            Outbox.add(app, FEED, {"uuid": key}, key=key)
        app.commit()
