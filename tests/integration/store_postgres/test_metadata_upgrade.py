"""Metadata tables of format 1, which had no checksums, under this version; and older servers beside it."""

from __future__ import annotations

import pytest

from headrace.errors import StoreForbidden, WriterStopped
from headrace.log.metadata.postgres import PostgresMetadata
from headrace.log.opening import examine_address, parse_store
from headrace.log.postgres.connection import parse_address
from headrace.log.postgres.store import PostgresStore
from headrace.wire import versions
from tests.golden.make import kept
from tests.integration.store_postgres.shared import opened
from tests.postgres import Database

OLD = kept("log-postgres.sql")[0]
GRANTS = """
CREATE ROLE upgrader LOGIN;
GRANT USAGE ON SCHEMA headrace_log TO upgrader;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA headrace_log TO upgrader;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA headrace_log TO upgrader"""


@pytest.fixture
def old(database: Database) -> Database:
    """A log of format 1."""
    with database.connect() as restored:
        restored.execute(OLD.read_bytes())
    return database


def columns(database: Database) -> int:
    ((found,),) = database.sql(
        "SELECT count(*) FROM information_schema.columns WHERE table_schema = 'headrace_log' AND column_name = 'crc'"
        " AND table_name IN ('listener', 'subscriber', 'alarm')"
    )
    return int(found)


def test_rows_get_their_checksums_once(old: Database) -> None:
    assert examine_address(parse_store(old.dsn)).damages == []
    assert columns(old) == 0, "looking upgrades nothing"
    with opened(old.dsn) as bench:
        assert isinstance(bench.store, PostgresStore)
        metadata = PostgresMetadata(bench.store.pool)
        assert metadata.check() == []
        assert [row.listener_id for row in metadata.listeners("vmapi::vm")] == ["listener-1"]
        assert columns(old) == 3
        assert old.sql("SELECT written_as, readable_from FROM headrace_log.format") == [(7, 2)]
        old.sql("UPDATE headrace_log.listener SET sequence_id = 63")
        again = PostgresMetadata(bench.store.pool)
        assert [damage.key for damage in again.damages.standing()] == [("listener-1", "vmapi::vm")]


def test_who_does_not_own_the_tables_is_told(old: Database) -> None:
    old.sql(GRANTS)
    try:
        store = PostgresStore(parse_address(old.dsn_as("upgrader")), segment_bytes=4096)
        with pytest.raises(StoreForbidden, match="checksums"):
            PostgresMetadata(store.pool)
        store.close()
        assert columns(old) == 0
    finally:
        old.sql("DROP OWNED BY upgrader; DROP ROLE upgrader")


def test_an_older_server_stops_before_it_writes_rows_without(
    old: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(old.dsn) as older:
        older.clock.ms = 1_800_000_000_000
        assert older.append("vmapi::vm", "before")
        with opened(old.dsn) as newer:
            assert isinstance(newer.store, PostgresStore)
            PostgresMetadata(newer.store.pool)
        monkeypatch.setattr("headrace.log.postgres.group.LOG_TABLES", versions.FormatVersion(1, 1))
        with pytest.raises(WriterStopped, match="newer"):
            older.append("vmapi::vm", "after")


@pytest.mark.parametrize("older", [2, 3, 4])
def test_tables_of_older_formats_get_the_new_ones(database: Database, older: int) -> None:
    with database.connect() as restored:
        restored.execute(kept("log-postgres.sql")[older - 1].read_bytes())
    assert examine_address(parse_store(database.dsn)).damages == []
    assert database.sql("SELECT to_regclass('headrace_log.table_schema')") == [(None,)], (
        "looking upgrades nothing"
    )
    with opened(database.dsn) as bench:
        assert isinstance(bench.store, PostgresStore)
        metadata = PostgresMetadata(bench.store.pool)
        assert metadata.listeners("vmapi::vm")[0].listener_id == "listener-1"
        assert len(metadata.hydrations("vmapi::vm")) == min(older - 2, 1)
        assert metadata.owner("listener-2", "vmapi::vm") == (None if older < 4 else "tcns")
        assert metadata.schemas.mark() is None
        assert metadata.check() == []
    assert database.sql("SELECT written_as, readable_from FROM headrace_log.format") == [(7, 2)]
    assert examine_address(parse_store(database.dsn)).damages == []
