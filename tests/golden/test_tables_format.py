"""What the tables job of a release wrote beside its tables, and what Spark stored for it, is read and gone on with."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import msgspec
import pytest

from headrace.pipeline.source.offset import FeedOffset, FeedStart, Place, from_json, to_json
from headrace.pipeline.tables.ledger import Ledger, PublishedFile, PublishedTable, read_published
from headrace.pipeline.tables.schemas import Column, PlacedSchema, TableSchema

FORMATS = Path(__file__).parent / "formats"
GENERATIONS = sorted(path.parent.name for path in FORMATS.glob("*/tables"))
PAGE = Path(__file__).parents[2] / "docs" / "formats" / "tables.md"
INCARNATION = "ecb4aeb2-1c53-4e81-9b51-2fba0d685531"
PUBLISHED = PublishedFile(
    feed="shop",
    incarnation=INCARNATION,
    sequence_id=4,
    lsn="0687f0b7e9dc0000.0000000001.0000000004",
    published_at="2026-11-21T03:37:56.335Z",
    tables=[PublishedTable(["main", "orders"], "main.orders", 0)],
)
COLUMNS = (
    Column("id", "int64", nullable=False, source_type="INTEGER"),
    Column("total", "decimal(10,2)", source_type="DECIMAL(10,2)", renamed_from="sum"),
)
PLACED = PlacedSchema(1, TableSchema("main", "orders", 1, COLUMNS, ("id",)))


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_ledger_is_read_and_gone_on_with(tmp_path: Path, generation: str) -> None:
    folder = tmp_path / "tables"
    shutil.copytree(FORMATS / generation / "tables", folder)
    ledger = Ledger(folder, "shop", INCARNATION)
    assert ledger.published == PUBLISHED
    assert ledger.schemas.placed == [PLACED]
    assert (ledger.may_publish(4), ledger.may_publish(3)) == (True, False)
    ledger.begin(9, [PlacedSchema(5, PLACED.schema)])
    ledger.publish(msgspec.structs.replace(PUBLISHED, sequence_id=9))
    ledger.close()
    again = read_published(folder)
    assert again is not None
    assert again.sequence_id == 9


def test_today_is_written_as_generation_1_was(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "shop", INCARNATION)
    ledger.begin(4, [PLACED])
    ledger.publish(PUBLISHED)
    ledger.close()
    for name in ("tables.json", "published.json"):
        golden = FORMATS / "1" / "tables" / "_headrace" / name
        assert (tmp_path / "_headrace" / name).read_text() == golden.read_text()


@pytest.mark.parametrize("generation", GENERATIONS)
def test_spark_offsets_are_read(generation: str) -> None:
    documents = json.loads((FORMATS / generation / "spark-offsets.json").read_text())
    lsn = "0687f0b7e9dc0000.0000000001."
    places: list[Place] = [
        FeedStart(feed="shop", begin="oldest"),
        FeedOffset(
            feed="shop", incarnation=INCARNATION, sequence_id=4, lsn=f"{lsn}0000000004", began_after=0
        ),
        FeedOffset(feed="shop", incarnation=INCARNATION, sequence_id=9, lsn=f"{lsn}0000000009"),
    ]
    assert [from_json(document, "shop") for document in documents] == places
    if generation == "1":
        assert [to_json(place) for place in places] == documents


def test_the_pages_examples_are_what_is_written() -> None:
    blocks = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    published, offset = blocks
    assert msgspec.json.decode(published, type=PublishedFile) == PUBLISHED
    assert to_json(from_json(json.loads(offset), "shop")) == json.loads(offset)
