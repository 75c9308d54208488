"""Every generation's outbox in PostgreSQL is restored, checked, gone on with where it was, and written on."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.publisher.attaching import opened_source
from headrace.publisher.marked import MarkedRow, RowPlace
from headrace.publisher.outbox import Outbox
from headrace.publisher.owner import FeedPlace, Resume
from headrace.runtime.dsn import parse_dsn
from tests.golden.make import kept
from tests.postgres import Database

FEED, AGENT = "bank", "agent-1"


@pytest.mark.parametrize("dump", kept("outbox-postgres.sql"), ids=lambda path: path.parent.name)
def test_outbox_of_an_older_release_is_relayed_and_written_on(dump: Path, database: Database) -> None:
    with database.connect() as restored:
        restored.execute(dump.read_bytes())
    with opened_source(parse_dsn(database.dsn)) as source:
        assert source.claim(FEED, AGENT, FeedPlace("inc", 5, 2), 0) == Resume(confirm_below=5)
        assert source.mend(FEED) == []
        assert [(one.table, list(one.findings)) for one in source.check([FEED])] == [("account", [])]
        with database.connect(autocommit=False) as application:
            application.execute("DELETE FROM account WHERE id = 2")
            Outbox.add(application, FEED, {"uuid": "order-8"})
        rows: list[MarkedRow] = []
        done: RowPlace | None = None
        while source.advance(FEED, AGENT, 2, done, 0) or not rows or done is None or done.id != rows[-1].id:
            rows += source.batch(FEED, AGENT)
            done = RowPlace(rows[-1].id, rows[-1].sequence_id)
    assert [(row.op, row.key) for row in rows] == [
        ("put", '["public","account",1]'),
        ("delete", '["public","account",1]'),
        ("put", '["public","account",2]'),
        ("put", None),
        ("delete", '["public","account",2]'),
        ("put", None),
    ]
    assert [row.sequence_id for row in rows] == list(range(5, 11))
    assert rows[0].changes == b'{"id":1,"owner":"Ada L.","photo":"AP8=","rate":"0.1000"}'
