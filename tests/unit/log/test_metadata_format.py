"""Checksums of the metadata database: the page's examples, and databases of before they were there."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from headrace.errors import JournalCorrupt, StoreUnavailable
from headrace.log.metadata.check import check_metadata
from headrace.log.metadata.rows import LISTENER, SUBSCRIBER, ListenerRow, SubscriberRow, row_checksum
from headrace.log.metadata.sqlite import METADATA_NAME, SqliteMetadata
from tests.golden.make import kept

PAGE = (Path(__file__).parents[3] / "docs" / "formats" / "metadata.md").read_text(encoding="utf-8")
LSN = "066720b300000000.0000000001.0000000064"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A database of format 1."""
    return Path(shutil.copy(kept("data")[0] / METADATA_NAME, tmp_path / METADATA_NAME))


def test_page_shows_the_checksum_of_a_subscriber() -> None:
    (block,) = re.findall(r"```hex\n(.*?)```", PAGE, re.DOTALL)
    shown = b"".join(bytes.fromhex(line.partition("  ")[2]) for line in block.splitlines())
    row = SubscriberRow("anonymous", "backup", LSN, 1_760_000_000_000)
    assert google_crc32c.value(shown) == row_checksum(SUBSCRIBER.name, row)
    assert f"and `crc` {row_checksum(SUBSCRIBER.name, row)}" in PAGE


def test_page_shows_the_checksum_of_a_listener() -> None:
    names, values = (line.split() for line in PAGE.split("```")[1].strip().splitlines())
    assert names == [*LISTENER.columns, "crc"]
    listener_id, feed, hold, incarnation, sequence_id, lsn, seen, crc = values
    row = ListenerRow(listener_id, feed, hold == "1", incarnation, int(sequence_id), lsn, int(seen))
    assert LISTENER.stamped(row)[-1] == int(crc)
    assert LISTENER.whole((*row[:2], 1, *row[3:], int(crc))) == row, "SQLite has no booleans"


def test_rows_of_format_1_get_their_checksums_once(old: Path) -> None:
    before = old.read_bytes()
    assert check_metadata(old).problems == []
    assert old.read_bytes() == before, "looking upgrades nothing"
    with closing(SqliteMetadata(old)) as metadata:
        assert [row.listener_id for row in metadata.listeners("vmapi::vm")] == ["listener-1"]
        assert len(metadata.alarms()) == 1
    upgraded = old.read_bytes()
    with closing(sqlite3.connect(old)) as database, database:
        assert database.execute("SELECT written_as, readable_from FROM format").fetchall() == [(7, 2)]
        database.execute("UPDATE listener SET sequence_id = 63")
    with closing(SqliteMetadata(old)) as metadata:
        assert [damage.key for damage in metadata.damages.standing()] == [("listener-1", "vmapi::vm")]
    assert old.read_bytes() != upgraded
    assert [damage.table for damage in check_metadata(old).rows] == ["listener"]


def test_an_upgrade_that_a_full_disk_cut_short_changed_nothing(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = old.read_bytes()
    connect = sqlite3.connect

    def connect_to_full_disk(*given: Any, **named: Any) -> sqlite3.Connection:
        database: sqlite3.Connection = connect(*given, **named)
        pages = database.execute("PRAGMA page_count").fetchone()[0]
        database.execute(f"PRAGMA max_page_count = {pages}")
        return database

    with monkeypatch.context() as patched:
        patched.setattr("headrace.log.metadata.sqlite.sqlite3.connect", connect_to_full_disk)
        with pytest.raises(StoreUnavailable, match="full"):
            SqliteMetadata(old)
    assert old.read_bytes() == before
    with closing(SqliteMetadata(old)) as metadata:
        assert (metadata.check(), len(metadata.alarms())) == ([], 1)


def test_a_column_that_lost_its_name_does_not_pass_for_format_1(tmp_path: Path) -> None:
    """Else every row would get a new checksum, whatever it says by now."""
    path = tmp_path / METADATA_NAME
    with closing(SqliteMetadata(path)) as metadata:
        metadata.register_listener("l", "f", True, 1)
    data = path.read_bytes()
    assert data.count(b"    crc ") == 12
    path.write_bytes(data.replace(b"    crc ", b"    crb "))
    with pytest.raises(JournalCorrupt, match=METADATA_NAME):
        SqliteMetadata(path)
    assert check_metadata(path).structure


@pytest.mark.parametrize("older", [2, 3, 4])
def test_older_formats_get_their_new_tables_and_keep_their_rows(tmp_path: Path, older: int) -> None:
    path = Path(shutil.copy(kept("data")[older - 1] / METADATA_NAME, tmp_path / METADATA_NAME))
    before = path.read_bytes()
    assert check_metadata(path).problems == []
    assert path.read_bytes() == before, "looking upgrades nothing"
    with closing(SqliteMetadata(path)) as metadata:
        assert metadata.listeners("vmapi::vm")[0].listener_id == "listener-1"
        assert len(metadata.hydrations("vmapi::vm")) == min(older - 2, 1)
        assert metadata.owner("listener-2", "vmapi::vm") == (None if older < 4 else "tcns")
        assert metadata.schemas.mark() is None
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT written_as, readable_from FROM format").fetchall() == [(7, 2)]
    assert check_metadata(path).problems == []


@pytest.mark.parametrize("table", ["listener", "subscriber", "alarm"])
def test_a_table_that_format_2_lost_is_damage_and_not_made_anew(tmp_path: Path, table: str) -> None:
    """Else whoever held would be forgotten in silence."""
    path = Path(shutil.copy(kept("data")[1] / METADATA_NAME, tmp_path / METADATA_NAME))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"DROP TABLE {table}")
    with pytest.raises(JournalCorrupt):
        SqliteMetadata(path)
    assert check_metadata(path).problems
