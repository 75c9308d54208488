"""What the tables job of a release wrote beside its tables is read and gone on with."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import msgspec
import pytest

from headrace.pipeline.tables.ledger import (
    Ledger,
    PublishedFile,
    PublishedTable,
    read_published,
    read_tables_file,
)
from headrace.pipeline.tables.schemas import Column, PlacedSchema, TableSchema
from headrace.pipeline.tables.simple.state import TableState, Tracked
from headrace.pipeline.tables.states import (
    Begun,
    CapturedTable,
    LeftFolder,
    Reached,
    Refusal,
    Start,
    StopNote,
)
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
REFUSED = Refusal(
    request="rebuild", code="query-failed", reason="no room", hint="Make room.", at="2026-11-22T10:00:00.000Z"
)
START = Start(source="archive", after=0, oldest=3, at="2026-11-22T06:00:00Z")
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
MORE["3"] = (MORE["2"][0], [msgspec.structs.replace(CAPTURED, started_from="copy", refused=REFUSED)])
"""What each generation has: what is published, and the captured tables."""


def write(folder: Path, generation: str) -> None:
    """Write what the generation has, as it is written today."""
    published, captured = MORE[generation]
    ledger = Ledger(folder, "shop", INCARNATION, instance="0b6dc2b4c7e94a0fa7d5f5a1d2d14e5c")
    ledger.keep(start=START)
    ledger.begin(4, [PLACED])
    if captured:
        left = [LeftFolder("shop.gone", "2026-11-22T09:00:00.000Z")]
        reached = Reached(4, PUBLISHED.lsn, 470642111646793729)
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


def test_today_is_written_as_generation_3_was(tmp_path: Path) -> None:
    write(tmp_path, "3")
    for name in ("tables.json", "tables-1.journal", "published.json"):
        golden = FORMATS / "3" / "tables" / "_headrace" / name
        assert (tmp_path / "_headrace" / name).read_text() == golden.read_text()


def test_generation_3_has_all_that_is_kept() -> None:
    found = read_tables_file(FORMATS / "3" / "tables")
    assert found is not None
    assert (found.start, found.begun, found.journal) == (START, 4, 1)
    assert found.reached == Reached(4, PUBLISHED.lsn, 470642111646793729)


def test_the_pages_examples_are_what_is_written() -> None:
    blocks = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (published,) = blocks
    assert msgspec.json.decode(published, type=PublishedFile) == PUBLISHED
