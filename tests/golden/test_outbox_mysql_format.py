"""Every generation's outbox in MariaDB is restored, gone on with where it was, and written on."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from pymysql.constants import CLIENT

from headrace.publisher.marked import RowPlace
from headrace.publisher.mysql.source import MysqlSource
from headrace.publisher.outbox import Outbox
from headrace.publisher.owner import FeedPlace, Resume
from headrace.publisher.parked import Retried
from headrace.runtime.dsn import parse_dsn
from tests.golden.make import kept
from tests.golden.outbox_mysql import AGENT, FEED
from tests.mariadb import Server


@pytest.mark.parametrize("dump", kept("outbox-mysql.sql"), ids=lambda path: path.parent.name)
def test_outbox_of_an_older_release_is_relayed_and_written_on(dump: Path) -> None:
    with Server() as server:
        database = server.create_database("bank")
        with database.connect(client_flag=CLIENT.MULTI_STATEMENTS, charset="utf8mb4") as restored:
            with restored.cursor() as cursor:
                cursor.execute(dump.read_text(encoding="utf-8"))
                while cursor.nextset():
                    pass
            restored.commit()
        with closing(MysqlSource(parse_dsn(database.dsn))) as source:
            source.check_outbox()
            (standing,) = source.standing()
            assert (standing.next_sequence_id, standing.processed_next, standing.waiting_rows) == (5, 3, 4)
            assert source.claim(FEED, AGENT, FeedPlace("inc", 4, 3), 0) == Resume(confirm_below=4)
            (parked,) = source.parked([FEED])
            assert (parked.key, parked.sequence_id, parked.code) == ("order-2", 2, "too-large")
            assert parked.reason == "it holds a picture"
            with database.connect() as app:
                Outbox.create(app)
                Outbox.add(app, FEED, {"uuid": "order-7"}, key="order-7")
                app.commit()
            assert source.retry_parked(parked.id) is Retried.ADDED
            rows = []
            while source.advance(FEED, AGENT, 3, None, 0) or source.batch(FEED, AGENT):
                rows += source.batch(FEED, AGENT)
                source.advance(FEED, AGENT, 3, RowPlace(rows[-1].id, rows[-1].sequence_id), 0, rows_max=0)
    assert [(row.op, row.key, row.sequence_id) for row in rows] == [
        ("delete", "order-4", 4),
        ("put", "order-5", 5),
        ("put", "order-6", 6),
        ("put", "order-7", 7),
        ("put", "order-2", 8),
    ]
    assert database_rows(dump) == 6


def database_rows(dump: Path) -> int:
    """How many rows of the outbox the dump holds, and that one of them is there byte for byte."""
    text = dump.read_text(encoding="utf-8")
    assert '{\\"uuid\\": \\"ö-3\\", \\"n\\": 1.0}' in text
    return text.count("INSERT INTO `headrace_outbox`")
