"""Every generation's outbox is checked, marked, read and written on, beside the application that owns the database."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from headrace.publisher.attaching import opened_source
from headrace.publisher.marked import MarkedRow, RowPlace
from headrace.publisher.outbox import Outbox
from headrace.publisher.owner import FeedPlace
from headrace.runtime.dsn import parse_dsn
from tests.golden.make import kept

FEED, AGENT = "bank", "agent-1"


@pytest.mark.parametrize("outbox", kept("outbox.db"), ids=lambda path: path.parent.name)
def test_outbox_of_an_older_release_is_relayed_and_written_on(outbox: Path, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    shutil.copy(outbox, path)
    with opened_source(parse_dsn(f"sqlite:///{path}")) as source:
        assert [(one.table, list(one.findings)) for one in source.check([FEED])] == [("account", [])]
        source.claim(FEED, AGENT, FeedPlace("inc", 1, 1), 1)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as application:
            application.execute("BEGIN")
            application.execute("DELETE FROM account WHERE id = 1")
            Outbox.add(application, FEED, {"uuid": "order-8"})
            application.execute("COMMIT")
        rows: list[MarkedRow] = []
        done: RowPlace | None = None
        while source.advance(FEED, AGENT, 1, done, 2) or not rows:
            rows += source.batch(FEED, AGENT)
            done = RowPlace(rows[-1].id, rows[-1].sequence_id)
    assert [(row.control or row.op) for row in rows] == [
        "schema", "copy-begin", "put", "copy-end", "put", "put", "delete", "put",
    ]  # fmt: skip
    assert [row.sequence_id for row in rows] == list(range(1, 9))
