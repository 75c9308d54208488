"""What is kept beside the tables: whole files, one feed, one owner, and versions that say who may read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigInvalid, DataFolderLocked, FeedRecreated, FormatTooNew
from headrace.pipeline.tables.ledger import (
    PLAIN,
    Ledger,
    LedgerCorrupt,
    PublishedFile,
    PublishedTable,
    folder_of,
    local_folder,
    newest_version,
    read_published,
)
from headrace.pipeline.tables.schemas import Column, PlacedSchema, TableSchema

PLACED = PlacedSchema(3, TableSchema("main", "t", 1, (Column("id", "int64", nullable=False),), ("id",)))
PUBLISHED = PublishedFile(
    feed="f::1",
    incarnation="i",
    sequence_id=7,
    lsn="0.1.7",
    published_at="2026-01-01T00:00:00.000Z",
    tables=[PublishedTable(["main", "t"], "main.t", 4)],
)


def test_schemas_and_the_moment_are_found_again(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "f::1", "i")
    assert ledger.published is None
    ledger.begin(7, [PLACED])
    ledger.publish(PUBLISHED)
    ledger.close()
    again = Ledger(tmp_path, "f::1", "i")
    assert again.schemas.placed == [PLACED]
    assert again.may_publish(7)
    assert not again.may_publish(6)
    assert again.published == PUBLISHED == read_published(tmp_path)
    again.close()


def test_one_job_at_a_time(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "f::1", "i")
    with pytest.raises(DataFolderLocked):
        Ledger(tmp_path, "f::1", "i")
    ledger.close()
    Ledger(tmp_path, "f::1", "i").close()


def test_another_feed_or_another_history_is_refused(tmp_path: Path) -> None:
    Ledger(tmp_path, "f::1", "i").close()
    with pytest.raises(ConfigInvalid, match="f::1"):
        Ledger(tmp_path, "f::2", "i")
    with pytest.raises(FeedRecreated):
        Ledger(tmp_path, "f::1", "j")
    Ledger(tmp_path, "f::1", "i").close()


@pytest.mark.parametrize("name", ["tables.json", "published.json"])
def test_a_newer_format_is_refused_before_anything_is_touched(tmp_path: Path, name: str) -> None:
    ledger = Ledger(tmp_path, "f::1", "i")
    ledger.publish(PUBLISHED)
    ledger.close()
    file = tmp_path / "_headrace" / name
    document = json.loads(file.read_bytes())
    assert (document["written-as"], document["readable-from"]) == (3, 3 if name == "tables.json" else 1)
    # A newer writer that old readers may read: unknown members are passed over.
    file.write_text(json.dumps(document | {"written-as": 9, "extra": 1}))
    Ledger(tmp_path, "f::1", "i").close()
    newer = json.dumps(document | {"written-as": 9, "readable-from": 9})
    file.write_text(newer)
    with pytest.raises(FormatTooNew, match=name):
        Ledger(tmp_path, "f::1", "i")
    assert file.read_text() == newer


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    Ledger(tmp_path, "f::1", "i").close()
    (tmp_path / "_headrace" / "tables.json").write_text('{"feed": ')
    with pytest.raises(LedgerCorrupt, match=r"tables\.json"):
        Ledger(tmp_path, "f::1", "i")


def test_the_newest_version_is_the_logs(tmp_path: Path) -> None:
    assert newest_version(tmp_path) is None
    log = tmp_path / "_delta_log"
    log.mkdir()
    assert newest_version(tmp_path) is None
    for name in (
        "00000000000000000009.json",
        "00000000000000000010.json",
        "00000000000000000010.checkpoint.parquet",
    ):
        (log / name).touch()
    assert newest_version(tmp_path) == 10


def test_folders_are_named_as_tables_are() -> None:
    assert folder_of(("main", "accounts")) == "main.accounts"
    assert folder_of(()) == PLAIN
    assert folder_of(("entries",)) == "~entries"
    assert folder_of(("a.b", "c/ü")) == "a~2eb.c~2f~c3~bc"
    assert folder_of(("_x", "t")) == "~_x.t"
    assert folder_of(("s", "t" * 253)) == "s." + "t" * 253


def test_a_folder_of_a_long_name_is_cut_and_still_its_own() -> None:
    names = [
        folder_of((first * 31, other * 31 + last)) for first, other in ("жя", "яж") for last in ("", "x")
    ]
    names += [folder_of(("s", "t" * 254)), folder_of(("s", "t" * 255)), folder_of(("~" * 200,))]
    assert len(set(names)) == len(names)
    assert {len(name) for name in names} == {255}
    assert all("~~" in name[1:] for name in names)


@given(st.lists(st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=3), min_size=2, max_size=2))
def test_no_two_tables_share_a_folder(tables: list[list[str]]) -> None:
    one, other = (tuple(table) for table in tables)
    assert (folder_of(one) == folder_of(other)) == (one == other)
    assert folder_of(one) != PLAIN
    assert "/" not in folder_of(one)


def test_only_folders_can_hold_tables(tmp_path: Path) -> None:
    assert local_folder(str(tmp_path)) == tmp_path
    assert local_folder(f"file://{tmp_path}") == tmp_path
    for text in ("s3a://bucket/tables", "hdfs://host/tables"):
        with pytest.raises(ConfigInvalid):
            local_folder(text)
