"""Every generation's log in PostgreSQL is restored, read back whole, and gone on with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.log_postgres import FEED, describe_log
from tests.golden.make import kept
from tests.golden.test_formats import covers
from tests.integration.store_postgres.shared import opened
from tests.postgres import Database


@pytest.mark.parametrize("dump", kept("log-postgres.sql"), ids=lambda path: path.parent.name)
def test_log_of_an_older_release_is_read_and_written_on(dump: Path, database: Database) -> None:
    with database.connect() as restored:
        restored.execute(dump.read_bytes())
    described = json.loads(dump.with_suffix(".json").read_text(encoding="utf-8"))
    assert covers(json.loads(json.dumps(describe_log(database.dsn))), described)
    with opened(database.dsn, segment_bytes=4096) as bench:
        bench.clock.ms = 1_800_000_000_000
        head = bench.tail(FEED).head
        assert bench.append(FEED, "written on").first_sequence_id == head + 1
        oldest = bench.store.oldest_position()
        assert bench.store.drop_before(bench.store.end()) > oldest
        assert bench.values(FEED)[head + 1] == b"written on"
