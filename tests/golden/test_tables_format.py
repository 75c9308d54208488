"""What the tables job of a release wrote beside its tables is read and gone on with."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import msgspec
import pytest

from headrace.pipeline.tables.ledger import Ledger, PublishedFile, PublishedTable, read_published
from headrace.pipeline.tables.schemas import Column, PlacedSchema, TableSchema
from headrace.pipeline.tables.simple.state import TableState, Tracked
from headrace.pipeline.tables.states import Begun, CapturedTable, LeftFolder, Reached, StopNote
from headrace.simple.schema import DataType

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
STATE = TableState(
    identity=2,
    name=("shop", "orders"),
    columns=(Tracked("id", "int", DataType("int", "binary", "binary", 11), nullable=False),),
    made=True,
)
NOTE = StopNote(
    after=3,
    state=STATE,
    code="value-unfit",
    reason="it does not fit",
    hint="Mend it.",
    at="2026-11-22T10:00:00Z",
)
CAPTURED = CapturedTable(
    identity=2,
    table=("shop", "orders"),
    path="shop.orders",
    state=STATE,
    place=3,
    stopped=NOTE,
    begun=Begun(3, 1),
)
MORE = {
    "1": (PUBLISHED, []),
    "2": (
        msgspec.structs.replace(
            PUBLISHED,
            readable_from=2,
            commit_ts=470642111646793729,
            tables=[PublishedTable(["shop", "orders"], "shop.orders", 0, 3)],
        ),
        [CAPTURED],
    ),
}
"""What each generation has: what is published, and the captured tables."""


def write(folder: Path, generation: str) -> None:
    """Write what the generation has, as it is written today."""
    published, captured = MORE[generation]
    ledger = Ledger(folder, "shop", INCARNATION)
    ledger.begin(4, [PLACED])
    if captured:
        left = [LeftFolder("shop.gone", "2026-11-22T09:00:00.000Z")]
        reached = Reached(4, PUBLISHED.lsn)
        ledger.keep(reached=reached, tables=captured, left=left)
        ledger.keep(
            publishes=["2026-11-22T08:00:00.000Z"], cleaned={"shop.orders": "2026-11-22T07:00:00.000Z"}
        )
    ledger.publish(published)
    ledger.close()


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_ledger_is_read_and_gone_on_with(tmp_path: Path, generation: str) -> None:
    folder = tmp_path / "tables"
    shutil.copytree(FORMATS / generation / "tables", folder)
    ledger = Ledger(folder, "shop", INCARNATION)
    published, captured = MORE[generation]
    assert ledger.published == msgspec.structs.replace(published, written_as=int(generation))
    assert ledger.schemas.placed == [PLACED]
    assert ledger.tables == captured
    assert (ledger.may_publish(4), ledger.may_publish(3)) == (True, False)
    ledger.begin(9, [PlacedSchema(5, PLACED.schema)])
    ledger.publish(msgspec.structs.replace(PUBLISHED, sequence_id=9))
    ledger.close()
    again = read_published(folder)
    assert again is not None
    assert again.sequence_id == 9


def test_today_is_written_as_generation_2_was(tmp_path: Path) -> None:
    write(tmp_path, "2")
    for name in ("tables.json", "published.json"):
        golden = FORMATS / "2" / "tables" / "_headrace" / name
        assert (tmp_path / "_headrace" / name).read_text() == golden.read_text()


def test_without_captured_tables_older_programs_read_on(tmp_path: Path) -> None:
    write(tmp_path, "1")
    for name in ("tables.json", "published.json"):
        golden = json.loads((FORMATS / "1" / "tables" / "_headrace" / name).read_text())
        assert json.loads((tmp_path / "_headrace" / name).read_text()) == golden | {"written-as": 2}


def test_the_pages_examples_are_what_is_written() -> None:
    blocks = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (published,) = blocks
    assert msgspec.json.decode(published, type=PublishedFile) == PUBLISHED
