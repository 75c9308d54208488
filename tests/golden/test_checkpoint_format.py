"""A checkpoint that a release exported is imported; the page's example is what is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.pipeline.checkpoint import decode, encode, places_in, read_checkpoint, write_checkpoint
from headrace.pipeline.source.offset import Place

FORMATS = Path(__file__).parent / "formats"
GENERATIONS = sorted(path.parent.name for path in FORMATS.glob("*/checkpoint.json"))
PAGE = Path(__file__).parents[2] / "docs" / "formats" / "checkpoint.md"
PLACE = Place(
    incarnation="ecb4aeb2-1c53-4e81-9b51-2fba0d685531",
    sequence_id=4,
    lsn="0687f0b7e9dc0000.0000000001.0000000004",
    began_after=0,
)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_an_exported_checkpoint_is_imported(tmp_path: Path, generation: str) -> None:
    data = (FORMATS / generation / "checkpoint.json").read_bytes()
    document = decode(data, "the file")
    assert document.query_id == "1f084713-7c1b-4081-8c8f-c0667e5df02f"
    assert [(batch.batch_id, batch.done) for batch in document.batches] == [(0, False)]
    assert places_in(document.batches[0].ends[0]) == {"shop": PLACE}
    write_checkpoint(document, str(tmp_path / "there"))
    assert read_checkpoint(str(tmp_path / "there")) == document


def test_today_is_written_as_generation_1_was() -> None:
    data = (FORMATS / "1" / "checkpoint.json").read_bytes()
    assert encode(decode(data, "the file")) == data


def test_the_pages_example_is_what_is_written() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert (FORMATS / "1" / "checkpoint.json").read_text(encoding="utf-8") == example
