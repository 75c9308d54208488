"""A captured table that was truncated often, with a row that no table can take, and that was overwritten: base and log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.archive.files.bases import read_base
from headrace.archive.files.folder import Folder
from headrace.archive.moments.target import Asked
from headrace.entries.entry import Change
from headrace.errors import RestoreInexact
from headrace.pipeline.bases.making import create_base
from headrace.pipeline.bases.reading import base_frame
from headrace.pipeline.restore.job import Kind, Request, restore
from headrace.pipeline.tables.reader import iter_rows
from headrace.simple.message import MessageType
from tests.integration.pipeline.bases.archives import Story
from tests.integration.pipeline.restore.restoring import keys_in, names_in
from tests.unit.pipeline.tables.simple.history import INT, WORD, Feed, schema_of

NAME = ("shop", "items")
NIGHTS = 2


def rows_of(version: int, feed: Feed, *rows: tuple[int, str]) -> None:
    schema = schema_of({"id": INT, "word": WORD}, version=version, name=NAME)
    for number, word in rows:
        at = feed.row(schema, {"id": number, "word": word})
        change = feed.entries[at - 1].change
        value = (change.value or b"").replace(b'"misfit"', b'{"no":"text"}')
        key = json.dumps([*NAME, number], separators=(",", ":")).encode()
        feed.entries[at - 1] = feed.entries[at - 1]._replace(change=Change(value, key=key, table=NAME))


def captured() -> Feed:
    feed = Feed()
    feed.schema(schema_of({"id": INT, "word": WORD}, name=NAME))
    rows_of(1, feed, (1, "gone"))
    for number in range(NIGHTS):
        schema = schema_of({"id": INT, "word": WORD}, version=2 + number, name=NAME)
        feed.ddl(MessageType.TRUNCATE, "TRUNCATE items", schema, of=NAME)
        rows_of(2 + number, feed, (1, "first"), (2, "b"))
    rows_of(1 + NIGHTS, feed, (3, "misfit"), (3, "c"), (1, "a"))
    return feed


def test_what_no_table_could_take_stops_the_log_and_not_the_base(spark: SparkSession, tmp_path: Path) -> None:
    archive, told = tmp_path / "wal", Story()
    archive.mkdir()
    places = [told.append("shop", change) for _, change in captured().entries]
    later = Feed()
    rows_of(1 + NIGHTS, later, (4, "d"))
    last = told.append("shop", later.entries[0].change)
    told.write(archive, appends_each=100)

    def restored(kind: Kind, out: str) -> Path:
        restore(spark, Request(str(archive), Asked(to_lsn=last), str(tmp_path / out), kind=kind))
        return tmp_path / out

    with pytest.raises(RestoreInexact, match=r"shop\.items is not whole"):
        restored(Kind.TABLES, "refused")
    assert names_in(tmp_path / "refused") == []
    keys = keys_in(restored(Kind.KV, "keys"))
    create_base(spark, str(archive), at=places[-1], buckets=2)
    base = read_base(Folder(str(archive)), f"kdb-base-{places[-1]}")
    found = base_frame(spark, str(archive), base).where("control IS NOT NULL").collect()
    assert sorted(row["control"] for row in found) == ["ddl", *["schema"] * (1 + NIGHTS)]
    assert keys_in(restored(Kind.KV, "keys-based")) == keys
    shown = {row["id"]: row["word"] for _, row in iter_rows(str(restored(Kind.TABLES, "based") / "shop"))}
    assert shown == {1: "a", 2: "b", 3: "c", 4: "d"}
